# cmake --install: the library, its public headers and the package that find_package(voxgrad) reads.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(folder IN LISTS VOXGRAD_PUBLIC_FOLDERS)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/voxgrad
      FILES_MATCHING PATTERN "*.h"
      PATTERN "cpu" EXCLUDE  # ops/cpu holds kernels; the others declare them, or include what does
      PATTERN "*_kernels.h" EXCLUDE
      PATTERN "broadcast.h" EXCLUDE
      PATTERN "in_f32.h" EXCLUDE
      PATTERN "reduce_ops.h" EXCLUDE
      REGEX "dist/(control|engine|server|socket)\\.h$" EXCLUDE)
  endif()
endforeach()
install(FILES
  ${PROJECT_SOURCE_DIR}/voxgrad.h
  ${VOXGRAD_INCLUDE_DIR}/voxgrad/version.h
  ${VOXGRAD_INCLUDE_DIR}/voxgrad/config.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/voxgrad)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/voxgrad)
set(installed voxgrad)
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
get_target_property(library_type voxgrad TYPE)
set(VOXGRAD_IS_STATIC OFF)
if(library_type STREQUAL "STATIC_LIBRARY")
  set(VOXGRAD_IS_STATIC ON)
endif()
configure_package_config_file(cmake/voxgradConfig.cmake.in ${PROJECT_BINARY_DIR}/voxgradConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/voxgradConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/voxgradConfig.cmake ${PROJECT_BINARY_DIR}/voxgradConfigVersion.cmake
  DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
