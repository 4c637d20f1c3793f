// A rank that fails on purpose; tests/dist/failures_test.py starts it. It trains a small network and writes a
// checkpoint in each step:
//     mpirun -n 3 victim <device> <way> <rank> <checkpoint>
// <device> is cpu or cuda; with none, the ranks only call any(). <way> says how rank <rank> fails in step 5;
// with "none", it does not. With the environment variable FAIL_AT it is the kind of call ("allocation",
// "allocations": all from then on, "thread") that fails in this rank, the FAIL_AT-th since its start.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/voxgrad.h>

#include "tests/failures/inject.h"

namespace {

namespace dist = vox::dist;

struct Plan {
  std::string device, way;
  int culprit;
  std::string checkpoint;
  const char* fail_at = std::getenv("FAIL_AT");
  int steps() const { return way == "none" ? INT_MAX : fail_at ? 3 : 20; }
};

void inject(const Plan& plan) {
  using namespace vox::testing;
  const char* const of_mpi = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!plan.fail_at || std::atoi(of_mpi ? of_mpi : std::getenv("RANK")) != plan.culprit) return;
  std::atexit([] {
    if (!failed) std::fprintf(stderr, "nothing failed\n");
  });
  failing = plan.way == "thread" ? Failing::thread : Failing::allocation;
  one_fails = plan.way != "allocations";
  calls_left = std::atoi(plan.fail_at);
}

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
  for (int step = 0; step < plan.steps(); ++step) {
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
  for (int step = 0; step < plan.steps(); ++step) {
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
  inject(plan);
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
