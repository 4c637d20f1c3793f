#include <voxgrad/core/check.h>
#include <voxgrad/cuda/conv3d/hopper.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/recent.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/cuda/conv3d/weight_grad_plan.h>
#include <voxgrad/ops/kernels.h>

#include <algorithm>
#include <string>

namespace vox::cuda {

namespace {

/// A kernel may be for some of the passes only; the others are null.
struct Row {
  std::string_view name;
  bool (*right_for)(const Conv3dProblem&);  // of the passes that it is for
  bool (*pays)(const Conv3dProblem&);       // against what is below, where it is right
  Conv3dKernel* conv3d;
  Conv3dKernel* conv_transpose3d;
  WeightGradKernel* weight_grad;

  bool has(Conv3dPass pass) const {
    return pass == Conv3dPass::conv3d             ? conv3d != nullptr
           : pass == Conv3dPass::conv_transpose3d ? conv_transpose3d != nullptr
                                                  : weight_grad != nullptr;
  }
  bool takes(const Conv3dProblem& p) const { return has(p.pass) && right_for(p); }
  bool suits(const Conv3dProblem& p) const { return takes(p) && pays(p); }
};

// ---- What the kernels can take ----------------------------------------------------------------------------

bool anything(const Conv3dProblem&) { return true; }

/// Whether every index of the rule along an axis, the number of a tap, and what a thread adds to it on the
/// way, fits 32 bits.
bool axes_fit_32_bits(const Conv3dGeometry& g) {
  constexpr int64_t limit = int64_t{1} << 29;
  if (g.taps() > limit) return false;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t largest = std::max(
        {g.big[axis], g.small[axis], g.kernel[axis], g.stride[axis], g.padding[axis], g.dilation[axis]});
    if (largest > limit) return false;
    if (g.small[axis] * g.stride[axis] > limit || g.kernel[axis] * g.dilation[axis] > limit) return false;
  }
  return true;
}

bool small_f32(const Conv3dProblem& p) { return p.dtype == f32 && axes_fit_32_bits(p.geometry); }
bool tf32(const Conv3dProblem& p) { return small_f32(p) && p.precision != Float32Precision::highest; }
bool f32_at_highest(const Conv3dProblem& p) {
  return p.dtype == f32 && p.precision == Float32Precision::highest;
}
bool bf16_or_rounded(const Conv3dProblem& p) {
  return p.dtype == bf16 || (p.dtype == f32 && p.precision == Float32Precision::medium);
}
bool is_f16(const Conv3dProblem& p) { return p.dtype == f16; }

bool on_hopper(const Conv3dProblem& p) { return has_wgmma() && axes_fit_32_bits(p.geometry); }
bool transposed(const Conv3dProblem& p) { return p.pass == Conv3dPass::conv_transpose3d; }

/// What a kernel of wgmma is right for: numbers of one kind, and the geometries that it takes.
template <bool numbers(const Conv3dProblem&), Conv3dTakes takes>
bool hopper(const Conv3dProblem& p) {
  return numbers(p) && on_hopper(p) && takes(p.geometry, transposed(p));
}

bool strided_bf16(const Conv3dProblem& p) {
  return bf16_or_rounded(p) && on_hopper(p) && strided_wgmma_bf16_takes(p.geometry, transposed(p), p.dtype);
}

bool weight_grad_in_slices(const Conv3dProblem& p) {
  return (tf32(p) || is_16_bit(p.dtype)) && on_hopper(p) && weight_grad_plan(p.geometry, false).has_value();
}

bool weight_grad_in_split_slices(const Conv3dProblem& p) {
  return p.dtype == f32 && on_hopper(p) && weight_grad_plan(p.geometry, true).has_value();
}

bool few_channels(const Conv3dProblem& p) {
  return p.dtype != f64 && axes_fit_32_bits(p.geometry) &&
         (p.pass == Conv3dPass::weight_grad ? few_channels_weight_grad_takes(p.geometry)
                                            : few_channels_takes(p.geometry, transposed(p)));
}

// ---- Where they pay ---------------------------------------------------------------------------------------

bool eight_channels(const Conv3dProblem& p) {
  return std::min(p.geometry.big_per_group(), p.geometry.small_per_group()) >= 8;
}

/// Tiles are 8 channels deep and wide: with fewer, most of the work is on padding. Against `direct` that pays
/// by TF32 from a sixteenth of real work on (the sweep: 22 TFLOP/s in full tiles of 8, and 2), and in
/// weight_grad, whose `direct` is slower still, always. What was not measured with fewer than 8 does not run
/// with fewer: 16-bit tensors, `highest`, and the bf16 kernel of `medium`, which then takes those of `high`.
/// (Where few_channels takes the geometry, it is before all this.)
bool channels_fill_tiles(const Conv3dProblem& p) {
  if (!tf32(p)) return eight_channels(p);
  const int64_t big = p.geometry.big_per_group(), small = p.geometry.small_per_group();
  const auto padded = [](int64_t channels) { return (channels + 7) / 8 * 8; };
  return p.pass == Conv3dPass::weight_grad || 16 * big * small >= padded(big) * padded(small);
}

int64_t longest_stride(const Conv3dProblem& p) {
  const Triple& stride = p.geometry.stride;
  return std::max({stride.d, stride.h, stride.w});
}

/// With longer steps than 2 a phase has few taps, and what is brought to shared memory is used as often as
/// that: 3x3x3 takes 103 us with a step of 3 where rung 1 takes 96, 4x4x4 142 and 203 (the sweep).
bool with_stride(const Conv3dProblem& p) {
  const Triple& s = p.geometry.stride;
  return channels_fill_tiles(p) &&
         (longest_stride(p) == 2 || (longest_stride(p) > 2 && p.geometry.taps() >= 2 * s.d * s.h * s.w));
}
bool with_stride_16(const Conv3dProblem& p) {  // tensors of 16 bits have nothing else but `direct`
  return eight_channels(p) && (p.dtype == f32 ? with_stride(p) : longest_stride(p) > 1);
}

/// Where one side has fewer than 8, f32 at `highest` and 16-bit tensors have only `direct` besides. For f32
/// by TF32 it is tensor cores whose tiles are padding, and these win up to so many pairs of channels
/// (measured for kernels 1, 3, 4 and 5).
bool few_channels_pay(const Conv3dProblem& p) {
  if (!tf32(p)) return !eight_channels(p);
  const bool many_sums = p.pass == Conv3dPass::weight_grad && longest_stride(p) == 1;
  const int64_t most = p.geometry.taps() == 1 ? 64 : many_sums ? 32 : 16;
  return p.geometry.big_per_group() * p.geometry.small_per_group() <= most;
}

bool unit_stride(const Conv3dProblem& p) { return channels_fill_tiles(p) && longest_stride(p) == 1; }

bool long_march(const Conv3dProblem& p) {
  return channels_fill_tiles(p) && rolling_wgmma_pays(p.geometry, transposed(p));
}
bool long_march_16(const Conv3dProblem& p) {
  return eight_channels(p) && rolling_wgmma_16_pays(p.geometry, transposed(p), p.dtype);
}

double products(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  return static_cast<double>(g.batch * g.small_channels * g.small_cells()) *
         static_cast<double>(g.big_per_group() * g.taps());
}

/// Two more launches, which have nothing to do, cost the host 14 us and the GPU 3, more than what is saved of
/// a small problem.
bool large(const Conv3dProblem& p) { return products(p) >= 3e8; }
bool unit_stride_and_large(const Conv3dProblem& p) { return unit_stride(p) && large(p); }

/// Without steps too, where there are many taps along d, or many taps, and channels for a tile (the sweep,
/// and problem 68: 7.9 ms for 8.7).
bool with_stride_or_many_taps(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  const bool many_taps =
      transposed(p) ? g.big_per_group() >= 32 && ((g.kernel.d >= 5 && g.kernel.h * g.kernel.w < 25) ||
                                                  (g.taps() >= 75 && g.big_per_group() >= 64))
                    : g.small_per_group() >= 32 && (g.kernel.d >= 5 || g.taps() >= 75);
  return (with_stride(p) || (unit_stride(p) && many_taps)) && large(p) &&
         strided_wgmma_f16x3_pays(g, transposed(p));
}

/// conv3d with a step along w (kernels of 5 that have one along d or h alone are slower), if there are taps
/// and channels to make use of what is brought. Without steps small problems, of which a block's first
/// results come early, and kernels of few taps, which brings little to be used often (the sweep).
bool gathering(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  if (!channels_fill_tiles(p)) return false;
  if (longest_stride(p) > 1) return g.stride.w > 1 && g.taps() > 1 && g.small_per_group() > 8;
  const bool few_taps = g.kernel.d == 1 && g.taps() <= 9;
  return g.groups == 1 &&
         (few_taps || products(p) < (p.precision == Float32Precision::highest ? 6e8 : 1.2e9));
}

/// A stride of f32 has better kernels (at `highest`, 73 takes 2.57 ms by pairs of f16 numbers, phase after
/// phase).
bool bf16_or_unit_stride(const Conv3dProblem& p) {
  return eight_channels(p) && (p.dtype == bf16 || longest_stride(p) == 1);
}

// ---- The table: the first row that suits is taken ---------------------------------------------------------

constexpr Row table[]{
    {"few_channels", few_channels, few_channels_pay, conv3d_few_channels, conv_transpose3d_few_channels,
     conv3d_weight_grad_few_channels},
    {"weight_grad_wgmma", weight_grad_in_slices, channels_fill_tiles, nullptr, nullptr,
     conv3d_weight_grad_wgmma},
    {"weight_grad_wgmma_split", weight_grad_in_split_slices, channels_fill_tiles, nullptr, nullptr,
     conv3d_weight_grad_wgmma_split},
    {"gather_wgmma", hopper<tf32, gather_wgmma_takes>, gathering, conv3d_gather_wgmma,
     conv_transpose3d_gather_wgmma, nullptr},
    {"gather_wgmma_split", hopper<f32_at_highest, gather_wgmma_split_takes>, gathering,
     conv3d_gather_wgmma_split, conv_transpose3d_gather_wgmma_split, nullptr},
    {"strided_wgmma_bf16", strided_bf16, with_stride_16, conv3d_strided_wgmma_bf16,
     conv_transpose3d_strided_wgmma_bf16, nullptr},
    {"strided_wgmma_f16", hopper<is_f16, strided_wgmma_f16_takes>, with_stride_16, conv3d_strided_wgmma_f16,
     conv_transpose3d_strided_wgmma_f16, nullptr},
    {"strided_wgmma", hopper<tf32, strided_wgmma_takes>, with_stride, conv3d_strided_wgmma,
     conv_transpose3d_strided_wgmma, nullptr},
    {"strided_wgmma_f16x3", hopper<f32_at_highest, strided_wgmma_f16x3_takes>, with_stride_or_many_taps,
     conv3d_strided_wgmma_f16x3, conv_transpose3d_strided_wgmma_f16x3, nullptr},
    {"rolling_wgmma_bf16", hopper<bf16_or_rounded, rolling_wgmma_16_takes>, long_march_16,
     conv3d_rolling_wgmma_bf16, conv_transpose3d_rolling_wgmma_bf16, nullptr},
    {"rolling_wgmma_f16", hopper<is_f16, rolling_wgmma_16_takes>, long_march_16, conv3d_rolling_wgmma_f16,
     conv_transpose3d_rolling_wgmma_f16, nullptr},
    {"rolling_wgmma", hopper<tf32, rolling_wgmma_takes>, long_march, conv3d_rolling_wgmma,
     conv_transpose3d_rolling_wgmma, nullptr},
    {"implicit_gemm_wgmma_bf16", hopper<bf16_or_rounded, implicit_gemm_wgmma_16_takes>, bf16_or_unit_stride,
     conv3d_implicit_gemm_wgmma_bf16, conv_transpose3d_implicit_gemm_wgmma_bf16, nullptr},
    {"implicit_gemm_wgmma_f16", hopper<is_f16, implicit_gemm_wgmma_16_takes>, channels_fill_tiles,
     conv3d_implicit_gemm_wgmma_f16, conv_transpose3d_implicit_gemm_wgmma_f16, nullptr},
    {"implicit_gemm_wgmma_f16x3", hopper<f32_at_highest, implicit_gemm_wgmma_f16x3_takes>,
     unit_stride_and_large, conv3d_implicit_gemm_wgmma_f16x3, conv_transpose3d_implicit_gemm_wgmma_f16x3,
     nullptr},
    {"implicit_gemm_wgmma_split", hopper<f32_at_highest, implicit_gemm_wgmma_split_takes>, unit_stride,
     conv3d_implicit_gemm_wgmma_split, conv_transpose3d_implicit_gemm_wgmma_split, nullptr},
    {"implicit_gemm_wgmma", hopper<tf32, implicit_gemm_wgmma_takes>, unit_stride, conv3d_implicit_gemm_wgmma,
     conv_transpose3d_implicit_gemm_wgmma, nullptr},
    {"implicit_gemm_mma", tf32, channels_fill_tiles, conv3d_implicit_gemm_mma,
     conv_transpose3d_implicit_gemm_mma, conv3d_weight_grad_mma},
    {"implicit_gemm_mma_split", small_f32, channels_fill_tiles, conv3d_implicit_gemm_mma_split,
     conv_transpose3d_implicit_gemm_mma_split, nullptr},
    {"direct", anything, anything, conv3d_direct, conv_transpose3d_direct, conv3d_weight_grad_direct},
};

thread_local const Row* forced[3];  // by pass

const Row*& forced_for(Conv3dPass pass) { return forced[static_cast<int>(pass)]; }

const char* name_of(Conv3dPass pass) {
  constexpr const char* names[]{"conv3d", "conv_transpose3d", "conv3d_weight_grad"};
  return names[static_cast<int>(pass)];
}

const Row& row(std::string_view name) {
  const auto* found = std::ranges::find(table, name, &Row::name);
  std::string known;
  for (const Row& r : table) known += (known.empty() ? "" : ", ") + std::string(r.name);
  check<ValueError>(found != std::end(table), "conv3d kernels: there is none named \"", name,
                    "\"; the table has ", known);
  return *found;
}

const Row& chosen(const Conv3dProblem& problem) {
  if (const Row* only = forced_for(problem.pass)) {
    const Conv3dGeometry& g = problem.geometry;
    check<ValueError>(only->takes(problem), name_of(problem.pass), ": the forced kernel \"", only->name,
                      "\" does not take ", problem.dtype, " at precision ",
                      static_cast<int>(problem.precision), " (0 highest, 1 high, 2 medium), big ",
                      g.big_shape(), ", small ", g.small_shape(), ", weight ", g.weight_shape(), ", stride ",
                      g.stride, ", dilation ", g.dilation);
    return *only;
  }
  thread_local Recent<Conv3dProblem, const Row*> recent;
  return *recent.of(problem, [&] {
    return std::ranges::find_if(table, [&](const Row& r) { return r.suits(problem); });  // direct suits all
  });
}

}  // namespace

std::vector<std::string_view> conv3d_kernel_names() {
  std::vector<std::string_view> names;
  for (const Row& r : table) names.push_back(r.name);
  return names;
}

bool conv3d_kernel_takes(std::string_view name, const Conv3dProblem& problem) {
  return row(name).takes(problem);
}

std::string_view chosen_conv3d_kernel(const Conv3dProblem& problem) { return chosen(problem).name; }

ForceConv3dKernel::ForceConv3dKernel(std::string_view name, std::initializer_list<Conv3dPass> passes) {
  const Row& only = row(name);
  std::ranges::copy(forced, previous_);
  for (const Conv3dPass pass : passes) forced_for(pass) = &only;
}

ForceConv3dKernel::~ForceConv3dKernel() {
  for (int i = 0; i < 3; ++i) forced[i] = static_cast<const Row*>(previous_[i]);
}

// ---- The entries of ops/kernels.h ------------------------------------------------------------------

void conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small, Conv3dGeometry g,
            Float32Precision precision) {
  chosen({Conv3dPass::conv3d, g, small.dtype(), precision}).conv3d(big, weight, bias, small, g);
}

void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision precision) {
  chosen({Conv3dPass::conv_transpose3d, g, big.dtype(), precision})
      .conv_transpose3d(small, weight, bias, big, g);
}

void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision precision) {
  chosen({Conv3dPass::weight_grad, g, dweight.dtype(), precision})
      .weight_grad(big, small, dweight, dbias, bias_of, g);
}

}  // namespace vox::cuda
