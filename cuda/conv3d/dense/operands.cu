#include <voxgrad/cuda/conv3d/dense/operands.cuh>

namespace vox::cuda::conv::dense {

namespace {

template <class Storage, class Operand>
__global__ void __launch_bounds__(tile_threads)
    channels_last_kernel(const Storage* x, uint32_t* to, const float* largest,
                         const __grid_constant__ ChannelsLast p) {
  channels_last_tile<Storage, Operand>(x, to, p, blockIdx.x, largest);
}

}  // namespace

template <class Storage, class Operand>
void to_channels_last(const Launch& launch, const Storage* x, int64_t batch, int64_t channels, int64_t cells,
                      typename Operand::Element* to, const float* largest) {
  const ChannelsLast p = channels_last<Storage, Operand>(x, batch, channels, cells);
  channels_last_kernel<Storage, Operand>
      <<<static_cast<unsigned>(p.blocks), tile_threads, 0, launch.stream()>>>(
          x, reinterpret_cast<uint32_t*>(to), largest, p);
  launch.check();
}

template void to_channels_last<float, Tf32>(const Launch&, const float*, int64_t, int64_t, int64_t, uint32_t*,
                                            const float*);
template void to_channels_last<float, Bf16>(const Launch&, const float*, int64_t, int64_t, int64_t, bfloat16*,
                                            const float*);
template void to_channels_last<bfloat16, Bf16>(const Launch&, const bfloat16*, int64_t, int64_t, int64_t,
                                               bfloat16*, const float*);
template void to_channels_last<float16, F16>(const Launch&, const float16*, int64_t, int64_t, int64_t,
                                             float16*, const float*);
template void to_channels_last<float, ScaledF16>(const Launch&, const float*, int64_t, int64_t, int64_t,
                                                 float16*, const float*);

}  // namespace vox::cuda::conv::dense
