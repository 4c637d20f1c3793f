# The oracle: PyTorch's own samples through voxgrad (README.md here). The test `opinfo` runs a fixed share of them
# where there is a Python with PyTorch, and is skipped elsewhere; `./run opinfo` runs everything.

# Through the linker nothing but the shim's own functions is visible: PyTorch may bring a CUDA runtime too.
add_library(voxgrad_opinfo MODULE ${CMAKE_CURRENT_LIST_DIR}/shim.cpp)
voxgrad_options(voxgrad_opinfo)
target_link_libraries(voxgrad_opinfo PRIVATE voxgrad::voxgrad)
target_link_options(voxgrad_opinfo PRIVATE -Wl,--exclude-libs,ALL)

# A sanitizer's runtime must be the first library of the process, and Python is no part of this build.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_test(NAME opinfo COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR} --share
    --library $<TARGET_FILE:voxgrad_opinfo>)
  set_tests_properties(opinfo PROPERTIES LABELS cpu TIMEOUT 900 SKIP_RETURN_CODE 77 PROCESSORS 2)
endif()
