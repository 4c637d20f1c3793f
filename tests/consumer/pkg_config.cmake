# cmake -DCXX=g++ -DFLAGS=... -DPKG_CONFIG=pkg-config -DPC_DIR=folder -DSOURCE=main.cpp -DPROGRAM=file -P pkg_config.cmake
# Compiles the consumer without CMake, from what pkg-config says, and runs it.
set(ENV{PKG_CONFIG_PATH} ${PC_DIR})
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs "voxgrad >= 0.2" OUTPUT_VARIABLE options COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(options UNIX_COMMAND "${options}")
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
execute_process(COMMAND ${CXX} ${FLAGS} -std=c++20 ${SOURCE} -o ${PROGRAM} ${options} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PROGRAM} COMMAND_ERROR_IS_FATAL ANY)
