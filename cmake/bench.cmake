# bench/<name>.cpp and bench/conv3d/<name>.cpp (and .cu in CUDA builds): one Google Benchmark program each, named
# bench_<name> and bench_conv3d_<name>; the target `bench` builds them all. They may measure private kernels too.
# bench/vs_pytorch needs no Google Benchmark, only the library that it loads.

# Only the shim's own functions are visible to the linker: PyTorch brings a CUDA runtime too.
add_library(voxgrad_bench MODULE ${PROJECT_SOURCE_DIR}/bench/vs_pytorch/shim.cpp)
voxgrad_options(voxgrad_bench)
target_link_libraries(voxgrad_bench PRIVATE voxgrad::voxgrad)
target_link_options(voxgrad_bench PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(voxgrad_bench PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
add_custom_target(bench DEPENDS voxgrad_bench)

if(VOXGRAD_BUILD_TESTS)
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND)
    foreach(name IN ITEMS vs_pytorch conv3d_sweep)
      add_test(NAME bench.${name}
        COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/bench/${name}_test.py)
      set_tests_properties(bench.${name} PROPERTIES LABELS cpu)
    endforeach()
  endif()
endif()

find_package(benchmark)
if(NOT benchmark_FOUND)
  message(STATUS "bench: Google Benchmark not found (Debian: libbenchmark-dev), its benchmarks left out")
  return()
endif()

set(folder ${PROJECT_SOURCE_DIR}/bench)
set(patterns ${folder}/*.cpp ${folder}/conv3d/*.cpp)
if(VOXGRAD_HAS_CUDA)
  list(APPEND patterns ${folder}/*.cu ${folder}/conv3d/*.cu)
endif()
file(GLOB bench_sources CONFIGURE_DEPENDS RELATIVE ${folder} ${patterns})
foreach(source IN LISTS bench_sources)
  string(REGEX REPLACE "\\.[a-z]+$" "" name ${source})
  string(REPLACE "/" "_" name ${name})
  add_executable(bench_${name} ${folder}/${source})
  voxgrad_options(bench_${name})
  voxgrad_private_access(bench_${name})
  target_link_libraries(bench_${name} PRIVATE benchmark::benchmark_main)
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(bench bench_${name})
endforeach()
