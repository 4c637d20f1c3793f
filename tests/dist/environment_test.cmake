# cmake -D VICTIM=... -P environment_test.cmake: checks the errors of init() for wrong environments of torchrun.
function(expect words)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=OMPI_COMM_WORLD_SIZE VOXGRAD_DIST_TIMEOUT=1 ${ARGN}
    ${VICTIM} none ok 9 checkpoint RESULT_VARIABLE status ERROR_VARIABLE text)
  if(status EQUAL 0 OR NOT text MATCHES "${words}")
    message(FATAL_ERROR "${ARGN}: status ${status}, expected '${words}', got: ${text}")
  endif()
endfunction()

set(complete RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29411)
expect("RANK, but no WORLD_SIZE" RANK=0)
expect("RANK, but no MASTER_ADDR" RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=29411)
expect("MASTER_PORT must be a number" ${complete} MASTER_PORT=abc)
expect("MASTER_PORT must be a port" ${complete} MASTER_PORT=70000)
expect("RANK must be below WORLD_SIZE, got 2 and 2" ${complete} RANK=2)
expect("timeout must be above 0" ${complete} VOXGRAD_DIST_TIMEOUT=0)
expect("rank 1 did not connect within 1 s" ${complete})
expect("rank 0 did not answer at 127.0.0.1:29411 within 1 s" ${complete} RANK=1)
