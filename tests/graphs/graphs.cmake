# Random graphs against PyTorch (README.md here). The test `graphs` runs a fixed share of them, after a self-test, where
# there is a Python with PyTorch; `./run graphs` runs more. Sanitizers: see opinfo.cmake.
if(Python3_FOUND AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_test(NAME graphs COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR} share
    --library $<TARGET_FILE:voxgrad_opinfo> --out ${CMAKE_CURRENT_BINARY_DIR}/graphs)
  set_tests_properties(graphs PROPERTIES LABELS cpu TIMEOUT 900 SKIP_RETURN_CODE 77)
endif()
