# Tests of voxgrad_afternoon (cmake/afternoon.cmake): it trains a network, runs programs of the book, and stays short.

function(voxgrad_afternoon_program name source)
  add_executable(afternoon_${name} ${source})
  voxgrad_options(afternoon_${name})
  target_link_libraries(afternoon_${name} PRIVATE voxgrad_afternoon)
endfunction()

voxgrad_afternoon_program(network ${CMAKE_CURRENT_LIST_DIR}/network.cpp)
add_test(NAME afternoon.network COMMAND afternoon_network)

set(book ${PROJECT_SOURCE_DIR}/docs/book/programs)
foreach(name IN ITEMS 01_numbers 02_modes 11_formats)
  voxgrad_afternoon_program(${name} ${book}/${name}.cpp)
  add_test(NAME afternoon.${name} COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:afternoon_${name}>
    -DEXPECTED=${book}/${name}.txt -P ${PROJECT_SOURCE_DIR}/cmake/expect_output.cmake)
endforeach()

add_test(NAME afternoon.lines COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} "-DFILES=${VOXGRAD_AFTERNOON}"
  -DMOST=6500 -P ${CMAKE_CURRENT_LIST_DIR}/lines.cmake)
set_tests_properties(afternoon.network afternoon.01_numbers afternoon.02_modes afternoon.11_formats afternoon.lines
  PROPERTIES LABELS cpu TIMEOUT 600)
