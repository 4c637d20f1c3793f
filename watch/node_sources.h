#pragma once

#include <string>
#include <vector>

#include <voxgrad/watch/watch.h>

namespace vox::detail {

/// The code of one type of node, as watch/node_sources.cmake found it in the sources of this build.
struct NodeSource {
  const char* type;   ///< "SiluNode", or the op's name if linear() records it
  const char* where;  ///< "ops/unary.cpp:170"
  const char* code;   ///< from `struct`, `template` before it, or `return linear(`, to the closing brace
};
const std::vector<NodeSource>& node_sources();

/// The recording as JSON, as watch/page.html reads it; safe inside a script element.
std::string json_text(const Recording& recording);

/// The text of watch/page.html.
extern const char* const watch_page;

}  // namespace vox::detail
