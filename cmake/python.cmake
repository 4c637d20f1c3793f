# The library that the Python package loads (python/voxgrad/_shim.cpp, and _tensor.cpp). It has no op by name: the package
# calls convolutions only, and a table of all ops would bring all their kernels into it.

# It exports the shim's own functions alone, because PyTorch brings a CUDA runtime of its own.
add_library(voxgrad_python MODULE
  ${PROJECT_SOURCE_DIR}/python/voxgrad/_shim.cpp ${PROJECT_SOURCE_DIR}/python/voxgrad/_tensor.cpp
  ${PROJECT_SOURCE_DIR}/capi/errors.cpp)
voxgrad_options(voxgrad_python)
voxgrad_private_access(voxgrad_python)
target_link_options(voxgrad_python PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(voxgrad_python PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python)
