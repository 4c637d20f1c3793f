// A rank that fails on purpose; tests/dist/failures_test.py starts it. It trains a small network and writes a
// checkpoint in each step:
//     mpirun -n 3 victim <device> <way> <rank> <checkpoint>
// <device> is cpu or cuda; with none, the ranks only call barrier(). <way> says how rank <rank> fails in step
// 5; with "none", it does not.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/voxgrad.h>

namespace {

namespace dist = vox::dist;

struct Plan {
  std::string device, way;
  int culprit;
  std::string checkpoint;
  bool is_endless() const { return way == "none"; }
};

void fail(const std::string& way, vox::Device device) {
  if (way == "kill") ::raise(SIGKILL);
  if (way == "stop") ::raise(SIGSTOP);
  if (way == "hang") {
    for (;;) ::pause();
  }
  if (way == "throw") throw std::runtime_error("thrown on purpose");
  if (way == "exit") std::exit(0);
  if (way == "shape") dist::all_reduce(vox::zeros({2, 3}, {.device = device}));
  if (way == "dtype") dist::all_reduce(vox::zeros({3}, {.dtype = vox::f64, .device = device}));
  if (way == "more calls") dist::barrier();
}

void only_agree(const Plan& plan) {
  for (int step = 0; step < 20 || plan.is_endless(); ++step) {
    if (step == 5 && dist::rank() == plan.culprit) fail(plan.way, vox::Device::cpu());
    dist::any(false);
    if (step == 5 && dist::rank() == 0) std::fprintf(stderr, "running\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void train(const Plan& plan, vox::Device device) {
  vox::nn::Sequential net{vox::nn::Conv3d({.in_channels = 1, .out_channels = 8, .kernel_size = 3})};
  net.to(device);
  dist::DataParallel parallel(net, {.bucket_bytes = 64});
  vox::optim::SGD sgd(net.parameters());
  for (int step = 0; step < 20 || plan.is_endless(); ++step) {
    if (step == 5 && dist::rank() == plan.culprit) fail(plan.way, device);
    dist::all_reduce(vox::zeros({3}, {.device = device}));
    sgd.zero_grad();
    parallel.backward(net(vox::rand({2, 1, 6, 6, 6}, {.device = device})).mean());
    sgd.step();
    if (dist::rank() == 0) vox::nn::save(plan.checkpoint, net.state_dict());
    if (step == 5 && dist::rank() == 0) std::fprintf(stderr, "running\n");
  }
}

}  // namespace

int main(int, char** argv) {
  const Plan plan{argv[1], argv[2], std::atoi(argv[3]), argv[4]};
  std::string rank = "?";
  try {
    dist::init();
    rank = std::to_string(dist::rank());
    std::fprintf(stderr, "rank %d is process %d\n", dist::rank(), ::getpid());
    if (plan.device == "none")
      only_agree(plan);
    else
      train(plan, plan.device == "cpu" ? vox::Device::cpu() : vox::Device::cuda(dist::local_rank()));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %s: %s\n", rank.c_str(), error.what());
    return 1;
  }
}
