// Training steps of a 3-D U-Net on several ranks, each with a batch of its own (bench/parallel/__main__.py
// starts them). Rank 0 prints one line of JSON.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/voxgrad.h>

#include "../../examples/common/options.h"
#include "../networks/unet.h"

namespace {

using vox::Tensor;
namespace dist = vox::dist;

struct Options {
  std::string device = "cpu", precision = "highest";
  int64_t size = 128, batch = 2, narrow = 1, steps = 20, warm_up = 5;
  int64_t bucket_bytes = dist::DataParallelOptions{}.bucket_bytes;
};

Options parse(int argc, char** argv) {
  Options o;
  const auto number = [](int64_t& to) { return mri::stored_in(to, 0, 1'000'000'000'000); };
  mri::parse_arguments(argc, argv, 1, {},
                       {{"--device", mri::stored_in(o.device)},
                        {"--precision", mri::stored_in(o.precision)},
                        {"--size", number(o.size)},
                        {"--batch", number(o.batch)},
                        {"--narrow", number(o.narrow)},
                        {"--steps", number(o.steps)},
                        {"--warm-up", number(o.warm_up)},
                        {"--bucket-bytes", number(o.bucket_bytes)}});
  return o;
}

/// The median time of a step in ms, on the slowest rank.
double measure(const Options& o, vox::Device device, const std::function<void()>& step) {
  const auto synchronize = [&] {
    if (device.is_cuda()) vox::cuda::synchronize(device);
  };
  std::vector<double> times;
  for (int64_t i = 0; i < o.warm_up + o.steps; ++i) {
    synchronize();
    dist::barrier();
    const auto begin = std::chrono::steady_clock::now();
    step();
    synchronize();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    const Tensor slowest =
        dist::all_reduce(vox::full({}, time.count(), {.device = device}), dist::Reduce::max);
    if (i >= o.warm_up) times.push_back(slowest.item());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run(const Options& o) {
  dist::init();
  const vox::Device device = o.device == "cuda" ? vox::Device::cuda(dist::local_rank()) : vox::Device::cpu();
  const vox::DType dtype = o.precision == "bf16" ? vox::bf16 : vox::f32;
  vox::set_float32_precision(o.precision == "high" ? vox::Float32Precision::high
                                                   : vox::Float32Precision::highest);
  bench::UNet net({32 / o.narrow, 64 / o.narrow, 128 / o.narrow, 256 / o.narrow}, false);
  net.to(dtype).to(device);
  dist::DataParallel parallel(net, {.bucket_bytes = o.bucket_bytes});
  int64_t bytes = 0;
  for (const Tensor& p : net.parameters()) bytes += p.numel() * vox::size_of(dtype);
  vox::optim::AdamW adamw(net.parameters(), {.lr = 1e-3});
  const Tensor x = vox::randn({o.batch, 1, o.size, o.size, o.size}, {.device = device}).to(dtype);
  const Tensor target =
      vox::randint(0, 2, {o.batch, o.size, o.size, o.size}, {.dtype = vox::i64, .device = device});
  const auto step = [&](bool alone) {
    adamw.zero_grad();
    parallel.backward(vox::cross_entropy(net(x), target), {.accumulate = alone});
    adamw.step();
  };
  const double together = measure(o, device, [&] { step(false); });
  const double alone = measure(o, device, [&] { step(true); });  // the ranks' parameters differ from now on
  if (dist::rank() == 0)
    std::printf(
        "{\"library\": \"voxgrad\", \"ranks\": %d, \"ms\": %.4f, \"ms_alone\": %.4f, \"gradient_mb\": "
        "%.1f}\n",
        dist::size(), together, alone, static_cast<double>(bytes) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_parallel: %s\n", error.what());
    return 1;
  }
}
