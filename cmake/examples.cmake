# examples/NN_name.cpp or examples/NN_name/*.cpp: one program each, named NN_name, run briefly by CTest as
# example.NN_name. A folder with its own CMakeLists.txt defines its own build and tests, with the two functions
# below.

# voxgrad_example(<name> <source>...): builds an example into build/<preset>/examples.
function(voxgrad_example name)
  add_executable(${name} ${ARGN})
  voxgrad_options(${name})
  target_link_libraries(${name} PRIVATE voxgrad::voxgrad voxgrad::watch)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
endfunction()

# voxgrad_example_test(<name> [argument...]): CTest runs it with these arguments.
function(voxgrad_example_test name)
  add_test(NAME example.${name} COMMAND ${name} ${ARGN})
  set_tests_properties(example.${name} PROPERTIES LABELS example TIMEOUT 600)
endfunction()

if(TARGET voxgrad::image)
  add_subdirectory(${PROJECT_SOURCE_DIR}/examples/common ${PROJECT_BINARY_DIR}/examples/common.dir)
endif()

file(GLOB entries CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/[0-9][0-9]_*)
foreach(entry IN LISTS entries)
  get_filename_component(name ${entry} NAME_WE)
  if(name MATCHES "^0[456]_" AND NOT TARGET mri)
    message(WARNING "examples/${name} is left out: it reads head scans with voxgrad::image, which needs libnifti2 "
                    "(Debian and Ubuntu: apt install libnifti2-dev)")
    continue()
  endif()
  if(EXISTS ${entry}/CMakeLists.txt)
    add_subdirectory(${entry} ${PROJECT_BINARY_DIR}/examples/${name}.dir)
    continue()
  endif()
  if(IS_DIRECTORY ${entry})
    file(GLOB sources CONFIGURE_DEPENDS ${entry}/*.cpp)
  elseif(entry MATCHES "\\.cpp$")
    set(sources ${entry})
  else()
    set(sources)
  endif()
  if(sources)
    voxgrad_example(${name} ${sources})
    voxgrad_example_test(${name})
  endif()
endforeach()
