#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "value.h"

namespace vox::capi {

/// An op by name; it may have several results.
using Op = std::function<std::vector<Tensor>(const Values&)>;

/// voxgrad's public ops, by the name that their errors begin with. An argument list is that of the C++
/// function (Note [Values]); where there are overloads, the kinds of the values choose.
const std::map<std::string, Op>& ops();

}  // namespace vox::capi
