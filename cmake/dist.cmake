# The library voxgrad_dist (alias voxgrad::dist), for programs of several processes. It uses MPI for CPU tensors and, in
# CUDA builds, NCCL for CUDA tensors, each if its headers are found. NCCL's library is loaded at run time.

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX)
set(VOXGRAD_HAS_NCCL 0)
if(VOXGRAD_HAS_CUDA)
  find_path(VOXGRAD_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(VOXGRAD_NCCL_INCLUDE_DIR)
    set(VOXGRAD_HAS_NCCL 1)
  endif()
endif()
if(NOT MPI_CXX_FOUND AND NOT VOXGRAD_HAS_NCCL)
  message(FATAL_ERROR "VOXGRAD_DIST=ON needs MPI (Debian and Ubuntu: apt install libopenmpi-dev openmpi-bin) or, in a "
                      "CUDA build, NCCL's header nccl.h (libnccl-dev; -DVOXGRAD_NCCL_INCLUDE_DIR=... if it lies elsewhere)")
endif()

file(GLOB dist_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/dist/*.cpp)
add_library(voxgrad_dist ${dist_sources})
add_library(voxgrad::dist ALIAS voxgrad_dist)
set_target_properties(voxgrad_dist PROPERTIES EXPORT_NAME dist VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
voxgrad_options(voxgrad_dist)
target_compile_definitions(voxgrad_dist PRIVATE
  VOXGRAD_HAS_MPI=$<BOOL:${MPI_CXX_FOUND}> VOXGRAD_HAS_NCCL=${VOXGRAD_HAS_NCCL})
target_include_directories(voxgrad_dist PRIVATE ${VOXGRAD_PRIVATE_INCLUDE_DIR})
target_link_libraries(voxgrad_dist PUBLIC voxgrad PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
set(VOXGRAD_DIST_HAS_MPI 0)
if(MPI_CXX_FOUND)
  set(VOXGRAD_DIST_HAS_MPI 1)
  target_link_libraries(voxgrad_dist PRIVATE MPI::MPI_CXX)
endif()
if(VOXGRAD_HAS_NCCL)
  target_include_directories(voxgrad_dist SYSTEM PRIVATE ${VOXGRAD_NCCL_INCLUDE_DIR})
  target_link_libraries(voxgrad_dist PRIVATE CUDA::cudart_static)
endif()
