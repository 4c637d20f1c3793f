# The code of the nodes in VOXGRAD_NODE_FILES, which pages of vox::write_html quote: a source that is called node_sources.
set(node_sources ${PROJECT_BINARY_DIR}/generated/node_sources.cpp)
set(page ${PROJECT_SOURCE_DIR}/watch/page.html)
set(script ${PROJECT_SOURCE_DIR}/watch/node_sources.cmake)
set(depends ${VOXGRAD_NODE_FILES})
list(TRANSFORM depends PREPEND ${PROJECT_SOURCE_DIR}/)
add_custom_command(OUTPUT ${node_sources}
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${PROJECT_SOURCE_DIR} "-DFILES=${VOXGRAD_NODE_FILES}" -DPAGE=${page}
    -DOUTPUT=${node_sources} -P ${script}
  DEPENDS ${depends} ${page} ${script}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
