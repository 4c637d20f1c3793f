# docs/book/programs/NN_name.cpp: a program of the book, which the book quotes together with NN_name.txt, its output.
# CTest runs it as book.NN_name and compares.

set(book ${PROJECT_SOURCE_DIR}/docs/book/programs)
file(GLOB sources CONFIGURE_DEPENDS ${book}/*.cpp)
add_custom_target(book)  # all programs
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(book_${name} ${source})
  voxgrad_options(book_${name})
  target_link_libraries(book_${name} PRIVATE voxgrad::voxgrad voxgrad::watch)
  set_target_properties(book_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/book)
  add_dependencies(book book_${name})
  add_test(NAME book.${name} COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:book_${name}>
    -DEXPECTED=${book}/${name}.txt -P ${PROJECT_SOURCE_DIR}/cmake/expect_output.cmake)
  set_tests_properties(book.${name} PROPERTIES LABELS book TIMEOUT 600)
endforeach()
