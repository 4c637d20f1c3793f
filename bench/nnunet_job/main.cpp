// The whole training job of nnU-Net's network, as MLPerf Training's U-Net3D: volumes in memory, random boxes
// with foreground, flips, brightness and noise by threads, Dice + cross entropy, SGD; and its parts alone.
// Prints a line of JSON for each. With --inference 1, windows and volumes a second instead, as MLPerf
// Inference.
//
//     bench_nnunet_job --device cuda --precision bf16 --threads 16 --seconds 30
//     bench_nnunet_job --device cpu --size 16 --narrow 8 --seconds 1
//     bench_nnunet_job ... --record FILE --steps 200   # weights, boxes and losses, which compare.py reads
//
// --record trains as `voxgrad_nnunet train` does: deep supervision, decay, clipping, falling rate.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "../../examples/06_nnunet/architectures.h"
#include "../../examples/06_nnunet/predict.h"
#include "../../examples/06_nnunet/sample.h"
#include "../../examples/06_nnunet/supervision.h"
#include "../../examples/common/options.h"

namespace {

using vox::Tensor;
namespace data = vox::data;

struct Options {
  std::string device = "cpu", precision = "f32", record;
  int64_t size = 128, narrow = 1, volumes = 8, batch = 2, threads = 1, seconds = 10, steps = 200, seed = 1,
          inference = 0, graph = 0;
};

Options parse(int argc, char** argv) {
  Options o;
  const auto number = [](int64_t& to) { return mri::stored_in(to, 0, 1'000'000'000); };
  mri::parse_arguments(argc, argv, 1, {},
                       {{"--device", mri::stored_in(o.device)},
                        {"--precision", mri::stored_in(o.precision)},
                        {"--record", mri::stored_in(o.record)},
                        {"--size", number(o.size)},
                        {"--narrow", number(o.narrow)},
                        {"--volumes", number(o.volumes)},
                        {"--batch", number(o.batch)},
                        {"--threads", number(o.threads)},
                        {"--seconds", number(o.seconds)},
                        {"--steps", number(o.steps)},
                        {"--seed", number(o.seed)},
                        {"--inference", number(o.inference)},
                        {"--graph", number(o.graph)}});
  return o;
}

const nnunet::Labels kLabels{.foreground = {1, 2}, .heads = 3};

/// A volume of noise, 1.5 boxes along each axis, with two balls of classes 1 and 2.
nnunet::Volume make_volume(const Options& o, uint64_t seed) {
  vox::Generator random(seed);
  const int64_t n = o.size * 3 / 2;
  const Tensor x = vox::linspace(-1, 1, n), radius = vox::sqrt(x.reshape({n, 1, 1}) * x.reshape({n, 1, 1}) +
                                                               x.reshape({n, 1}) * x.reshape({n, 1}) + x * x);
  const Tensor label = vox::lt(radius, 0.5).to(vox::i64) + vox::lt(radius, 0.25).to(vox::i64);
  return nnunet::make_volume((vox::randn({n, n, n}, {}, random) + label.to(vox::f32)).unsqueeze(0), label,
                             kLabels);
}

struct Job {
  explicit Job(const Options& options)
      : o(options),
        device(o.device == "cuda" ? vox::Device::cuda() : vox::Device::cpu()),
        network(architecture(o), 1, kLabels.heads),
        sgd((network.to(device), network.parameters()),
            {.lr = 1e-3, .momentum = 0.99, .weight_decay = o.record.empty() ? 0 : 3e-5, .nesterov = true}) {
    for (int64_t i = 0; i < o.volumes; ++i) volumes.push_back(make_volume(o, static_cast<uint64_t>(i)));
  }
  /// nnU-Net's, of as many levels as the box has.
  static nnunet::Architecture architecture(const Options& o) {
    nnunet::Architecture a;
    for (const int64_t c : {32, 64, 128, 256, 320, 320}) {
      if (o.size >> (a.features.size() + 1) == 0) break;
      a.strides.emplace_back(a.features.empty() ? 1 : 2), a.kernel_sizes.emplace_back(3);
      a.features.push_back(std::max<int64_t>(1, c / o.narrow)), a.blocks.push_back(2);
    }
    a.decoder_convs.assign(a.features.size() - 1, 2);
    return a;
  }

  data::Loader loader() const {
    const auto get = [this](int64_t i, vox::Generator& random) -> data::Sample {
      const nnunet::Volume& volume = volumes[static_cast<size_t>(i) % volumes.size()];
      data::Sample box = nnunet::random_box(volume, o.size, 0, i % o.batch == o.batch - 1, random);
      box = data::random_flip(box, random);
      if (data::chance(0.1, random)) box[0] = data::random_intensity(box[0], {.noise = 0.1}, random);
      if (data::chance(0.15, random)) box[0] = data::random_intensity(box[0], {.scale = {0.7, 1.3}}, random);
      return box;
    };
    return {int64_t{1} << 40,
            get,
            {.batch_size = o.batch,
             .seed = static_cast<uint64_t>(o.seed),
             .threads = o.threads,
             .device = device}};
  }
  Tensor step(const Tensor& image, const Tensor& label) {
    sgd.zero_grad();
    const Tensor target = label.to(vox::i64),
                 loss = o.record.empty()
                            ? nnunet::segmentation_loss(kLabels, true, network(image), target)
                            : nnunet::deep_loss(kLabels, true, network.forward(image, true), target);
    loss.backward();
    if (!o.record.empty()) vox::optim::clip_grad_norm_(network.parameters(), 12);
    sgd.step();
    return loss.detach();
  }

  Options o;
  vox::Device device;
  nnunet::UNet network;
  vox::optim::SGD sgd;
  std::vector<nnunet::Volume> volumes;
};

/// Calls of f a second, for `seconds` after three calls of warm-up.
double rate(const Job& job, const std::function<void()>& f) {
  const auto synchronize = [&] {
    if (job.device.is_cuda()) vox::cuda::synchronize(job.device);
  };
  for (int i = 0; i < 3; ++i) f();
  synchronize();
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  int64_t calls = 0;
  do {
    f();
    if (++calls % 8 == 0) synchronize();
  } while (elapsed() < static_cast<double>(job.o.seconds));
  synchronize();
  return static_cast<double>(calls) / elapsed();
}

/// The peaks so far: of tensors, and with what the pool keeps.
std::string memory(const Job& job) {
  const vox::MemoryStats stats = vox::memory_stats(job.device);
  return vox::str("\"peak_mb\": ", stats.peak_in_use / 1'000'000,
                  ", \"peak_reserved_mb\": ", stats.peak_reserved / 1'000'000);
}

void measure(Job& job) {
  const Options& o = job.o;
  const auto print = [&](const char* part, double calls) {
    const double patches = calls * static_cast<double>(o.batch),
                 voxels = std::pow(static_cast<double>(o.size), 3);
    std::printf("{\"part\": \"%s\", \"patches_per_s\": %.3f, \"mb_per_s\": %.1f, %s}\n", part, patches,
                patches * voxels * 5 / 1e6, memory(job).c_str());  // f32 and u8
    std::fflush(stdout);
  };
  const data::Loader loader = job.loader();
  auto alone = loader.epoch();
  data::Sample batch = *alone.next();
  print("loader", rate(job, [&] { batch = *alone.next(); }));
  Tensor image = batch[0].clone(), label = batch[1].clone();
  std::optional<vox::cuda::Graph> graph;
  if (o.graph) {
    for (int i = 0; i < 2; ++i) job.step(image, label);
    graph.emplace([&] { job.step(image, label); });
  }
  const auto step = [&] {
    if (graph)
      graph->replay();
    else
      job.step(image, label);
  };
  print("step", rate(job, step));
  print("job", rate(job, [&] {
          batch = *alone.next();
          if (!graph) {
            job.step(batch[0], batch[1]);
            return;
          }
          image.copy_(batch[0]), label.copy_(batch[1]);
          graph->replay();
        }));
}

/// Writes the weights, the boxes of all steps and their losses.
void record(Job& job) {
  vox::nn::StateDict file;
  for (auto& [name, weight] : job.network.state_dict())
    file["weights." + name] = weight.to(vox::Device::cpu()).clone();
  const data::Loader loader = job.loader();
  auto batches = loader.epoch();
  std::vector<Tensor> losses;
  for (int64_t i = 0; i < job.o.steps; ++i) {
    const data::Sample batch = *batches.next();
    job.sgd.set_lr(vox::optim::polynomial_lr(i, {.base_lr = 1e-2, .total_steps = job.o.steps}));
    file[vox::str("image.", i)] = batch[0].to(vox::Device::cpu()).to(vox::bf16);
    file[vox::str("label.", i)] = batch[1].to(vox::Device::cpu());
    losses.push_back(job.step(batch[0].to(vox::bf16).to(vox::f32), batch[1]));
  }
  file["losses"] = vox::stack(losses).to(vox::Device::cpu());
  vox::nn::save(job.o.record, file);
  std::printf("{\"part\": \"record\", \"first_loss\": %.6f, \"last_loss\": %.6f, %s}\n",
              losses.front().item(), losses.back().item(), memory(job).c_str());
}

/// The 64 windows of the size of the box, half overlapping, of a cubic volume of 2.5 boxes: of 320 voxels for
/// boxes of 128.
void infer(Job& job) {
  const auto guard = vox::no_grad();
  job.network.eval();
  const int64_t n = job.o.size, whole = n * 5 / 2;
  const Tensor volume = vox::randn({1, whole, whole, whole}, {.device = job.device});
  const vox::nn::SlidingWindowOptions options{
      .window = {n, n, n}, .batch_size = job.o.batch, .device = job.device};
  const double volumes = rate(job, [&] { vox::nn::sliding_window(volume, job.network, options); });
  const auto windows =
      static_cast<double>(vox::nn::plan_windows({whole, whole, whole}, {n, n, n}, 0.5).size());
  std::printf("{\"part\": \"inference\", \"volumes_per_s\": %.4f, \"windows_per_s\": %.3f, %s}\n", volumes,
              volumes * windows, memory(job).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = parse(argc, argv);
    vox::manual_seed(static_cast<uint64_t>(o.seed));
    const nnunet::Precision precision(o.precision);
    Job job(o);
    if (!o.record.empty())
      record(job);
    else if (o.inference)
      infer(job);
    else
      measure(job);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_nnunet_job: %s\n", error.what());
    return 1;
  }
}
