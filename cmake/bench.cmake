# bench/*.cpp (and *.cu in CUDA builds): one Google Benchmark program each, named bench_<file>; the target
# `bench` builds them all. They may measure private kernels as well.

find_package(benchmark)
if(NOT benchmark_FOUND)
  message(STATUS "bench: Google Benchmark not found (Debian: libbenchmark-dev), benchmarks left out")
  return()
endif()

file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.cpp)
if(VOXGRAD_HAS_CUDA)
  file(GLOB bench_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.cu)
  list(APPEND bench_sources ${bench_cuda_sources})
endif()
add_custom_target(bench)
foreach(source IN LISTS bench_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(bench_${name} ${source})
  voxgrad_options(bench_${name})
  voxgrad_private_access(bench_${name})
  target_link_libraries(bench_${name} PRIVATE benchmark::benchmark_main)
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(bench bench_${name})
endforeach()
