# The oracle: PyTorch's own samples through voxgrad (README.md here). The test `opinfo` runs a fixed share of them
# where there is a Python with PyTorch, and is skipped elsewhere; `./run opinfo` runs everything.

# With the routes of tests/graphs.
voxgrad_capi_library(voxgrad_opinfo ${CMAKE_CURRENT_LIST_DIR}/../graphs/routes.cpp)
if(TARGET voxgrad::dist)
  target_link_libraries(voxgrad_opinfo PRIVATE voxgrad::dist)
  target_compile_definitions(voxgrad_opinfo PRIVATE VOXGRAD_HAS_DIST=1)
endif()

# A sanitizer's runtime must be the first library of the process, and Python is no part of this build.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_test(NAME opinfo COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR} --share
    --library $<TARGET_FILE:voxgrad_opinfo>)
  set_tests_properties(opinfo PROPERTIES LABELS cpu TIMEOUT 900 SKIP_RETURN_CODE 77 PROCESSORS 2)
endif()
