# The library that the Python package loads: python/voxgrad/*.cpp, and the C interface with all ops by name.
voxgrad_capi_library(voxgrad_python
  ${PROJECT_SOURCE_DIR}/python/voxgrad/_kernels.cpp ${PROJECT_SOURCE_DIR}/python/voxgrad/_shim.cpp
  ${PROJECT_SOURCE_DIR}/python/voxgrad/_tensor.cpp)
voxgrad_private_access(voxgrad_python)
set_target_properties(voxgrad_python PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python)
