# cmake -DPROGRAM=... -DEXPECTED=... -P expect_output.cmake: fails unless the program prints what the file holds.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed ECHO_OUTPUT_VARIABLE RESULT_VARIABLE status)
file(READ ${EXPECTED} expected)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} failed: ${status}")
endif()
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "The output above differs from ${EXPECTED}:\n${expected}")
endif()
