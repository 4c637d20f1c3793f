#include <voxgrad/core/check.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/dense/dense.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/kernels.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

namespace vox::cuda {

namespace {

using namespace conv;

/// A kernel of the family. It may be for some of the passes only; the others are null.
struct Row {
  std::string_view name;
  bool (*right_for)(const Conv3dProblem&);  // of the passes that it is for
  bool (*pays)(const Conv3dProblem&);       // against the rows below, where it is right
  void (*run)(const Conv3dCall&);           // conv3d and conv_transpose3d
  void (*weight_grad)(const WeightGradCall&) = nullptr;
  std::string_view redo = {};  // the row that computes the problem if this one fails: Note [Redo] in call.h

  bool has(Conv3dPass pass) const {
    return pass == Conv3dPass::weight_grad ? weight_grad != nullptr : run != nullptr;
  }
  bool takes(const Conv3dProblem& p) const;
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
bool rounded_to_bf16(const Conv3dProblem& p) {
  return p.dtype == f32 && p.precision == Float32Precision::medium;
}
bool is_bf16(const Conv3dProblem& p) { return p.dtype == bf16; }
bool is_f16(const Conv3dProblem& p) { return p.dtype == f16; }

bool on_hopper(const Conv3dProblem& p) { return has_wgmma() && axes_fit_32_bits(p.geometry); }
bool transposed(const Conv3dProblem& p) { return p.pass == Conv3dPass::conv_transpose3d; }

/// What a wgmma kernel is right for: numbers of one kind, and the geometries that it takes.
template <bool numbers(const Conv3dProblem&), bool takes(const Conv3dGeometry&, bool transposed)>
bool hopper(const Conv3dProblem& p) {
  return numbers(p) && on_hopper(p) && takes(p.geometry, transposed(p));
}

template <bool numbers(const Conv3dProblem&), class Operand>
bool weight_grad_in_slices(const Conv3dProblem& p) {
  return numbers(p) && on_hopper(p) && weight_grad::takes<Operand>(p.geometry);
}

/// The weight gradient has an operand of its own.
template <bool numbers(const Conv3dProblem&), class Storage, class Operand, class OfWeightGrad>
bool dense_right(const Conv3dProblem& p) {
  if (p.pass != Conv3dPass::weight_grad) return hopper<numbers, dense::takes<Storage, Operand>>(p);
  return numbers(p) && on_hopper(p) && dense::takes_weight_grad<OfWeightGrad>(p.geometry);
}

bool few_channels_right(const Conv3dProblem& p) {
  return p.dtype != f64 && axes_fit_32_bits(p.geometry) &&
         (p.pass == Conv3dPass::weight_grad ? few_channels::takes_weight_grad(p.geometry)
                                            : few_channels::takes(p.geometry, transposed(p)));
}

template <bool numbers(const Conv3dProblem&)>
bool patches_right(const Conv3dProblem& p) {
  return numbers(p) && axes_fit_32_bits(p.geometry) &&
         (p.pass == Conv3dPass::weight_grad ? patches::takes_weight_grad(p.geometry)
                                            : patches::takes(p.geometry, transposed(p)));
}

// ---- Where they pay ---------------------------------------------------------------------------------------

/// While moving the bytes takes longer than the products. The limits are multiply-adds for each element that
/// both grids have: with a kernel of 2, 128 -> 64 channels (102) are level with the kernels below, or faster,
/// 256 -> 128 (205) slower. With a kernel of 1, only 32 -> 2 channels were measured.
bool bound_by_bytes(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  const int64_t small = g.small_channels, big = g.big_channels * g.taps();  // numbers of a coarse cell
  return small * big <= (g.kernel.w == 1 ? 16 : 128) * (small + big);
}

bool eight_channels(const Conv3dProblem& p) {
  return std::min(p.geometry.big_per_group(), p.geometry.small_per_group()) >= 8;
}

/// Tiles are 8 channels deep and wide: with fewer, most of the work is on padding. By TF32 that is still
/// faster than `direct` if a sixteenth of the work is real (22 TFLOP/s in full tiles of 8 in the sweep;
/// `direct` has 2), and in weight_grad, whose `direct` is slower still, always. Kernels that were not
/// measured with fewer than 8 channels do not run with fewer: those of 16-bit tensors (but for weight_grad)
/// and of `highest`, and the bf16 kernels of `medium`, which leaves such problems to the kernels of `high`.
/// (Where few_channels takes the geometry, it comes first.)
bool channels_fill_tiles(const Conv3dProblem& p) {
  if (!tf32(p) && !(is_16_bit(p.dtype) && p.pass == Conv3dPass::weight_grad)) return eight_channels(p);
  const int64_t big = p.geometry.big_per_group(), small = p.geometry.small_per_group();
  const auto padded = [](int64_t channels) { return ceil_div(channels, 8) * 8; };
  return p.pass == Conv3dPass::weight_grad || 16 * big * small >= padded(big) * padded(small);
}

int64_t longest_stride(const Conv3dProblem& p) {
  const Triple& stride = p.geometry.stride;
  return std::max({stride.d, stride.h, stride.w});
}

/// With longer steps than 2 a phase has few taps, so that data in shared memory are used only a few times. In
/// the sweep, with a step of 3, 3x3x3 takes 103 us where mma takes 96, and 4x4x4 142 where mma takes 203. A
/// step of 1 is one phase: what gather and rolling leave of it at `high` (53 calls).
bool strides_within_taps(const Conv3dProblem& p) {
  const Triple& s = p.geometry.stride;
  return channels_fill_tiles(p) && (longest_stride(p) <= 2 || p.geometry.taps() >= 2 * s.d * s.h * s.w);
}
bool with_stride(const Conv3dProblem& p) { return longest_stride(p) > 1 && strides_within_taps(p); }
bool with_any_stride(const Conv3dProblem& p) {  // tensors of 16 bits have only `direct` besides
  return eight_channels(p) && longest_stride(p) > 1;
}
bool with_stride_by_eights(const Conv3dProblem& p) { return eight_channels(p) && with_stride(p); }

double products(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  return static_cast<double>(g.batch * g.small_channels * g.small_cells()) *
         static_cast<double>(g.big_per_group() * g.taps());
}

/// Bringing channels last is a pass over the input, and every tap is read from the L2 cache. So dense is for
/// many channels, and for few cells, whose other kernels leave multiprocessors idle. The limits follow the
/// times in dense/NOTES.md.
bool many_channels(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  const int64_t least = std::min(g.big_per_group(), g.small_per_group()),
                most = std::max(g.big_per_group(), g.small_per_group());
  const int64_t cells = g.batch * g.small_cells();
  if (least < 32 || (most < 64 && cells >= 1 << 14)) return false;
  if (is_16_bit(p.dtype)) return least >= 128 || cells < 1 << 17;
  if (cells >= (least >= 128 ? 1 << 18 : 1 << 17)) return false;
  // The other kernels read f32 where it is: they are slower only if there is more to multiply.
  if (g.taps() == 1) return least >= 256 || (longest_stride(p) == 1 && cells < 1 << 14);
  if (longest_stride(p) == 1 || least >= 128) return true;
  return transposed(p) ? cells < 1 << 15 || (least >= 64 && g.taps() <= 8) : least * g.taps() >= 64 * 27;
}

/// The channels-last kernels work on 64 channels of each side at a time, after two more passes over memory.
/// The limits are those of 39 layers of five networks, with 32 to 640 channels and 4 to 128 cells along an
/// axis.
bool channels_fill_chunks(const Conv3dProblem& p) {
  const int64_t big = p.geometry.big_per_group(), small = p.geometry.small_per_group();
  const double reuse = products(p) * static_cast<double>(big * small);
  if (big >= 64 && small >= 64) return big * small >= 128 * 256 || reuse >= 3.2e13;
  return big >= 64 && small >= 32 && reuse >= (is_16_bit(p.dtype) ? 5e13 : 4e14);
}

/// Where dense pays too, the cycles of both decide. Elsewhere the rivals are flat and rolling. They are
/// slower with 16-bit operands if channels fill rows of 64, or half a row of the input (32 -> 64 channels of
/// 64^3: 1.1 times), and cells fill tiles. By TF32 rolling is as fast (0.94 to 1.09 times in 10 calls).
template <class Storage, class Operand>
bool windows_pay(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  if (many_channels(p))
    return g.kernel.h * g.kernel.w > 1 && dense::windows_pay<Storage, Operand>(g, transposed(p));
  const auto [in, out] = transposed(p) ? std::pair(g.small_per_group(), g.big_per_group())
                                       : std::pair(g.big_per_group(), g.small_per_group());
  const auto filled = [](int64_t channels) { return 10 * channels >= 9 * 64 * ceil_div(channels, 64); };
  const bool read_once = g.kernel.h * g.kernel.w == 1;  // gather needs no pass over f32
  return !std::is_same_v<Operand, Tf32> && (is_16_bit(p.dtype) || !read_once) &&
         g.batch * g.small_cells() >= 1 << 17 && dense::fills_windows(g, transposed(p)) && filled(out) &&
         (in == 32 || filled(in));
}

bool dense_pays(const Conv3dProblem& p) {
  return p.pass == Conv3dPass::weight_grad ? channels_fill_chunks(p) : many_channels(p);
}

/// Where one side has fewer than 8 channels, f32 at `highest` and 16-bit tensors have only `direct` besides.
/// f32 by TF32 has tensor cores, whose tiles are then mostly padding: few_channels is faster up to so many
/// pairs of channels (measured for kernels 1, 3, 4 and 5). 16-bit weight gradients have tensor cores too: for
/// 3x3x3, weight_grad took 0.4 to 0.94 of the time in 5 calls with 32 to 64 pairs, and twice the time with 8
/// and with 16. The factors below are those of the sweep.
bool few_channels_pay(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  const int64_t pairs = g.big_per_group() * g.small_per_group(), stride = longest_stride(p);
  const bool sums = p.pass == Conv3dPass::weight_grad && stride == 1;
  if (sums && !eight_channels(p) &&
      (weight_grad_in_slices<is_bf16, Bf16>(p) || weight_grad_in_slices<is_f16, F16>(p)))
    return pairs < (g.taps() == 1 ? 64 : 32) || products(p) < 1e8;
  if (tf32(p) ? pairs <= (g.taps() == 1 ? 64 : sums ? 32 : 16) : !eight_channels(p)) return true;
  // 1.7 to 5.2 times as fast in 15 calls as `direct`, or flat, which takes 8 phases at most, one by one.
  // (dense takes strides to 4, and is 5 to 17 times as fast as this.)
  if (transposed(p) && stride > 2) return is_16_bit(p.dtype) && !(stride <= 4 && many_channels(p));
  // 1.4 to 3.4 times as fast in 13 calls, and once 0.96.
  const bool at_highest = f32_at_highest(p);
  if (transposed(p) && stride == 2) return g.taps() <= 64 && pairs <= (at_highest ? 24 * 24 : 8 * 8);
  // 1.1 to 3.2 times as fast in 22 calls.
  const bool little = g.taps() > 1 && pairs <= 32 * 32 && products(p) < 1e8;
  return at_highest && sums && (pairs <= 8 * 8 || little);
}

/// Where there are few cells to sum over, and little to do, mma has the results before this kernel has begun
/// to multiply: 1.04 to 3 times as fast in 33 calls of the sweep.
bool weight_grad_pays(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  const bool little = tf32(p) && g.batch * g.small_cells() <= 2048 && products(p) < 1e8;
  return channels_fill_tiles(p) && !little;
}

bool unit_stride(const Conv3dProblem& p) { return channels_fill_tiles(p) && longest_stride(p) == 1; }

bool long_march(const Conv3dProblem& p) {
  return channels_fill_tiles(p) && rolling::pays<float, Tf32>(p.geometry, transposed(p));
}
template <class Storage, class Operand>
bool long_march_16(const Conv3dProblem& p) {
  return eight_channels(p) && rolling::pays<Storage, Operand>(p.geometry, transposed(p));
}

/// A redo is two more launches, which mostly have nothing to do. They cost the host 14 us and the GPU 3, more
/// than F16x3 saves of a small problem.
bool large(const Conv3dProblem& p) { return products(p) >= 3e8; }
bool unit_stride_and_large(const Conv3dProblem& p) { return unit_stride(p) && large(p); }

/// Without steps too, if there are many taps along d, or many taps, and channels for a tile (the sweep, and
/// problem 68: 7.9 ms, and 8.7 by flat_f16x3).
bool with_stride_or_many_taps(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  const bool many_taps =
      transposed(p) ? g.big_per_group() >= 32 && ((g.kernel.d >= 5 && g.kernel.h * g.kernel.w < 25) ||
                                                  (g.taps() >= 75 && g.big_per_group() >= 64))
                    : g.small_per_group() >= 32 && (g.kernel.d >= 5 || g.taps() >= 75);
  return (with_stride(p) || (unit_stride(p) && many_taps)) && large(p) &&
         strided::f16x3_pays(g, transposed(p));
}

/// conv3d with a step along w, if there are enough taps and channels to use what is loaded (kernels of 5 with
/// a step along d or h alone are slower; 8 channels are enough for up to 64 taps: 1.1 to 2.9 times as fast in
/// 6 calls of the sweep, but not for the 105 taps of problem 72). Without steps: small problems, since a
/// block's first results come early, and kernels of few taps, since gather loads little that needs to be used
/// often (all in the sweep).
bool gathering(const Conv3dProblem& p) {
  const Conv3dGeometry& g = p.geometry;
  if (!channels_fill_tiles(p)) return false;
  if (longest_stride(p) > 1)
    return g.stride.w > 1 && g.taps() > 1 && g.small_per_group() > (g.taps() > 64 ? 8 : 7);
  const bool few_taps = g.kernel.d == 1 && g.taps() <= 9;
  return g.groups == 1 &&
         (few_taps || products(p) < (p.precision == Float32Precision::highest ? 6e8 : 1.2e9));
}

/// f32 with a stride has faster kernels (at `highest`, 73 takes 2.57 ms by pairs of f16 numbers, phase by
/// phase).
bool unit_stride_by_eights(const Conv3dProblem& p) { return eight_channels(p) && longest_stride(p) == 1; }

// ---- The table: the first row that suits is taken ---------------------------------------------------------

constexpr Row table[]{
    {"patches_bf16", patches_right<is_bf16>, bound_by_bytes, patches::run<bfloat16>,
     patches::run_weight_grad<bfloat16>},
    {"patches_f16", patches_right<is_f16>, bound_by_bytes, patches::run<float16>,
     patches::run_weight_grad<float16>},
    {"few_channels", few_channels_right, few_channels_pay, few_channels::run, few_channels::run_weight_grad},
    {"windows_bf16_of_f32", hopper<rounded_to_bf16, dense::takes_windows<float, Bf16>>,
     windows_pay<float, Bf16>, dense::run_windows<float, Bf16>},
    {"dense_bf16_of_f32", hopper<rounded_to_bf16, dense::takes<float, Bf16>>, many_channels,
     dense::run<float, Bf16>},
    {"windows_bf16", hopper<is_bf16, dense::takes_windows<bfloat16, Bf16>>, windows_pay<bfloat16, Bf16>,
     dense::run_windows<bfloat16, Bf16>},
    {"dense_bf16", dense_right<is_bf16, bfloat16, Bf16, Bf16>, dense_pays, dense::run<bfloat16, Bf16>,
     dense::run_weight_grad<Bf16>},
    {"windows_f16", hopper<is_f16, dense::takes_windows<float16, F16>>, windows_pay<float16, F16>,
     dense::run_windows<float16, F16>},
    {"dense_f16", dense_right<is_f16, float16, F16, F16>, dense_pays, dense::run<float16, F16>,
     dense::run_weight_grad<F16>},
    {"windows", hopper<tf32, dense::takes_windows<float, Tf32>>, windows_pay<float, Tf32>,
     dense::run_windows<float, Tf32>},
    {"dense", dense_right<tf32, float, Tf32, dense::ScaledF16>, dense_pays, dense::run<float, Tf32>,
     dense::run_weight_grad<dense::ScaledF16>},
    {"weight_grad_bf16", weight_grad_in_slices<is_bf16, Bf16>, weight_grad_pays, nullptr,
     weight_grad::run<Bf16>},
    {"weight_grad_f16", weight_grad_in_slices<is_f16, F16>, weight_grad_pays, nullptr, weight_grad::run<F16>},
    {"weight_grad", weight_grad_in_slices<tf32, Tf32>, weight_grad_pays, nullptr, weight_grad::run<Tf32>},
    {"weight_grad_tf32x3", weight_grad_in_slices<small_f32, Tf32x3>, weight_grad_pays, nullptr,
     weight_grad::run<Tf32x3>, "direct"},
    {"gather", hopper<tf32, gather::takes<Tf32>>, gathering, gather::run<Tf32>},
    {"gather_tf32x3", hopper<f32_at_highest, gather::takes<Tf32x3>>, gathering, gather::run<Tf32x3>, nullptr,
     "direct"},
    {"strided_bf16_of_f32", hopper<rounded_to_bf16, strided::takes<float, Bf16>>, with_stride_by_eights,
     strided::run<float, Bf16>},
    {"strided_bf16", hopper<is_bf16, strided::takes<bfloat16, Bf16>>, with_any_stride,
     strided::run<bfloat16, Bf16>},
    {"strided_f16", hopper<is_f16, strided::takes<float16, F16>>, with_any_stride,
     strided::run<float16, F16>},
    {"strided_f16x3", hopper<f32_at_highest, strided::takes<float, F16x3>>, with_stride_or_many_taps,
     strided::run<float, F16x3>, nullptr, "mma_tf32x3"},
    {"rolling_bf16_of_f32", hopper<rounded_to_bf16, rolling::takes<float, Bf16>>, long_march_16<float, Bf16>,
     rolling::run<float, Bf16>},
    {"rolling_bf16", hopper<is_bf16, rolling::takes<bfloat16, Bf16>>, long_march_16<bfloat16, Bf16>,
     rolling::run<bfloat16, Bf16>},
    {"rolling_f16", hopper<is_f16, rolling::takes<float16, F16>>, long_march_16<float16, F16>,
     rolling::run<float16, F16>},
    {"rolling", hopper<tf32, rolling::takes<float, Tf32>>, long_march, rolling::run<float, Tf32>},
    {"flat_bf16_of_f32", hopper<rounded_to_bf16, flat::takes<float, Bf16>>, unit_stride_by_eights,
     flat::run<float, Bf16>},
    {"flat_bf16", hopper<is_bf16, flat::takes<bfloat16, Bf16>>, eight_channels, flat::run<bfloat16, Bf16>},
    {"flat_f16", hopper<is_f16, flat::takes<float16, F16>>, eight_channels, flat::run<float16, F16>},
    {"flat_f16x3", hopper<f32_at_highest, flat::takes<float, F16x3>>, unit_stride_and_large,
     flat::run<float, F16x3>, nullptr, "mma_tf32x3"},
    {"strided", hopper<tf32, strided::takes<float, Tf32>>, strides_within_taps, strided::run<float, Tf32>},
    {"mma", tf32, channels_fill_tiles, mma::run<Tf32>, mma::run_weight_grad},
    {"mma_tf32x3", small_f32, channels_fill_tiles, mma::run<Tf32x3>, nullptr, "direct"},
    {"direct", anything, anything, conv::direct, conv::direct_weight_grad},
};

thread_local const Row* forced[3];  // by pass

const Row*& forced_for(Conv3dPass pass) { return forced[static_cast<int>(pass)]; }

const char* name_of(Conv3dPass pass) {
  constexpr const char* names[]{"conv3d", "conv_transpose3d", "conv3d_weight_grad"};
  return names[static_cast<int>(pass)];
}

const Row* find(std::string_view name) {
  const Row* const found = std::ranges::find(table, name, &Row::name);
  return found == std::end(table) ? nullptr : found;
}

const Row& row(std::string_view name) {
  if (const Row* found = find(name)) return *found;
  std::string known;
  for (const Row& r : table) known += (known.empty() ? "" : ", ") + std::string(r.name);
  throw ValueError("conv3d kernels: there is none named \"" + std::string(name) + "\"; the table has " +
                   known);
}

/// A row that may fail takes what its redo takes too.
bool Row::takes(const Conv3dProblem& p) const {
  return has(p.pass) && right_for(p) && (redo.empty() || find(redo)->takes(p));
}

const Row* first_that_suits(const Conv3dProblem& problem) {  // direct suits all
  return std::ranges::find_if(table, [&](const Row& r) { return r.suits(problem); });
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
  return *recall<first_that_suits>(problem);
}

/// f(row, call) for the row, and for those that compute the problem if it fails.
template <class Call, class F>
void run_with_redos(const Row& first, const Tensor& output, Call call, F f) {
  int64_t redos = 0;
  for (const Row* r = find(first.redo); r; r = find(r->redo)) ++redos;
  const Tensor flags = redos ? zeros({redos}, {.dtype = i64, .device = output.device()}) : Tensor();
  const Row* r = &first;
  for (int64_t i = 0; i < redos; ++i, r = find(r->redo)) {
    call.failed = flags.select(0, i);
    f(*r, call);
    call.only_if = call.failed;
  }
  call.failed = {};
  f(*r, call);
}

void run_pass(Conv3dPass pass, const Tensor& input, const Tensor& weight, const Tensor& bias,
              const Tensor& output, const Conv3dGeometry& g, Float32Precision precision) {
  const Row& first = chosen({pass, g, output.dtype(), precision});
  if (g.batch == 0) return;
  run_with_redos(first, output,
                 Conv3dCall{pass == Conv3dPass::conv_transpose3d, input, weight, bias, output, g},
                 [](const Row& r, const Conv3dCall& call) { r.run(call); });
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
  run_pass(Conv3dPass::conv3d, big, weight, bias, small, g, precision);
}

void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision precision) {
  run_pass(Conv3dPass::conv_transpose3d, small, weight, bias, big, g, precision);
}

void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision precision) {
  run_with_redos(chosen({Conv3dPass::weight_grad, g, dweight.dtype(), precision}), dweight,
                 WeightGradCall{big, small, dweight, g},
                 [](const Row& r, const WeightGradCall& call) { r.weight_grad(call); });
  if (dbias.defined()) bias_grad(bias_of == Grid::big ? big : small, dbias);
}

}  // namespace vox::cuda
