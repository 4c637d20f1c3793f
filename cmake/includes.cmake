# <voxgrad/...> in the build tree: a folder of links into the source tree, beside the generated headers. It has the same
# layout as the installed one. (One link to the source root would make a cycle with a build folder inside it.) cuda/ is
# private and has a folder of its own, so that users cannot include it by accident.

set(VOXGRAD_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
set(VOXGRAD_PRIVATE_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include_private)
set(VOXGRAD_PUBLIC_FOLDERS core autograd ops nn watch)
if(VOXGRAD_DIST)
  list(APPEND VOXGRAD_PUBLIC_FOLDERS dist)
endif()

file(MAKE_DIRECTORY ${VOXGRAD_INCLUDE_DIR}/voxgrad ${VOXGRAD_PRIVATE_INCLUDE_DIR}/voxgrad)
foreach(name IN LISTS VOXGRAD_PUBLIC_FOLDERS ITEMS voxgrad.h)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${name} ${VOXGRAD_INCLUDE_DIR}/voxgrad/${name} SYMBOLIC)
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/cuda ${VOXGRAD_PRIVATE_INCLUDE_DIR}/voxgrad/cuda SYMBOLIC)

configure_file(cmake/version.h.in ${VOXGRAD_INCLUDE_DIR}/voxgrad/version.h @ONLY)
configure_file(cmake/config.h.in ${VOXGRAD_INCLUDE_DIR}/voxgrad/config.h @ONLY)
