# The library voxgrad_image (alias voxgrad::image): scans in NIfTI, MetaImage and NRRD files. It needs libnifti2 and
# zlib, and is left out where they are missing.

set(VOXGRAD_IMAGE AUTO CACHE STRING "voxgrad::image: ON, OFF, or AUTO (ON where libnifti2 and zlib are found)")
set_property(CACHE VOXGRAD_IMAGE PROPERTY STRINGS AUTO ON OFF)
if(VOXGRAD_IMAGE STREQUAL "OFF")
  return()
endif()
list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)  # FindNIfTI
find_package(NIfTI QUIET)
if(NOT NIfTI_FOUND OR NOT ZLIB_FOUND)
  set(missing "voxgrad::image needs libnifti2 and zlib (Debian and Ubuntu: apt install libnifti2-dev)")
  if(VOXGRAD_IMAGE STREQUAL "ON")
    message(FATAL_ERROR "${missing}")
  endif()
  message(STATUS "Left out: ${missing}")
  return()
endif()

list(APPEND VOXGRAD_PUBLIC_FOLDERS image)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/image ${VOXGRAD_INCLUDE_DIR}/voxgrad/image SYMBOLIC)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/image/*.cpp)
add_library(voxgrad_image ${sources})
add_library(voxgrad::image ALIAS voxgrad_image)
set_target_properties(voxgrad_image PROPERTIES EXPORT_NAME image VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
voxgrad_options(voxgrad_image)
voxgrad_exports(voxgrad_image)
target_link_libraries(voxgrad_image PUBLIC voxgrad PRIVATE NIfTI::nifti2 ZLIB::ZLIB)
