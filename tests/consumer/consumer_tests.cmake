# The consumer project, built by CTest as a user would build it:
#   consumer.subdirectory      add_subdirectory, CPU only; it compiles the library again (through ccache if
#                              available, without optimisation, and kept for the next run)
#   consumer.installed_cpu     the installed CPU package, for a program of project(x CXX)
#   consumer.installed_cuda    the installed CUDA package, likewise (in CUDA builds)
# An installed package comes from a tree that is already built: this one for its own kind, and in a CUDA build the CPU
# library that consumer.subdirectory has just made. So a CUDA build runs all three tests, a CPU build all except the
# last, and nothing is compiled only to be installed.

set(consumer_dir ${PROJECT_BINARY_DIR}/consumer)

# consumer_test(<way> <cmake argument>...): configures, builds and runs the consumer.
function(consumer_test way)
  add_test(NAME consumer.${way} COMMAND ${CMAKE_CTEST_COMMAND}
    --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/consumer ${consumer_dir}/${way}
    --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS} ${ARGN}
    --test-command consumer)
  set_tests_properties(consumer.${way} PROPERTIES LABELS consumer TIMEOUT 900)
endfunction()

# consumer_install(<way> <build tree>): installs it into an empty folder before consumer.<way> runs.
function(consumer_install way build_tree)
  set(prefix ${consumer_dir}/${way}_prefix)
  add_test(NAME consumer.${way}_clear COMMAND ${CMAKE_COMMAND} -E rm -rf ${prefix})
  add_test(NAME consumer.${way}_install COMMAND ${CMAKE_COMMAND} --install ${build_tree} --prefix ${prefix})
  set_tests_properties(consumer.${way}_clear PROPERTIES LABELS consumer FIXTURES_SETUP ${way}_clear)
  set_tests_properties(consumer.${way}_install PROPERTIES LABELS consumer
    FIXTURES_REQUIRED ${way}_clear FIXTURES_SETUP ${way})
  consumer_test(${way} -DCMAKE_PREFIX_PATH=${prefix})
  set_tests_properties(consumer.${way} PROPERTIES FIXTURES_REQUIRED ${way})
endfunction()

consumer_test(subdirectory -DVOXGRAD_SOURCE_DIR=${PROJECT_SOURCE_DIR} -DVOXGRAD_CUDA=OFF -DVOXGRAD_INSTALL=ON
  -DBUILD_SHARED_LIBS=${BUILD_SHARED_LIBS})
set_tests_properties(consumer.subdirectory PROPERTIES
  LABELS "consumer;slow" TIMEOUT 1800 FIXTURES_SETUP consumer_subdirectory)
if(VOXGRAD_CCACHE_PROGRAM)
  set_tests_properties(consumer.subdirectory PROPERTIES ENVIRONMENT
    "CMAKE_CXX_COMPILER_LAUNCHER=${VOXGRAD_CCACHE_PROGRAM};CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1")
endif()

if(VOXGRAD_HAS_CUDA)
  consumer_install(installed_cuda ${PROJECT_BINARY_DIR})
  consumer_install(installed_cpu ${consumer_dir}/subdirectory/voxgrad)
  set_tests_properties(consumer.installed_cpu_install PROPERTIES
    FIXTURES_REQUIRED "installed_cpu_clear;consumer_subdirectory")
else()
  consumer_install(installed_cpu ${PROJECT_BINARY_DIR})
endif()
