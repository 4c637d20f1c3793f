# The library that the Python package loads: python/voxgrad/*.cpp, and the C interface with all ops by name.
voxgrad_capi_library(voxgrad_python
  ${PROJECT_SOURCE_DIR}/python/voxgrad/_kernels.cpp ${PROJECT_SOURCE_DIR}/python/voxgrad/_library.cpp
  ${PROJECT_SOURCE_DIR}/python/voxgrad/_tensor.cpp)
voxgrad_private_access(voxgrad_python)
set_target_properties(voxgrad_python PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python)

# The library then has its own copy of libstdc++, and runs with glibc 2.28.
option(VOXGRAD_OLD_GLIBC "Build the library of the Python package for manylinux_2_28 (x86-64, g++)" OFF)
if(VOXGRAD_OLD_GLIBC)
  target_sources(voxgrad_python PRIVATE ${PROJECT_SOURCE_DIR}/capi/old_glibc.cpp)
  target_link_options(voxgrad_python PRIVATE -static-libstdc++)
endif()
