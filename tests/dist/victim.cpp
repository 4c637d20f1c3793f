// A rank that fails on purpose; tests/dist/failures_test.py starts it. It trains a small network and writes a
// checkpoint in each step:
//     mpirun -n 3 victim <way> <rank> <checkpoint>
// <way> says what that rank does in step 5, or "none".
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/voxgrad.h>

namespace {

namespace dist = vox::dist;

void fail(const std::string& way) {
  if (way == "kill") ::raise(SIGKILL);
  if (way == "stop") ::raise(SIGSTOP);
  if (way == "hang") {
    for (;;) ::pause();
  }
  if (way == "throw") throw std::runtime_error("thrown on purpose");
  if (way == "exit") std::exit(0);
  if (way == "shape") dist::all_reduce(vox::zeros({2, 3}));
  if (way == "dtype") dist::all_reduce(vox::zeros({3}, {.dtype = vox::f64}));
  if (way == "more calls") dist::barrier();
}

int run(const std::string& way, int culprit, const std::string& checkpoint, int steps) {
  vox::nn::Sequential net{vox::nn::Conv3d({.in_channels = 1, .out_channels = 8, .kernel_size = 3})};
  dist::DataParallel parallel(net, {.bucket_bytes = 64});
  vox::optim::SGD sgd(net.parameters());
  for (int step = 0; step < steps; ++step) {
    if (step == 5 && dist::rank() == culprit) fail(way);
    if (way == "shape" || way == "dtype") dist::all_reduce(vox::zeros({3}));
    sgd.zero_grad();
    parallel.backward(net(vox::rand({2, 1, 6, 6, 6})).mean());
    sgd.step();
    if (dist::rank() == 0) vox::nn::save(checkpoint, net.state_dict());
    if (step == 5 && dist::rank() == 0) std::fprintf(stderr, "running\n");
  }
  return 0;
}

}  // namespace

int main(int, char** argv) {
  const std::string way = argv[1];
  try {
    dist::init();
    std::fprintf(stderr, "rank %d is process %d\n", dist::rank(), ::getpid());
    return run(way, std::atoi(argv[2]), argv[3], way == "none" ? 1'000'000 : 20);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", dist::rank(), error.what());
    return 1;
  }
}
