#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <voxgrad/voxgrad.h>

// Elementwise, reduction, pooling, normalisation and interpolation ops on the CPU against the machine's copy
// bandwidth. Every iteration times a copy of 64 MB (memcpy on all threads, bytes read plus bytes written) and
// then the op, so that other load on the machine slows both.
//
//   GB/s        bytes of the op's inputs and outputs, each counted once, by its fastest iteration
//   of_copy     the same, as a share of the fastest copy among these iterations
//   Gelem/s     elements of the larger side, by the fastest iteration
//
// Names end in the layout of the first input: dense, channels_last (N, D, H, W, C in memory), or reversed
// (all dimensions, so the first one has stride 1).

namespace {

using vox::Shape;
using vox::Tensor;
using Run = std::function<void()>;

const Shape volume = {4, 32, 32, 64, 64};       // 64 MiB of f32
const Shape half_volume = {4, 32, 16, 32, 32};  // 8 MiB

/// Wall-clock time in seconds. If there is only one thread, its CPU time, which other processes affect
/// little.
double now() {
  timespec time;
  clock_gettime(vox::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const Run& run) {
  const double start = now();
  run();
  return now() - start;
}

double bytes_of(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += static_cast<double>(t.numel() * vox::size_of(t.dtype()));
  return bytes;
}

/// memcpy of 64 MiB, one piece a thread.
class Copy {
 public:
  Copy() : from_(vox::ones(volume)), to_(vox::ones(volume)) {}
  double bytes() const { return 2.0 * static_cast<double>(size()); }
  double seconds() {
    const char* from = reinterpret_cast<const char*>(from_.data<float>());
    char* to = reinterpret_cast<char*>(to_.mutable_data<float>());
    const int64_t threads = vox::get_num_threads();
    return seconds_of([&] {
      vox::parallel_for(size(), (size() + threads - 1) / threads, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
    });
  }

 private:
  int64_t size() const { return from_.numel() * 4; }
  Tensor from_, to_;
};

void measure(benchmark::State& state, double bytes, double elements, const Run& run) {
  Copy copy;
  copy.seconds();
  run();
  double fastest = 1e30, fastest_copy = 1e30;
  for (auto _ : state) {
    fastest_copy = std::min(fastest_copy, copy.seconds());
    const double seconds = seconds_of(run);
    state.SetIterationTime(seconds);
    fastest = std::min(fastest, seconds);
  }
  state.counters["GB/s"] = bytes / fastest * 1e-9;
  state.counters["of_copy"] = bytes / fastest / (copy.bytes() / fastest_copy);
  state.counters["Gelem/s"] = elements / fastest * 1e-9;
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->Unit(benchmark::kMillisecond)
      ->UseManualTime()
      ->Iterations(12);
}

/// A tensor of the layout; by default 64 MiB seen as `volume`.
Tensor input_of(const std::string& layout, vox::DType dtype = vox::f32, Shape shape = volume) {
  if (dtype == vox::f64) shape[0] /= 2;
  const auto permuted = [&](const Shape& dims) {  // dimension i of the result is dims[i] of the memory
    Shape memory = shape;
    for (int64_t i = 0; i < 5; ++i) memory[dims[i]] = shape[i];
    return vox::randn(memory, {.dtype = dtype}).permute(dims);
  };
  if (layout == "channels_last") return permuted({0, 4, 1, 2, 3});
  if (layout == "reversed") return permuted({4, 3, 2, 1, 0});
  return vox::randn(shape, {.dtype = dtype});
}
const char* const layouts[] = {"dense", "channels_last", "reversed"};

void add_unary(const std::string& name, const std::function<Tensor(const Tensor&)>& op,
               vox::DType dtype = vox::f32, const Shape& shape = volume) {
  for (const std::string layout : layouts) {
    add(name + "/" + layout, [=](benchmark::State& state) {
      const Tensor x = input_of(layout, dtype, shape);
      Tensor y = op(x);
      const double bytes = bytes_of({x, y}), elements = static_cast<double>(std::max(x.numel(), y.numel()));
      y = {};
      measure(state, bytes, elements, [&] { benchmark::DoNotOptimize(op(x)); });
    });
  }
}

void add_binary(const std::string& name, const std::function<Tensor(const Tensor&, const Tensor&)>& op) {
  for (const std::string layout : layouts) {
    add(name + "/" + layout, [=](benchmark::State& state) {
      const Tensor a = input_of(layout), b = vox::abs(input_of("dense")) + 0.5;
      measure(state, bytes_of({a, b, b}), static_cast<double>(a.numel()),
              [&] { benchmark::DoNotOptimize(op(a, b)); });
    });
  }
}

/// The gradient of `op` at an input of the layout, given a gradient of the same layout. Bytes counted:
/// `extra` tensors of the input's size that the formula needs, the output's gradient, and the input's.
void add_backward(const std::string& name, const Shape& shape, const std::function<Tensor(const Tensor&)>& op,
                  double extra, const std::string& layout = "dense") {
  add(name + "_backward/" + layout, [=](benchmark::State& state) {
    const Tensor x = input_of(layout, vox::f32, shape).set_requires_grad();
    const Tensor y = op(x), gy = input_of(layout, vox::f32, y.shape());
    const double bytes = bytes_of({x, gy}) + extra * bytes_of({x});
    measure(state, bytes, static_cast<double>(std::max(x.numel(), y.numel())), [&] {
      benchmark::DoNotOptimize(vox::grad({y}, {x}, {.grad_outputs = {gy}, .retain_graph = true}));
    });
  });
}

void add_all() {
  add_unary("copy", [](const Tensor& x) { return x.clone(); });
  add_binary("add", [](const Tensor& a, const Tensor& b) { return a + b; });
  add_binary("mul", [](const Tensor& a, const Tensor& b) { return a * b; });
  add_unary("mul_number", [](const Tensor& x) { return x * 0.5; });
  add_unary("relu", vox::relu);
  add_backward("relu", volume, vox::relu, 1);
  add_unary("exp", vox::exp);
  add_unary("tanh", vox::tanh);
  add_unary("sigmoid", vox::sigmoid);
  add_unary("silu", vox::silu);
  add_unary("log", vox::log);
  add_unary("erf", vox::erf);
  add_unary("gelu", vox::gelu);
  add_binary("pow", [](const Tensor& a, const Tensor& b) { return vox::pow(b, a); });
  add_unary("exp_f64", vox::exp, vox::f64);
  add_unary("tanh_f64", vox::tanh, vox::f64);
  add_unary("log_f64", vox::log, vox::f64);

  const auto sum_per_channel = [](const Tensor& x) { return vox::sum(x, {0, 2, 3, 4}); };
  add_unary("sum", [](const Tensor& x) { return vox::sum(x); });
  add_unary("sum_per_channel", sum_per_channel);
  add_unary("sum_over_channels", [](const Tensor& x) { return vox::sum(x, {1}); });
  add_unary("sum_last", [](const Tensor& x) { return vox::sum(x, {4}); });
  add_unary("max", [](const Tensor& x) { return vox::max(x); });
  add_backward("sum", volume, sum_per_channel, 0);
  add_unary("softmax_channels", [](const Tensor& x) { return vox::softmax(x, 1); });

  const auto max_pool = [](const Tensor& x) { return vox::max_pool3d(x, {.kernel_size = 2}); };
  const auto avg_pool = [](const Tensor& x) { return vox::avg_pool3d(x, {.kernel_size = 2}); };
  const auto wide_max = [](const Tensor& x) {
    return vox::max_pool3d(x, {.kernel_size = 3, .stride = 2, .padding = 1});
  };
  add_unary("max_pool3d_2", max_pool);
  add_unary("avg_pool3d_2", avg_pool);
  add_unary("max_pool3d_3", wide_max);
  add_backward("max_pool3d_2", volume, max_pool, 0.25);  // the indices
  add_backward("avg_pool3d_2", volume, avg_pool, 0);
  add_backward("max_pool3d_3", volume, wide_max, 0.25);

  using Mode = vox::InterpolateOptions::Mode;
  for (const Mode mode : {Mode::trilinear, Mode::nearest}) {
    const std::string name = mode == Mode::trilinear ? "trilinear_x2" : "nearest_x2";
    const auto twice = [=](const Tensor& x) {
      const vox::Triple size(2 * x.size(2), 2 * x.size(3), 2 * x.size(4));
      return vox::interpolate(x, {.size = size, .mode = mode});
    };
    add_unary(name, twice, vox::f32, half_volume);
    for (const char* layout : layouts) add_backward(name, half_volume, twice, 0, layout);
  }

  const auto norm = std::make_shared<vox::nn::BatchNorm3d>(vox::nn::BatchNorm3d::Options{.num_features = 32});
  const auto batch_norm = [norm](const Tensor& x) { return norm->forward(x); };
  add_unary("batch_norm_train", batch_norm);
  add_backward("batch_norm", volume, batch_norm, 1);
  const auto frozen =
      std::make_shared<vox::nn::BatchNorm3d>(vox::nn::BatchNorm3d::Options{.num_features = 32});
  frozen->eval();
  add_unary("batch_norm_eval", [frozen](const Tensor& x) {
    const auto guard = vox::no_grad();
    return frozen->forward(x);
  });

  add("adam_step/dense", [](benchmark::State& state) {
    Tensor p = vox::randn(volume).set_requires_grad();
    p.set_grad(vox::randn(volume));
    vox::optim::Adam adam({p}, {.lr = 1e-6});
    measure(state, 7 * bytes_of({p}), static_cast<double>(p.numel()), [&] { adam.step(); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
