# find_package(NIfTI): the NIfTI-2 C library as NIfTI::nifti2, and NIfTI_FOUND. (The CMake package in Debian's
# libnifti2-dev names files that do not exist, which stops every project that uses it.)
include(FindPackageHandleStandardArgs)
find_path(NIfTI_INCLUDE_DIR nifti2_io.h PATH_SUFFIXES nifti)
find_library(NIfTI_LIBRARY nifti2)
find_library(NIfTI_znz_LIBRARY znz)
mark_as_advanced(NIfTI_INCLUDE_DIR NIfTI_LIBRARY NIfTI_znz_LIBRARY)
find_package_handle_standard_args(NIfTI REQUIRED_VARS NIfTI_LIBRARY NIfTI_znz_LIBRARY NIfTI_INCLUDE_DIR)

if(NIfTI_FOUND AND NOT TARGET NIfTI::nifti2)
  add_library(NIfTI::nifti2 UNKNOWN IMPORTED)
  set_target_properties(NIfTI::nifti2 PROPERTIES
    IMPORTED_LOCATION ${NIfTI_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${NIfTI_INCLUDE_DIR}
    INTERFACE_LINK_LIBRARIES ${NIfTI_znz_LIBRARY})
endif()
