# Random graphs against PyTorch (README.md here). The tests run fixed numbers where there is a Python with PyTorch;
# `./run graphs` runs more. Sanitizers: see opinfo.cmake.
if(Python3_FOUND AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(command ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR} --library $<TARGET_FILE:voxgrad_opinfo>)
  add_test(NAME graphs COMMAND ${command} --count 30 --out ${CMAKE_CURRENT_BINARY_DIR}/graphs)
  add_test(NAME graphs.self_test COMMAND ${command} --self-test)
  set_tests_properties(graphs graphs.self_test PROPERTIES LABELS cpu TIMEOUT 900 SKIP_RETURN_CODE 77)
  if(TARGET test_dist AND MPI_CXX_FOUND)
    dist_test(graphs cpu ${mpirun} -n 2 ${command} --count 6 --jobs 1)
  endif()
endif()
