# The library voxgrad (alias voxgrad::voxgrad), static unless BUILD_SHARED_LIBS.

find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(ZLIB)  # for .npz files that are compressed

set(folders core autograd ops ops/cpu ops/cpu/conv3d nn nn/data nn/optim)
list(TRANSFORM folders PREPEND ${PROJECT_SOURCE_DIR}/)
list(TRANSFORM folders APPEND /*.cpp OUTPUT_VARIABLE patterns)
if(VOXGRAD_HAS_CUDA)
  foreach(depth IN ITEMS "" */ */*/)
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/cuda/${depth}*.cpp ${PROJECT_SOURCE_DIR}/cuda/${depth}*.cu)
  endforeach()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${patterns})
if(VOXGRAD_HAS_CUDA)
  # It defines the vox::cuda functions that report that there is no CUDA.
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/core/cuda_absent.cpp)
endif()

include(cmake/isa.cmake)
foreach(isa IN LISTS VOXGRAD_ISAS)
  list(APPEND sources $<TARGET_OBJECTS:voxgrad_simd_${isa}>)
endforeach()
add_library(voxgrad ${sources})
add_library(voxgrad::voxgrad ALIAS voxgrad)
set_target_properties(voxgrad PROPERTIES
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
voxgrad_options(voxgrad)
target_compile_definitions(voxgrad PRIVATE VOXGRAD_X86_ISAS=${VOXGRAD_X86_ISAS})
target_compile_features(voxgrad PUBLIC cxx_std_20)
target_include_directories(voxgrad
  PUBLIC $<BUILD_INTERFACE:${VOXGRAD_INCLUDE_DIR}>
  PRIVATE ${VOXGRAD_PRIVATE_INCLUDE_DIR})

get_target_property(voxgrad_type voxgrad TYPE)

# voxgrad_exports(target): as a shared library it exports the names of namespace vox and no others.
function(voxgrad_exports target)
  if(voxgrad_type STREQUAL "SHARED_LIBRARY")
    set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
    target_link_options(${target} PRIVATE -Wl,--version-script=${exports})
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${exports})
  endif()
endfunction()
voxgrad_exports(voxgrad)

# BUILD_INTERFACE: a program that links the installed library needs neither Eigen nor nlohmann_json.
target_link_libraries(voxgrad PRIVATE
  Threads::Threads $<BUILD_INTERFACE:Eigen3::Eigen> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
if(ZLIB_FOUND)
  target_link_libraries(voxgrad PRIVATE ZLIB::ZLIB)
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/nn/zip.cpp APPEND PROPERTY COMPILE_DEFINITIONS VOXGRAD_HAS_ZLIB=1)
endif()
if(VOXGRAD_HAS_CUDA)
  # By name: a program of project(x CXX) has no CUDA language to bring the runtime, and
  # CMAKE_CUDA_RUNTIME_LIBRARY does not reach it.
  target_link_libraries(voxgrad PRIVATE CUDA::cudart_static)
endif()

# Rounding to 16 bits chooses between two computed values; without traps the compiler can vectorise that. Nor can it
# vectorise a square root that may set errno.
set_property(SOURCE ${PROJECT_SOURCE_DIR}/ops/cpu/copy.cpp ${PROJECT_SOURCE_DIR}/ops/cpu/elementwise.cpp
  ${PROJECT_SOURCE_DIR}/ops/cpu/optimizer.cpp APPEND PROPERTY COMPILE_OPTIONS -fno-trapping-math -fno-math-errno)

# What tests and benchmarks may use beyond the public headers.
function(voxgrad_private_access target)
  target_include_directories(${target} PRIVATE ${VOXGRAD_PRIVATE_INCLUDE_DIR} ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE VOXGRAD_X86_ISAS=${VOXGRAD_X86_ISAS})
  target_link_libraries(${target} PRIVATE voxgrad::voxgrad Eigen3::Eigen nlohmann_json::nlohmann_json)
  if(VOXGRAD_HAS_CUDA)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  endif()
endfunction()
