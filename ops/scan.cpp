#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/along.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/scan.h>
#include <voxgrad/ops/shaping.h>

// Both scans are the recurrence y_k = a_k y_{k-1} + b_k along the last dimension, with y_0 = b_0:
//
//   cumsum    a = 1, b = x
//   cumprod   a = x, b = x_0, 0, 0, ...
//
// Its gradient is a recurrence in the other direction, s_k = a_{k+1} s_{k+1} + g_k:  db = s, da_k = s_k
// y_{k-1}. There is no division, so zeros are no special case, and gradients of any order are recurrences
// again.

namespace vox {

namespace {

constexpr ByDevice kernel{"cumsum", in_f32<&cpu::recurrence>, VOX_CUDA(in_f32<&cuda::recurrence>)};

/// y_k = x_{k-1}, y_0 = 0.
Tensor shifted(const Tensor& x) { return pad(x.slice(-1, 0, x.size(-1) - 1), {1, 0}); }

Tensor recurrence(const char* function, const Tensor& a, const Tensor& b, bool reverse);

struct RecurrenceNode final : autograd::Node {
  explicit RecurrenceNode(const char* name) : name_(name) {}
  const char* name_;
  bool reverse_ = false;
  autograd::SavedTensor saved_a_{this}, saved_y_{this};
  const char* name() const override { return name_; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor a = saved_a_.get(), s = recurrence(name_, a, *g[0], !reverse_);
    return {if_needed(0,
                      [&] {
                        const Tensor y = saved_y_.get();
                        return reverse_ ? shifted(s) * y : s * shifted(y);
                      }),
            s};
  }
};

Tensor recurrence(const char* function, const Tensor& a, const Tensor& b, bool reverse) {
  Tensor y = detail::empty_for(function, b.shape(), b.options());
  if (y.numel() > 0)
    kernel.on(y.device(), function)(a.defined() ? a.detach().contiguous() : a, b.detach().contiguous(),
                                    reverse, y);
  if (auto node = autograd::record<RecurrenceNode>({a, b}, y, function)) {
    node->reverse_ = reverse;
    node->saved_a_.save(a);
    if (a.defined()) node->saved_y_.save(y);
  }
  return y;
}

Tensor summable(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(i64); }

}  // namespace

Tensor cumsum(const Tensor& x, Int dim) {
  return detail::along("cumsum", x, dim,
                       [](const Tensor& row) { return recurrence("cumsum", {}, summable(row), false); });
}

Tensor cumprod(const Tensor& x, Int dim) {
  return detail::along("cumprod", x, dim, [](const Tensor& row) {
    const Tensor a = summable(row);
    const int64_t n = a.size(-1);
    // Padded by -0, because adding it changes nothing, not even the sign of a product of 0.
    return recurrence("cumprod", a, n > 1 ? pad(a.slice(-1, 0, 1), {0, n - 1}, -0.0) : a, false);
  });
}

}  // namespace vox
