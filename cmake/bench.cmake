# The programs bench_<name>, and voxgrad_bench, the library that the comparisons with PyTorch load; the target `bench`
# builds them all. They may measure private kernels too.

set(shims common/shim.cpp common/program.cpp common/conv.cpp networks/shim.cpp)
list(TRANSFORM shims PREPEND ${PROJECT_SOURCE_DIR}/bench/)
voxgrad_capi_library(voxgrad_bench ${shims})
voxgrad_private_access(voxgrad_bench)  # to name the kernels that the conv3d table chooses
set_target_properties(voxgrad_bench PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
add_custom_target(bench DEPENDS voxgrad_bench)

if(TARGET voxgrad::dist)
  add_executable(bench_parallel ${PROJECT_SOURCE_DIR}/bench/parallel/main.cpp)
  voxgrad_options(bench_parallel)
  target_link_libraries(bench_parallel PRIVATE voxgrad::dist)
  set_target_properties(bench_parallel PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(bench bench_parallel)
endif()

if(TARGET nnunet)
  add_executable(bench_nnunet_job ${PROJECT_SOURCE_DIR}/bench/nnunet_job/main.cpp)
  voxgrad_options(bench_nnunet_job)
  target_link_libraries(bench_nnunet_job PRIVATE nnunet)
  set_target_properties(bench_nnunet_job PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(bench bench_nnunet_job)
  if(VOXGRAD_BUILD_TESTS)
    add_test(NAME bench.nnunet_job COMMAND bench_nnunet_job --size 16 --narrow 16 --volumes 2 --seconds 0)
    set_tests_properties(bench.nnunet_job PROPERTIES LABELS cpu)
  endif()
endif()

if(VOXGRAD_BUILD_TESTS)
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND)
    foreach(name IN ITEMS vs_pytorch conv3d_sweep conv3d_regret)
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

function(add_bench name source)
  add_executable(bench_${name} ${PROJECT_SOURCE_DIR}/bench/${source})
  voxgrad_options(bench_${name})
  voxgrad_private_access(bench_${name})
  target_link_libraries(bench_${name} PRIVATE ${ARGN})
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(bench bench_${name})
endfunction()

add_bench(conv3d_memory conv3d/memory.cpp)
add_bench(gradbench gradbench/gradbench.cpp)
if(VOXGRAD_BUILD_TESTS AND Python3_FOUND)
  add_test(NAME bench.gradbench COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/bench/gradbench/check.py
    $<TARGET_FILE:bench_gradbench>)
  set_tests_properties(bench.gradbench PROPERTIES LABELS cpu SKIP_RETURN_CODE 77)
endif()
if(VOXGRAD_HAS_CUDA)
  add_bench(conv3d_sweep conv3d/sweep.cu)
  add_bench(conv3d_choice conv3d/choice.cpp)
  add_bench(conv3d_host conv3d/host.cu)
  add_bench(conv3d_mma_rate conv3d/mma_rate.cu)
  # The choice of kernels, judged by the times that an H200 took: the program needs no GPU to say what it chooses.
  if(VOXGRAD_BUILD_TESTS)
    add_test(NAME bench.conv3d_choice
      COMMAND bench_conv3d_choice conv_transpose3d high 2,64,32,32,32 64,32,2,2,2 stride=2)
    set_tests_properties(bench.conv3d_choice PROPERTIES LABELS cpu ENVIRONMENT VOXGRAD_WGMMA=1
      PASS_REGULAR_EXPRESSION "conv3d\n  gather .*conv_transpose3d\n  strided +[0-9.]+ us = .* launch [+] .* products")
  endif()
  if(VOXGRAD_BUILD_TESTS AND Python3_FOUND)
    set(tables measured_without_wgmma measured)
    foreach(wgmma RANGE 1)
      list(GET tables ${wgmma} table)
      add_test(NAME bench.conv3d_choices.${table}
        COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/bench/conv3d/regret.py
          ${PROJECT_SOURCE_DIR}/bench/conv3d/${table}.tsv --program $<TARGET_FILE:bench_conv3d_sweep>)
      set_tests_properties(bench.conv3d_choices.${table} PROPERTIES LABELS cpu ENVIRONMENT VOXGRAD_WGMMA=${wgmma})
    endforeach()
  endif()
endif()

find_package(benchmark)
if(NOT benchmark_FOUND)
  message(STATUS "bench: Google Benchmark not found (Debian: libbenchmark-dev), its benchmarks left out")
  return()
endif()
add_bench(cpu_ops cpu_ops.cpp benchmark::benchmark_main)
add_bench(conv3d_passes conv3d/passes.cpp benchmark::benchmark_main)
