# cmake -DPROGRAM=<test program> -DFILTER=<some of its tests> -DISA=v3 -DBETTER=v4 -DASK=<test_ops> -P isa_tests.cmake
#
# Runs the tests with one instruction set, unless it is the best one of this processor, with which ctest runs each test.
set(ENV{VOXGRAD_CPU_ISA} ${BETTER})
execute_process(COMMAND ${ASK} --gtest_brief=1 --gtest_filter=IsaTest.LevelsAreNested
  OUTPUT_VARIABLE answer ERROR_QUIET)
if(answer MATCHES "VOXGRAD_CPU_ISA asks for ${BETTER}, which this processor")
  message(STATUS "isa_tests: skipped, because this processor has nothing better than ${ISA}")
  return()
endif()
set(ENV{VOXGRAD_CPU_ISA} ${ISA})
execute_process(COMMAND ${PROGRAM} --gtest_brief=1 --gtest_filter=${FILTER} COMMAND_ERROR_IS_FATAL ANY)
