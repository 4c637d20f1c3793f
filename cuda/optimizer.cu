#include <voxgrad/ops/adam_step.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/rmsprop_step.h>
#include <voxgrad/cuda/list.cuh>

// Steps of optimisers: two launches for each 72 parameters of one dtype.

namespace vox::cuda {
namespace {

/// Counts the update of each parameter of a batch.
template <class Step>
__global__ void begin_step(ListBatch batch, Step step, detail::UpdateNumbers* numbers) {
  const auto k = static_cast<int>(threadIdx.x);
  if (k < batch.count) numbers[k] = step.numbers(++*static_cast<int64_t*>(batch.entries[k].at[4]));
}

template <class T, class Formula>
struct Update {
  using C = opmath_t<T>;
  Formula formula;
  const detail::UpdateNumbers* numbers;

  template <int n>
  __device__ void run(const ListEntry& entry, int k, int64_t i) const {
    using Elements = Packet<T, n>;
    using Buffer = Packet<C, n>;
    auto* const parameter = reinterpret_cast<Elements*>(static_cast<T*>(entry.at[0]) + i);
    auto* const m_memory =
        entry.at[2] ? reinterpret_cast<Buffer*>(static_cast<C*>(entry.at[2]) + i) : nullptr;
    auto* const v_memory =
        entry.at[3] ? reinterpret_cast<Buffer*>(static_cast<C*>(entry.at[3]) + i) : nullptr;
    Elements p = *parameter;
    const Elements g = *reinterpret_cast<const Elements*>(static_cast<const T*>(entry.at[1]) + i);
    Buffer m = m_memory ? *m_memory : Buffer{}, v = v_memory ? *v_memory : Buffer{};
    const auto scale = static_cast<C>(numbers[k].scale), scale2 = static_cast<C>(numbers[k].scale2);
#pragma unroll
    for (int lane = 0; lane < n; ++lane) {
      C value = static_cast<C>(p.lane[lane]);
      formula(value, static_cast<C>(g.lane[lane]), m.lane[lane], v.lane[lane], scale, scale2);
      p.lane[lane] = static_cast<T>(value);
    }
    *parameter = p;
    if (m_memory) *m_memory = m;
    if (v_memory) *v_memory = v;
  }
};

// Allocates nothing: after the first launch a step must not fail for a lack of memory.
static_assert(ListBatch::most == detail::most_in_launch);
template <class Step>
void step_all(const Step& step, std::span<const detail::OptimizerItem> items) {
  const Launch launch("Optimizer", items[0].parameter, {&items[0].numbers});
  auto* const numbers = static_cast<detail::UpdateNumbers*>(items[0].numbers.impl()->data());
  ListBatch batch;
  for (const DType dtype : {f32, f64, bf16, f16}) {
    visit_floating_storage("Optimizer", dtype, [&]<class T>(T) {
      using Formula = typename Step::template Formula<opmath_t<T>>;
      const Update<T, Formula> update{Formula(step), numbers};
      const auto run = [&] {
        if (batch.count == 0) return;
        begin_step<<<1, ListBatch::most, 0, launch.stream()>>>(batch, step, numbers);
        launch.check();  // without these numbers nothing may change
        for_each_packet<16 / sizeof(T)>(launch, batch, update);
        batch.count = 0;
      };
      for (const detail::OptimizerItem& item : items) {
        if (item.parameter.dtype() != dtype) continue;
        ListEntry& entry = batch.entries[batch.count++] = {.numel = item.parameter.numel()};
        const Tensor* const tensors[ListEntry::most_tensors] = {
            &item.parameter, &item.gradient, &item.buffers[0], &item.buffers[1], &item.updates};
        for (int k = 0; k < ListEntry::most_tensors; ++k) {
          if (!tensors[k]->defined()) continue;
          launch.uses(*tensors[k]);
          entry.at[k] = tensors[k]->impl()->data();
        }
        if (batch.count == ListBatch::most) run();
      }
      run();
    });
  }
}

}  // namespace

void sgd_step(const detail::SgdStep& step, std::span<const detail::OptimizerItem> items) {
  step_all(step, items);
}
void adam_step(const detail::AdamStep& step, std::span<const detail::OptimizerItem> items) {
  step_all(step, items);
}
void rmsprop_step(const detail::RmspropStep& step, std::span<const detail::OptimizerItem> items) {
  step_all(step, items);
}

}  // namespace vox::cuda
