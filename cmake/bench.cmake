# bench/<name>.cpp and bench/conv3d/<name>.cpp (and .cu in CUDA builds): one Google Benchmark program each, named
# bench_<name> and bench_conv3d_<name>; the target `bench` builds them all. They may measure private kernels too.
# The comparisons with PyTorch need no Google Benchmark, only the library that they load.

set(shims common/shim.cpp vs_pytorch/shim.cpp networks/shim.cpp networks/layers.cpp level2/shim.cpp
  memory_bound/shim.cpp)
list(TRANSFORM shims PREPEND ${PROJECT_SOURCE_DIR}/bench/)
add_library(voxgrad_bench MODULE ${shims})
voxgrad_options(voxgrad_bench)
voxgrad_private_access(voxgrad_bench)  # to name the kernels that the conv3d table chooses
# Exports the shims' own functions alone, because PyTorch brings a CUDA runtime of its own.
target_link_options(voxgrad_bench PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(voxgrad_bench PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
add_custom_target(bench DEPENDS voxgrad_bench)

if(TARGET voxgrad::dist)
  add_executable(bench_parallel ${PROJECT_SOURCE_DIR}/bench/parallel/main.cpp)
  voxgrad_options(bench_parallel)
  target_link_libraries(bench_parallel PRIVATE voxgrad::dist)
  set_target_properties(bench_parallel PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(bench bench_parallel)
endif()

if(VOXGRAD_BUILD_TESTS)
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND)
    foreach(name IN ITEMS vs_pytorch conv3d_sweep)
      add_test(NAME bench.${name}
        COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/bench/${name}_test.py)
      set_tests_properties(bench.${name} PROPERTIES LABELS cpu)
    endforeach()
    # Against PyTorch, where this Python has it. (A sanitizer's runtime must be the first library of the process, and
    # Python is no part of this build.)
    if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
      set(networks --check --size 8 --narrow 8 --batch 2)
      set(level2 --smoke)
      set(memory_bound --smoke)
      foreach(name IN ITEMS networks level2 memory_bound)
        add_test(NAME bench.${name}
          COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/bench/${name} --device cpu --seed 1
            --library $<TARGET_FILE:voxgrad_bench> ${${name}})
        set_tests_properties(bench.${name} PROPERTIES LABELS cpu SKIP_RETURN_CODE 77)
      endforeach()
    endif()
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
