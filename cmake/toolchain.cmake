# Build type, compiler cache, and whether this build has CUDA (VOXGRAD_HAS_CUDA, 0 or 1).

# Without a build type voxgrad is optimised. Below another project that holds for voxgrad's folder alone.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
  else()
    set(CMAKE_BUILD_TYPE Release)
  endif()
endif()

if(VOXGRAD_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  set(VOXGRAD_HAS_CUDA 0)
  if(CMAKE_CUDA_COMPILER)
    set(VOXGRAD_HAS_CUDA 1)
  endif()
elseif(VOXGRAD_CUDA)
  set(VOXGRAD_HAS_CUDA 1)
else()
  set(VOXGRAD_HAS_CUDA 0)
endif()

if(VOXGRAD_HAS_CUDA)
  # Left unset, CUDA 13 compiles for sm_75 alone. 90a-real is machine code for Hopper with its wgmma and TMA
  # instructions; 80-virtual is PTX, which the driver translates for every other GPU from Ampere on.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES "80-virtual;90a-real" CACHE STRING "CUDA architectures")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

if(VOXGRAD_CCACHE AND PROJECT_IS_TOP_LEVEL)
  find_program(VOXGRAD_CCACHE_PROGRAM ccache)
  mark_as_advanced(VOXGRAD_CCACHE_PROGRAM)
  if(VOXGRAD_CCACHE_PROGRAM)
    # Paths relative to the source tree: two checkouts of the same file share one cached object.
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
        ${VOXGRAD_CCACHE_PROGRAM})
    foreach(language IN ITEMS CXX CUDA)
      if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
        set(CMAKE_${language}_COMPILER_LAUNCHER ${launcher})
      endif()
    endforeach()
  endif()
endif()
