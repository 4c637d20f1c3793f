// Times the kernels of the conv3d family on a GPU: every geometry of calls.h, in all passes and dtypes, by
// the kernel that is chosen or by all that support the problem.
//
//   bench_conv3d_sweep [--list] [--all-rows] [--row NAME]... [--seconds N] [SELECTION]...
//
// --all-rows        every row of the table that supports the problem; without it the chosen ones
// --row NAME        these rows only
// --list            print the same lines without times, but with the work of each row (kinds_of_work in
//                   cuda/conv3d/model/time.h); needs no GPU, and chooses as on an H200, or with
//                   VOXGRAD_WGMMA=0 in the environment as on a GPU without wgmma
// --seconds N       begin no geometry after so many seconds
// SELECTION         f32, bf16, f16 or f64, or the beginning of a name in calls.h, as level1/ or unet128/
//
// A line of the output has a geometry's name, pass, dtype, row, microseconds, the precisions at which the row
// supports the problem, and those at which it is chosen, separated by tabs. (A row's time does not depend on
// the precision.) Lines with # describe the run and the geometries. regret.py, fit.py and sweep.py read it.

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/kernels.h>
#include "calls.h"

namespace {

using vox::Conv3dPass;
using vox::Tensor;
using vox::cuda::Conv3dProblem;

/// Times work in the current stream by events, in milliseconds. Before each run the L2 cache is flushed,
/// which also gives the host time to submit the run before the GPU begins it.
class EventClock {
 public:
  EventClock() : flush_(vox::empty({int64_t{1} << 27}, {.device = vox::Device::cuda()})) {
    cudaEventCreate(&begin_), cudaEventCreate(&end_);
  }
  ~EventClock() { cudaEventDestroy(begin_), cudaEventDestroy(end_); }
  EventClock(const EventClock&) = delete;
  EventClock& operator=(const EventClock&) = delete;

  template <class Run>
  double once(Run run) {
    const auto stream = static_cast<cudaStream_t>(vox::cuda::current_stream().native_handle());
    flush_.zero_();
    cudaEventRecord(begin_, stream);
    run();
    cudaEventRecord(end_, stream);
    cudaEventSynchronize(end_);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin_, end_);
    return ms;
  }

  /// The median of at least 3 runs, and of up to 9 within 3 ms. A long run, or one above the limit, is the
  /// only one.
  template <class Run>
  double median(double limit_ms, Run run) {
    const double first = once(run);  // plans on the host
    if (first > 100 || (first > 20 && first > limit_ms)) return first;
    std::vector<double> times;
    for (double sum = 0; times.size() < 3 || (times.size() < 9 && sum < 3); sum += times.back()) {
      times.push_back(once(run));
      if (times[0] > limit_ms) break;
    }
    std::ranges::sort(times);
    const size_t half = times.size() / 2;
    return times.size() % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
  }

 private:
  Tensor flush_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// The passes of a geometry, without bias, on random operands. Nothing overwrites them.
class Operands {
 public:
  Operands(const vox::Conv3dGeometry& g, vox::DType dtype)
      : geometry_(g), options_{.dtype = dtype, .device = vox::Device::cuda()} {}

  double milliseconds(EventClock& clock, Conv3dPass pass, vox::Float32Precision precision, double limit_ms) {
    const bool of_big = pass == Conv3dPass::conv_transpose3d, of_small = pass == Conv3dPass::conv3d;
    Tensor output = vox::empty_like(of_big ? big_ : of_small ? small_ : weight_), none;
    return clock.median(limit_ms, [&] {
      if (of_small)
        vox::cuda::conv3d(big_, weight_, {}, output, geometry_, precision);
      else if (of_big)
        vox::cuda::conv_transpose3d(small_, weight_, {}, output, geometry_, precision);
      else
        vox::cuda::conv3d_weight_grad(big_, small_, output, none, vox::Grid::big, geometry_, precision);
    });
  }

 private:
  vox::Conv3dGeometry geometry_;
  vox::TensorOptions options_;
  Tensor big_ = vox::randn(geometry_.big_shape(), options_);
  Tensor small_ = vox::randn(geometry_.small_shape(), options_);
  Tensor weight_ = vox::randn(geometry_.weight_shape(), options_);
};

struct Precision {
  const char* name;
  vox::Float32Precision value;
};
constexpr Precision of_f32[]{{"highest", vox::Float32Precision::highest},
                             {"high", vox::Float32Precision::high},
                             {"medium", vox::Float32Precision::medium}};
constexpr Precision of_others[]{{"any", vox::Float32Precision::highest}};

constexpr vox::DType dtypes[]{vox::f32, vox::bf16, vox::f16, vox::f64};
constexpr Conv3dPass all_passes[]{Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad};
const char* name_of(Conv3dPass pass) {
  constexpr const char* names[]{"conv3d", "conv_transpose3d", "weight_grad"};
  return names[static_cast<int>(pass)];
}

/// A row of the table that supports a problem at some precisions, and the work that the problem is for it.
struct Row {
  std::string_view name;
  vox::cuda::conv::Work work;
  std::vector<Precision> supports = {}, chosen = {};
};

/// Those that are chosen on a machine come first.
std::vector<Row> rows_of(Conv3dPass pass, const vox::Conv3dGeometry& g, vox::DType dtype,
                         const vox::cuda::conv::Machine& machine) {
  std::vector<Row> rows;
  for (const Precision& precision : dtype == vox::f32 ? std::span<const Precision>(of_f32) : of_others) {
    const auto candidates = vox::cuda::conv3d_candidates({pass, g, dtype, precision.value}, machine);
    for (const auto& candidate : candidates) {
      auto row = std::ranges::find(rows, candidate.kernel, &Row::name);
      if (row == rows.end()) row = rows.insert(rows.end(), {candidate.kernel, candidate.work});
      row->supports.push_back(precision);
      if (candidate.kernel == candidates[0].kernel) row->chosen.push_back(precision);
    }
  }
  std::ranges::stable_partition(rows, [](const Row& row) { return !row.chosen.empty(); });
  return rows;
}

struct Arguments {
  bool list = false, all_rows = false;
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> rows, names;
  std::vector<vox::DType> dtypes;

  /// What is chosen for.
  vox::cuda::conv::Machine machine() const {
    using namespace vox::cuda::conv;
    return (list ? wgmma_allowed() : has_wgmma()) ? h200 : since_sm_80;
  }
  bool wants(const Row& row) const {
    if (!rows.empty()) return std::ranges::find(rows, row.name) != rows.end();
    return all_rows || !row.chosen.empty();
  }
  bool wants(vox::DType dtype) const {
    return dtypes.empty() || std::ranges::find(dtypes, dtype) != dtypes.end();
  }
  bool wants(const Call& call) const {
    return names.empty() || std::ranges::any_of(call.names, [&](const std::string& name) {
             return std::ranges::any_of(names, [&](std::string_view n) { return name.starts_with(n); });
           });
  }
};

Arguments parsed(int argc, char** argv) {
  Arguments a;
  const auto value = [&](int& i) {
    vox::check<vox::ValueError>(i + 1 < argc, "bench_conv3d_sweep: ", argv[i], " needs a value");
    return std::string_view(argv[++i]);
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto* dtype = std::ranges::find(dtypes, word, [](vox::DType d) { return vox::str(d); });
    if (dtype != std::end(dtypes))
      a.dtypes.push_back(*dtype);
    else if (word == "--list")
      a.list = true;
    else if (word == "--all-rows")
      a.all_rows = true;
    else if (word == "--row")
      a.rows.push_back(value(i));
    else if (word == "--seconds")
      a.seconds = std::stod(std::string(value(i)));
    else
      a.names.push_back(word);
  }
  const auto known = vox::cuda::conv3d_kernel_names();
  for (const std::string_view row : a.rows)
    vox::check<vox::ValueError>(std::ranges::find(known, row) != known.end(), "bench_conv3d_sweep: no row \"",
                                row, "\" in the table");
  return a;
}

/// Multiply-adds times two, with those on padding.
double operations(const vox::Conv3dGeometry& g) {
  return 2.0 * static_cast<double>(g.batch * g.small_cells() * g.taps()) *
         static_cast<double>(g.small_channels * g.big_per_group());
}

template <class T, class Name = std::identity>
std::string joined(const std::vector<T>& values, char separator, Name name = {}) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += separator;
    text += std::invoke(name, value);
  }
  return text.empty() ? "-" : text;
}

/// The least time so far at each precision, in milliseconds.
class Best {
 public:
  void note(const Row& row, double ms) {
    for (const Precision& p : row.supports) ms_[p.name] = std::min(ms, at(p));
  }
  /// A row that takes longer cannot be a good choice at any precision.
  double limit(const Row& row) const {
    double limit = 0;
    for (const Precision& p : row.supports) limit = std::max(limit, 4 * at(p));
    return limit;
  }

 private:
  double at(const Precision& p) const {
    const auto found = ms_.find(p.name);
    return found == ms_.end() ? std::numeric_limits<double>::infinity() : found->second;
  }
  std::map<std::string_view, double> ms_;
};

/// Prints the lines of one pass and dtype.
void measure(EventClock* clock, const Arguments& a, const Call& call, Conv3dPass pass, vox::DType dtype,
             std::optional<Operands>& operands) {
  const std::vector<Row> rows = rows_of(pass, call.geometry, dtype, a.machine());
  if (rows.size() == 1 && rows[0].name == "direct") return;  // no choice
  Best best;
  for (const Row& row : rows) {
    // It would take longer than the others together.
    const bool slow = row.name == "direct" && row.chosen.empty() && operations(call.geometry) > 1e9;
    if (!a.wants(row) || slow) continue;
    char time[32] = "-";
    if (clock) {
      if (!operands) operands.emplace(call.geometry, dtype);
      const vox::ForceConv3dKernel only(row.name);
      const double ms = operands->milliseconds(*clock, pass, row.supports[0].value, best.limit(row));
      best.note(row, ms);
      std::snprintf(time, sizeof time, "%.5g", 1e3 * ms);
    }
    std::printf("%s\t%s\t%s\t%s\t%s\t%s\t%s", call.names[0].c_str(), name_of(pass), vox::str(dtype).c_str(),
                std::string(row.name).c_str(), time, joined(row.supports, ',', &Precision::name).c_str(),
                joined(row.chosen, ',', &Precision::name).c_str());
    if (!clock)
      for (const double amount : amounts(row.work)) std::printf("\t%.6g", amount);
    std::puts("");
  }
}

/// # geometry <tab> names <tab> batch, big, small, weight, stride, padding, dilation, groups
void describe(const Call& call) {
  const vox::Conv3dGeometry& g = call.geometry;
  std::puts(vox::str("# geometry\t", joined(call.names, ';'), "\t", g.big_shape(), " ", g.small_shape(), " ",
                     g.weight_shape(), " ", g.stride, " ", g.padding, " ", g.dilation, " ", g.groups)
                .c_str());
}

/// # line <tab> its name <tab> the labels of its points, in order
void describe(const Line& line) {
  std::printf("# line\t%s\t%s\n", line.name.c_str(), joined(line.labels, ';').c_str());
}

__global__ void empty_kernel() {}

/// Describes the run. The time of a kernel that does nothing is a part of every floor.
void head(EventClock* clock) {
  if (!clock) return (void)std::puts("# list");
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  const auto stream = static_cast<cudaStream_t>(vox::cuda::current_stream().native_handle());
  const double ms = clock->median(1, [&] { empty_kernel<<<1, 32, 0, stream>>>(); });
  std::printf("# device\t%s\t%.3g\n", properties.name, 1e3 * ms);
}

/// Without a clock nothing is timed.
void sweep(EventClock* clock, const Arguments& a) {
  std::vector<Call> calls = all_calls();
  std::erase_if(calls, [&](const Call& call) { return !a.wants(call); });
  vox::check<vox::ValueError>(!calls.empty(), "bench_conv3d_sweep: no geometry has a name that begins with ",
                              a.names.empty() ? "" : a.names[0]);
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (seconds.count() > a.seconds)
      return (void)std::printf("# stopped after %.0f s, %zu of %zu geometries\n", seconds.count(), i,
                               calls.size());
    if (clock)
      std::fprintf(stderr, "%.0f s, %zu of %zu: %s\n", seconds.count(), i, calls.size(),
                   calls[i].names[0].c_str());
    describe(calls[i]);
    for (const vox::DType dtype : dtypes) {
      std::optional<Operands> operands;
      for (const Conv3dPass pass : all_passes)
        if (a.wants(dtype) && pass != calls[i].unused) measure(clock, a, calls[i], pass, dtype, operands);
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments a = parsed(argc, argv);
  std::optional<EventClock> clock;
  if (!a.list) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // else the first call of each kernel takes milliseconds
    if (!vox::cuda::is_available()) return std::puts("no GPU here; --list needs none"), 0;
    clock.emplace();
  }
  head(clock ? &*clock : nullptr);
  for (const Line& line : all_lines()) describe(line);
  sweep(clock ? &*clock : nullptr, a);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
