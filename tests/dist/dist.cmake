# Tests of voxgrad::dist, run by mpirun as one, two and three processes. test_dist has its own main(), which finds the
# other ranks.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/dist/*_test.cpp)
if(NOT TARGET unet3d)
  list(FILTER sources EXCLUDE REGEX unet3d_test)
endif()
add_executable(test_dist ${CMAKE_CURRENT_SOURCE_DIR}/dist/main.cpp ${sources})
add_dependencies(voxgrad_tests test_dist)
voxgrad_options(test_dist)
voxgrad_private_access(test_dist)
target_link_libraries(test_dist PRIVATE voxgrad_test_support voxgrad::dist $<TARGET_NAME_IF_EXISTS:unet3d>)

add_executable(dist_victim ${CMAKE_CURRENT_SOURCE_DIR}/dist/victim.cpp)
add_dependencies(voxgrad_tests dist_victim)
voxgrad_options(dist_victim)
target_link_libraries(dist_victim PRIVATE voxgrad::dist)

if(MPI_CXX_FOUND)
  set(mpirun ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none --allow-run-as-root)
  foreach(ranks IN ITEMS 1 2 3)
    add_test(NAME dist.${ranks}
      COMMAND ${mpirun} -n ${ranks} $<TARGET_FILE:test_dist> --gtest_brief=1 "--gtest_filter=-*Cuda*:*/cuda*")
    set_tests_properties(dist.${ranks} PROPERTIES LABELS cpu TIMEOUT 300 PROCESSORS 2
      ENVIRONMENT "VOXGRAD_NUM_THREADS=1;VOXGRAD_DIST_TIMEOUT=60")
  endforeach()
endif()

find_package(Python3 COMPONENTS Interpreter)
if(MPI_CXX_FOUND AND Python3_FOUND)
  add_test(NAME dist.failures COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/dist/failures_test.py
    --victim $<TARGET_FILE:dist_victim> "--mpirun=${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none --allow-run-as-root")
  set_tests_properties(dist.failures PROPERTIES LABELS cpu TIMEOUT 600 PROCESSORS 2)
endif()
