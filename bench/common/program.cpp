#include "shim.h"

namespace bench {

Program::Program(const VoxgradStep* steps, int64_t count, size_t operands) {
  for (int64_t i = 0; i < count; ++i) {
    const auto op = vox::capi::ops().find(steps[i].op);
    vox::check<vox::ValueError>(op != vox::capi::ops().end(), "bench: there is no op ", steps[i].op);
    steps_.push_back({op->second, {steps[i].arguments, steps[i].arguments + steps[i].count}, {}});
  }
  // Each result is dropped after its last use, as a temporary of a C++ expression is.
  std::map<size_t, size_t> last_use;
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const VoxgradArgument& a : steps_[i].arguments) {
      if (a.kind != voxgrad_result) continue;
      const auto* places = a.count == 0 ? &a.integer : static_cast<const int64_t*>(a.data);
      for (int64_t k = 0; k < std::max<int64_t>(a.count, 1); ++k)
        last_use[static_cast<size_t>(places[k])] = i;
    }
  }
  for (const auto& [place, step] : last_use) {
    if (place >= operands) steps_[step].dropped.push_back(place);
  }
}

vox::Tensor Program::operator()(Tensors values) const {
  for (const Step& step : steps_) {
    vox::capi::Values arguments;
    for (const VoxgradArgument& a : step.arguments) arguments.push_back(vox::capi::value_of(a, values));
    const Tensors results = step.op(arguments);
    values.insert(values.end(), results.begin(), results.end());
    for (const size_t place : step.dropped) values[place] = {};
  }
  return values.back();
}

}  // namespace bench
