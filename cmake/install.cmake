# cmake --install: the library, its public headers, and the files that find_package(voxgrad) and pkg-config read.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(folder IN LISTS VOXGRAD_PUBLIC_FOLDERS)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/voxgrad
      FILES_MATCHING PATTERN "*.h"
      # Kernels, and what only ops and kernels share (docs/Doxyfile leaves them out too).
      PATTERN "cpu" EXCLUDE
      REGEX "ops/(broadcast|conv3d_kernel|conv3d_lattice|conv3d_recorded|difference|dispatch|elementwise_formulas|in_f32)\\.h$" EXCLUDE
      REGEX "image/voxels\\.h$" EXCLUDE
      REGEX "ops/(grid_sample_tap|interpolate_axis|kernels|layer_kernels|layout|loss_operands|pool3d_axis|pool3d_window|reduce_ops|reduce_plan|unary)\\.h$" EXCLUDE
      REGEX "watch/node_sources\\.h$" EXCLUDE
      REGEX "dist/(control|engine|server|socket)\\.h$" EXCLUDE)
  endif()
endforeach()
install(FILES
  ${PROJECT_SOURCE_DIR}/voxgrad.h
  ${VOXGRAD_INCLUDE_DIR}/voxgrad/version.h
  ${VOXGRAD_INCLUDE_DIR}/voxgrad/config.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/voxgrad)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/voxgrad)
set(installed voxgrad voxgrad_watch)
if(TARGET voxgrad_image)
  list(APPEND installed voxgrad_image)
endif()
if(TARGET voxgrad_dist)
  list(APPEND installed voxgrad_dist)
endif()
install(TARGETS ${installed} EXPORT voxgradTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT voxgradTargets NAMESPACE voxgrad:: DESTINATION ${package_dir})

# A shared library has its own copy of Threads and the CUDA runtime inside; a static one passes them on.
set(VOXGRAD_IS_STATIC OFF)
set(VOXGRAD_HAS_IMAGE OFF)
if(TARGET voxgrad_image)
  set(VOXGRAD_HAS_IMAGE ON)
endif()
set(VOXGRAD_PC_LIBS "")
if(voxgrad_type STREQUAL "STATIC_LIBRARY")
  set(VOXGRAD_IS_STATIC ON)
  set(VOXGRAD_PC_LIBS " -pthread")
  if(VOXGRAD_HAS_CUDA)
    string(APPEND VOXGRAD_PC_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
  endif()
  if(ZLIB_FOUND)
    string(APPEND VOXGRAD_PC_LIBS " -lz")
  endif()
endif()
configure_package_config_file(cmake/voxgradConfig.cmake.in ${PROJECT_BINARY_DIR}/voxgradConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/voxgradConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES cmake/FindNIfTI.cmake ${PROJECT_BINARY_DIR}/voxgradConfig.cmake ${PROJECT_BINARY_DIR}/voxgradConfigVersion.cmake
  DESTINATION ${package_dir})

# Relative to the .pc files, so that the prefix of `cmake --install` counts.
string(REGEX REPLACE "[^/]+" ".." VOXGRAD_PC_PREFIX ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(name IN ITEMS voxgrad voxgrad-watch)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
