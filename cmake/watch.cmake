# The library voxgrad_watch (alias voxgrad::watch): vox::Watch, which observes the tape, and the pages that show it.

file(GLOB VOXGRAD_NODE_FILES CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/ops/*.cpp ${PROJECT_SOURCE_DIR}/ops/*.h
  ${PROJECT_SOURCE_DIR}/autograd/accumulate_grad.cpp)
include(cmake/node_sources.cmake)

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/watch/*.cpp)
add_library(voxgrad_watch ${sources} ${node_sources})
add_library(voxgrad::watch ALIAS voxgrad_watch)
set_target_properties(voxgrad_watch PROPERTIES EXPORT_NAME watch VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
voxgrad_options(voxgrad_watch)
voxgrad_exports(voxgrad_watch)
target_link_libraries(voxgrad_watch PUBLIC voxgrad PRIVATE $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
