#include <voxgrad/ops/cpu/interpolate_interleaved.h>

#include <voxgrad/ops/cpu/interleaved_passes.h>
#include <voxgrad/ops/cpu/interpolate_pass.h>

namespace vox::cpu {
namespace {

template <template <class> class Pass>
bool all_passes(const char* function, const Tensor& x, const std::vector<int64_t>& order,
                const InterpolateAxes& axes, const Tensor& y) {
  if (!has_interleaved_planes(x) || x.numel() < y.numel()) return false;
  bool pays = false;
  visit_floating(function, y.dtype(), [&]<class T>(T) {
    InterleavedPasses<T, Pass<T>> passes(x, y);
    for (const int64_t dim : order) passes.add(dim, Pass<T>(axes[static_cast<size_t>(dim)]));
    pays = passes.reads_rows();
    if (pays) passes.run();
  });
  return pays;
}

}  // namespace

bool interpolate_interleaved(const Tensor& x, const std::vector<int64_t>& order, const InterpolateAxes& axes,
                             Tensor& y) {
  return all_passes<ForwardPass>("interpolate", x, order, axes, y);
}

bool interpolate_interleaved_adjoint(const Tensor& grad_y, const std::vector<int64_t>& order,
                                     const InterpolateAxes& axes, Tensor& grad_x) {
  return all_passes<AdjointPass>("interpolate_adjoint", grad_y, order, axes, grad_x);
}

}  // namespace vox::cpu
