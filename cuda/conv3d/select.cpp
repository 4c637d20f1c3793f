#include <voxgrad/core/check.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/cuda/conv3d/work.h>
#include <voxgrad/ops/kernels.h>

#include <algorithm>
#include <string>
#include <utility>

namespace vox::cuda {

namespace {

using namespace conv;
using patches::Parts, patches::Whole;

/// A kernel of the family. It may be for some of the passes only; the others are null.
struct Row {
  struct Forward {  // conv3d and conv_transpose3d
    ForwardWork* work = nullptr;
    void (*run)(const Conv3dCall&) = nullptr;
  };
  struct WeightGrad {
    WeightGradWork* work = nullptr;
    void (*run)(const WeightGradCall&) = nullptr;
  };

  std::string_view name;
  bool (*accepts)(const Conv3dProblem&);  // by dtype and precision
  Numbers numbers;  // what its work counts with, not always its arithmetic: f16 of f32 counts as TF32
  bool wgmma;       // needed
  Forward forward = {};
  WeightGrad weight_grad = {};
  std::string_view redo = {};  // the row that computes the problem if this one fails: Note [Redo] in call.h

  std::optional<Work> work(const Conv3dProblem& p, const Machine& machine) const;
};

// ---- Numbers ----------------------------------------------------------------------------------------------

bool all_numbers(const Conv3dProblem&) { return true; }
bool up_to_32_bits(const Conv3dProblem& p) { return p.dtype != f64; }
bool is_f32(const Conv3dProblem& p) { return p.dtype == f32; }
bool is_bf16(const Conv3dProblem& p) { return p.dtype == bf16; }
bool is_f16(const Conv3dProblem& p) { return p.dtype == f16; }
bool at_highest(const Conv3dProblem& p) { return is_f32(p) && p.precision == Float32Precision::highest; }
bool rounded_to_tf32(const Conv3dProblem& p) { return is_f32(p) && !at_highest(p); }
bool rounded_to_bf16(const Conv3dProblem& p) { return is_f32(p) && p.precision == Float32Precision::medium; }

/// few_channels has one row for three dtypes.
void run_few_channels(const Conv3dCall& call) {
  using namespace few_channels;
  const DType dtype = call.output.dtype();
  (dtype == bf16 ? run<bfloat16> : dtype == f16 ? run<float16> : run<float>)(call);
}
void run_few_channels_weight_grad(const WeightGradCall& call) {
  using namespace few_channels;
  const DType dtype = call.dweight.dtype();
  (dtype == bf16  ? run_weight_grad<bfloat16>
   : dtype == f16 ? run_weight_grad<float16>
                  : run_weight_grad<float>)(call);
}

// ---- The table --------------------------------------------------------------------------------------------

constexpr bool hopper = true, any_gpu = false;

/// Of the rows that support a problem, the one of least predicted time computes it; the order means nothing.
/// Which one that is cannot be read off the table: it follows from the plan of each row, by its work
/// (work.cpp) and prices (prices.inc). `bench_conv3d_choice` says it for any layer, with the time of each
/// kind of work. {forward} and {weight gradient} are what says the work, and what runs.
// clang-format off
constexpr Row table[]{
    {"direct",              all_numbers,     tf32,        any_gpu, {direct_work, direct},
     {direct_weight_grad_work, direct_weight_grad}},
    {"few_channels",        up_to_32_bits,   tf32,        any_gpu, {few_channels_work, run_few_channels},
     {few_channels_weight_grad_work, run_few_channels_weight_grad}},
    {"patches_bf16",        is_bf16,         of_16_bits,  any_gpu, {patches_work, patches::run<Whole<bfloat16>>},
     {patches_weight_grad_work, patches::run_weight_grad<Whole<bfloat16>>}},
    {"patches_f16",         is_f16,          of_16_bits,  any_gpu, {patches_work, patches::run<Whole<float16>>},
     {patches_weight_grad_work, patches::run_weight_grad<Whole<float16>>}},
    {"patches_bf16x3",      rounded_to_tf32, bf16x3,      any_gpu, {patches_work, patches::run<Parts<2>>},
     {patches_weight_grad_work, patches::run_weight_grad<Parts<2>>}, "direct"},
    {"patches_bf16x6",      at_highest,      bf16x6,      any_gpu, {patches_work, patches::run<Parts<3>>},
     {patches_weight_grad_work, patches::run_weight_grad<Parts<3>>}, "direct"},
    {"mma",                 rounded_to_tf32, tf32,        any_gpu, {mma_work, mma::run<float, F16OfF32>},
     {mma_weight_grad_work, mma::run_weight_grad<ScaledF16>}},
    {"mma_bf16_of_f32",     rounded_to_bf16, bf16_of_f32, any_gpu, {mma_work, mma::run<float, Bf16>}},
    {"mma_bf16",            is_bf16,         of_16_bits,  any_gpu, {mma_work, mma::run<bfloat16, Bf16>},
     {mma_weight_grad_work, mma::run_weight_grad<Bf16>}},
    {"mma_f16",             is_f16,          of_16_bits,  any_gpu, {mma_work, mma::run<float16, F16>},
     {mma_weight_grad_work, mma::run_weight_grad<F16>}},
    {"mma_f16x3",           at_highest,      f16x3,       any_gpu, {mma_work, mma::run<float, F16Pair>},
     {mma_weight_grad_work, mma::run_weight_grad<F16Pair>}, "direct"},

    {"rolling",             rounded_to_tf32, tf32,        hopper,  {rolling_work, rolling::run<float, Tf32>}},
    {"rolling_bf16_of_f32", rounded_to_bf16, bf16_of_f32, hopper,  {rolling_work, rolling::run<float, Bf16>}},
    {"rolling_bf16",        is_bf16,         of_16_bits,  hopper,  {rolling_work, rolling::run<bfloat16, Bf16>}},
    {"rolling_f16",         is_f16,          of_16_bits,  hopper,  {rolling_work, rolling::run<float16, F16>}},
    {"strided",             rounded_to_tf32, tf32,        hopper,  {strided_work, strided::run<float, Tf32>}},
    {"strided_bf16_of_f32", rounded_to_bf16, bf16_of_f32, hopper,  {strided_work, strided::run<float, Bf16>}},
    {"strided_bf16",        is_bf16,         of_16_bits,  hopper,  {strided_work, strided::run<bfloat16, Bf16>}},
    {"strided_f16",         is_f16,          of_16_bits,  hopper,  {strided_work, strided::run<float16, F16>}},
    {"strided_f16x3",       at_highest,      f16x3,       hopper,  {strided_work, strided::run<float, F16x3>},
     {}, "mma_f16x3"},
    {"gather",              rounded_to_tf32, tf32,        hopper,  {gather_work, gather::run<Tf32>}},
    {"gather_tf32x3",       at_highest,      tf32x3,      hopper,  {gather_work, gather::run<Tf32x3>}, {}, "direct"},
    {"windows",             rounded_to_tf32, tf32,        hopper,  {windows_work, dense::run_windows<float, Tf32>}},
    {"windows_bf16_of_f32", rounded_to_bf16, bf16_of_f32, hopper,  {windows_work, dense::run_windows<float, Bf16>}},
    {"windows_bf16",        is_bf16,         of_16_bits,  hopper,  {windows_work, dense::run_windows<bfloat16, Bf16>}},
    {"windows_f16",         is_f16,          of_16_bits,  hopper,  {windows_work, dense::run_windows<float16, F16>}},
    {"dense",               rounded_to_tf32, tf32,        hopper,  {dense_work, dense::run<float, Tf32>},
     {dense_weight_grad_work, dense::run_weight_grad<ScaledF16>}},
    {"dense_bf16_of_f32",   rounded_to_bf16, bf16_of_f32, hopper,  {dense_work, dense::run<float, Bf16>}},
    {"dense_bf16",          is_bf16,         of_16_bits,  hopper,  {dense_work, dense::run<bfloat16, Bf16>},
     {dense_weight_grad_work, dense::run_weight_grad<Bf16>}},
    {"dense_f16",           is_f16,          of_16_bits,  hopper,  {dense_work, dense::run<float16, F16>},
     {dense_weight_grad_work, dense::run_weight_grad<F16>}},
    {"weight_grad",         rounded_to_tf32, tf32,        hopper,  {}, {weight_grad_work, weight_grad::run<Tf32>}},
    {"weight_grad_tf32x3",  is_f32,          tf32x3,      hopper,  {},
     {weight_grad_work, weight_grad::run<Tf32x3>}, "direct"},
    {"weight_grad_bf16",    is_bf16,         of_16_bits,  hopper,  {}, {weight_grad_work, weight_grad::run<Bf16>}},
    {"weight_grad_f16",     is_f16,          of_16_bits,  hopper,  {}, {weight_grad_work, weight_grad::run<F16>}},
};
// clang-format on

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

/// A row that may fail supports what its redo supports too.
std::optional<Work> Row::work(const Conv3dProblem& p, const Machine& machine) const {
  const bool sums = p.pass == Conv3dPass::weight_grad, fits = this == table || axes_fit_32_bits(p.geometry);
  if (!(sums ? weight_grad.run != nullptr : forward.run != nullptr) || !fits || !accepts(p) ||
      (wgmma && !machine.wgmma) || (!redo.empty() && !find(redo)->work(p, machine)))
    return std::nullopt;
  Numbers stored = numbers;
  stored.storage = static_cast<int>(size_of(p.dtype));  // few_channels and direct store several
  return sums ? weight_grad.work(p.geometry, stored, machine)
              : forward.work(p.geometry, p.pass == Conv3dPass::conv_transpose3d, stored, machine);
}

// ---- The choice -------------------------------------------------------------------------------------------

#include <voxgrad/cuda/conv3d/prices.inc>

/// What the row's work costs. f16 costs what bf16 does, and so do the rows that are for tensors of 16 and 32
/// bits.
const Prices& prices_of(const Row& r, const Conv3dProblem& p) {
  std::string name(r.name);
  if (name.ends_with("_f16")) name.replace(name.size() - 4, 4, "_bf16");
  if (is_16_bit(p.dtype) && (r.accepts == all_numbers || r.accepts == up_to_32_bits)) name += "_bf16";
  return *std::ranges::find_if(
      prices, [&](const Prices& price) { return price.kernel == name && price.pass == to_string(p.pass); });
}

const Row* least_time(const Conv3dProblem& problem) {  // direct supports all
  return find(conv3d_candidates(problem, this_machine())[0].kernel);
}

const Row& chosen(const Conv3dProblem& problem) {
  if (const std::string_view forced = forced_conv3d_kernel(problem.pass); !forced.empty()) {
    const Conv3dGeometry& g = problem.geometry;
    const Row& only = row(forced);
    check<ValueError>(only.work(problem, this_machine()).has_value(), to_string(problem.pass),
                      ": the forced kernel \"", only.name, "\" does not support ", problem.dtype,
                      " at precision ", static_cast<int>(problem.precision),
                      " (0 highest, 1 high, 2 medium), big ", g.big_shape(), ", small ", g.small_shape(),
                      ", weight ", g.weight_shape(), ", stride ", g.stride, ", dilation ", g.dilation);
    return only;
  }
  return *recall<least_time>(problem);
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
                 [](const Row& r, const Conv3dCall& call) { r.forward.run(call); });
}

}  // namespace

std::vector<std::string_view> conv3d_kernel_names() {
  std::vector<std::string_view> names;
  for (const Row& r : table) names.push_back(r.name);
  return names;
}

std::vector<Conv3dCandidate> conv3d_candidates(const Conv3dProblem& problem, const Machine& machine) {
  std::vector<Conv3dCandidate> candidates;
  for (const Row& r : table)
    if (const auto work = r.work(problem, machine)) {
      const Prices& price = prices_of(r, problem);
      candidates.push_back({r.name, *work, price, predicted_time(*work, price)});
    }
  std::ranges::stable_sort(candidates, {}, &Conv3dCandidate::microseconds);
  return candidates;
}

bool conv3d_kernel_needs_wgmma(std::string_view name) { return row(name).wgmma; }

bool conv3d_kernel_supports(std::string_view name, const Conv3dProblem& problem) {
  return row(name).work(problem, this_machine()).has_value();
}

std::string_view chosen_conv3d_kernel(const Conv3dProblem& problem) { return chosen(problem).name; }

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
                 [](const Row& r, const WeightGradCall& call) { r.weight_grad.run(call); });
  if (dbias.defined()) bias_grad(bias_of == Grid::big ? big : small, dbias);
}

}  // namespace vox::cuda
