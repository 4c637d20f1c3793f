# The consumer project, built by CTest as a user would build it:
#   consumer.subdirectory      add_subdirectory: configured only, to see what is compiled with which flags
#   consumer.shared_*          the shared libraries, linked from the objects of this build
#   consumer.exports           the names that they export
#   consumer.installed_cpu     the installed CPU package, for a program of project(x CXX)
#   consumer.installed_cuda    the installed CUDA package, likewise (in CUDA builds)
#   consumer.pkg_config        the installed package, for a program compiled by hand
#   consumer.fetch             FetchContent, CPU only, with VOXGRAD_TEST_FETCH alone, because it compiles the library again
#                              (without optimisation, through ccache if available, and kept for the next run)
# An installed package comes from a tree that is already built: this one for its own kind, and in a CUDA build the CPU
# library of consumer.fetch. So only consumer.fetch compiles the library.
option(VOXGRAD_TEST_FETCH "Run the test consumer.fetch, which compiles the library once more; CI does" OFF)

set(consumer_dir ${PROJECT_BINARY_DIR}/consumer)

# consumer_test(<way> <argument>...): configures, builds and runs the consumer. The arguments are CMake's, unless they
# follow TARGET: then that target alone is built, and nothing runs.
function(consumer_test way)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET" "")
  set(then --test-command consumer)
  if(arg_TARGET)
    set(then --build-target ${arg_TARGET})
  endif()
  add_test(NAME consumer.${way} COMMAND ${CMAKE_CTEST_COMMAND}
    --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/consumer ${consumer_dir}/${way}
    --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS}
      ${arg_UNPARSED_ARGUMENTS}
    ${then})
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

set(from_source -DVOXGRAD_SOURCE_DIR=${PROJECT_SOURCE_DIR} -DVOXGRAD_CUDA=OFF)
consumer_test(subdirectory TARGET check_build_type ${from_source} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)

if(VOXGRAD_TEST_FETCH)
  # The flags of Release, which voxgrad chooses by itself, without the optimisation.
  consumer_test(fetch ${from_source} -DVOXGRAD_FETCH=ON -DVOXGRAD_INSTALL=ON -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG)
  set_tests_properties(consumer.fetch PROPERTIES LABELS "consumer;slow" TIMEOUT 1800 FIXTURES_SETUP consumer_fetch)
  if(VOXGRAD_CCACHE_PROGRAM)
    set_tests_properties(consumer.fetch PROPERTIES ENVIRONMENT
      "CMAKE_CXX_COMPILER_LAUNCHER=${VOXGRAD_CCACHE_PROGRAM};CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1")
  endif()
else()
  add_test(NAME consumer.fetch COMMAND ${CMAKE_COMMAND} -E echo "consumer.fetch: left out, see VOXGRAD_TEST_FETCH")
  set_tests_properties(consumer.fetch PROPERTIES LABELS consumer SKIP_REGULAR_EXPRESSION "left out")
endif()

# All objects are compiled for a shared library too (voxgrad_options), so linking one costs no compilation.
set(shared_dir ${PROJECT_BINARY_DIR})
set(shared voxgrad::watch)
if(NOT BUILD_SHARED_LIBS)
  set(shared_dir ${consumer_dir}/shared)
  set(shared watch_shared)
  foreach(isa IN LISTS VOXGRAD_ISAS)
    list(APPEND simd_objects $<TARGET_OBJECTS:voxgrad_simd_${isa}>)
  endforeach()
  add_library(voxgrad_shared SHARED $<TARGET_OBJECTS:voxgrad> ${simd_objects})
  target_link_libraries(voxgrad_shared PRIVATE Threads::Threads $<TARGET_NAME_IF_EXISTS:ZLIB::ZLIB>
    $<TARGET_NAME_IF_EXISTS:CUDA::cudart_static>)
  add_library(watch_shared SHARED $<TARGET_OBJECTS:voxgrad_watch>)
  target_link_libraries(watch_shared PUBLIC voxgrad_shared)
  set_target_properties(voxgrad_shared watch_shared PROPERTIES
    LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${shared_dir}
    LINK_OPTIONS -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  set_target_properties(voxgrad_shared PROPERTIES OUTPUT_NAME voxgrad)
  set_target_properties(watch_shared PROPERTIES OUTPUT_NAME voxgrad_watch)
endif()
foreach(name IN ITEMS main watch)
  add_executable(consumer_shared_${name} ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
  target_compile_features(consumer_shared_${name} PRIVATE cxx_std_20)
  target_compile_options(consumer_shared_${name} PRIVATE -UNDEBUG)  # they refuse the flags of a build type
  target_include_directories(consumer_shared_${name} PRIVATE ${VOXGRAD_INCLUDE_DIR})
  target_link_libraries(consumer_shared_${name} PRIVATE ${shared})
  add_test(NAME consumer.shared_${name} COMMAND consumer_shared_${name})
endforeach()
add_test(NAME consumer.exports COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DFOLDER=${shared_dir}
  -P ${CMAKE_CURRENT_LIST_DIR}/exports.cmake)
set_tests_properties(consumer.shared_main consumer.shared_watch consumer.exports PROPERTIES LABELS consumer)

if(VOXGRAD_HAS_CUDA)
  set(own installed_cuda)
  if(VOXGRAD_TEST_FETCH)
    consumer_install(installed_cpu ${consumer_dir}/fetch/_deps/voxgrad-build)
    set_tests_properties(consumer.installed_cpu_install PROPERTIES
      FIXTURES_REQUIRED "installed_cpu_clear;consumer_fetch")
  endif()
else()
  set(own installed_cpu)
endif()
consumer_install(${own} ${PROJECT_BINARY_DIR})

find_program(VOXGRAD_PKG_CONFIG NAMES pkg-config pkgconf)
mark_as_advanced(VOXGRAD_PKG_CONFIG)
if(VOXGRAD_PKG_CONFIG AND NOT BUILD_SHARED_LIBS)
  add_test(NAME consumer.pkg_config COMMAND ${CMAKE_COMMAND} -DCXX=${CMAKE_CXX_COMPILER} -DFLAGS=${CMAKE_CXX_FLAGS}
    -DPKG_CONFIG=${VOXGRAD_PKG_CONFIG} -DPC_DIR=${consumer_dir}/${own}_prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig
    -DSOURCES=${CMAKE_CURRENT_LIST_DIR} -DPROGRAM=${consumer_dir}/by_pkg_config
    -P ${CMAKE_CURRENT_LIST_DIR}/pkg_config.cmake)
  set_tests_properties(consumer.pkg_config PROPERTIES LABELS consumer FIXTURES_REQUIRED ${own})
endif()
