#pragma once

#include <algorithm>

#include <voxgrad/core/parallel.h>

namespace vox::cpu {

/// Calls task(i) for every i in [0, n), from several threads. A chunk of parallel_for() takes `grain` of
/// them, at least one.
template <class Task>
void for_tasks(int64_t n, int64_t grain, const Task& task) {
  parallel_for(n, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) task(i);
  });
}

}  // namespace vox::cpu
