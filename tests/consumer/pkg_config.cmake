# cmake -DCXX=g++ -DFLAGS=... -DPKG_CONFIG=pkg-config -DPC_DIR=folder -DSOURCES=folder -DPROGRAM=file -P pkg_config.cmake
# Compiles the consumer's programs without CMake, from what pkg-config says, and runs them.
set(ENV{PKG_CONFIG_PATH} ${PC_DIR})
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
set(sources main watch)
set(packages voxgrad voxgrad-watch)
foreach(source package IN ZIP_LISTS sources packages)
  execute_process(COMMAND ${PKG_CONFIG} --cflags --libs "${package} >= 0.2" OUTPUT_VARIABLE options
    COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(options UNIX_COMMAND "${options}")
  execute_process(COMMAND ${CXX} ${FLAGS} -std=c++20 ${SOURCES}/${source}.cpp -o ${PROGRAM} ${options}
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${PROGRAM} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
