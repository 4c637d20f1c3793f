#include "../common/shim.h"

#include <limits>

// What vs_pytorch does with a task's results, to see that a run writes all of them.

extern "C" {

/// Where result `index` of the last run lies.
VoxgradStatus voxgrad_bench_task_address(const bench::Task* task, int index, const void** address) {
  return guarded([&] { *address = task->results.at(index).impl()->data(); });
}

/// Writes NaN over the results and gives their memory back to the pool, which hands it out again.
VoxgradStatus voxgrad_bench_task_poison(bench::Task* task) {
  return guarded([&] {
    for (const vox::Tensor& result : task->results)
      result.detach().fill_(std::numeric_limits<float>::quiet_NaN());
    task->results.clear();
  });
}
}
