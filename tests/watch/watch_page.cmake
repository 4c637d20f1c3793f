# cmake -DTESTS=<test_watch> -DBROWSER=<chromium> -DFOLDER=<folder> -P watch_page.cmake
# Lets the tests of vox::write_html write their pages, opens each in a browser, which steps through it (#selftest), and
# reads the result. A page fails if a script throws or writes an error to the console.

file(REMOVE_RECURSE ${FOLDER})
set(ENV{VOXGRAD_WATCH_PAGES} ${FOLDER})
execute_process(COMMAND ${TESTS} --gtest_brief=1 --gtest_filter=WatchPage.* COMMAND_ERROR_IS_FATAL ANY)
file(GLOB pages ${FOLDER}/*.html)
if(NOT pages)
  message(FATAL_ERROR "watch_page: the tests wrote no pages")
endif()
foreach(page IN LISTS pages)
  execute_process(
    COMMAND ${BROWSER} --headless --no-sandbox --disable-gpu --user-data-dir=${FOLDER}/profile --dump-dom
      "file://${page}#selftest"
    OUTPUT_VARIABLE dom ERROR_VARIABLE messages TIMEOUT 120)
  if(NOT dom MATCHES "data-selftest=\"(ok: [0-9]+ events)\"")
    string(REGEX MATCH "data-selftest=\"[^\"]*\"" result "${dom}")
    message(FATAL_ERROR "watch_page: ${page}: ${result}\n${messages}")
  endif()
  message(STATUS "${page}: ${CMAKE_MATCH_1}")
endforeach()
