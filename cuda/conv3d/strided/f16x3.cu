// Launches f16x3.cuh.

#include <voxgrad/cuda/conv3d/strided/f16x3.cuh>
#include <voxgrad/cuda/conv3d/strided/launch.cuh>

namespace vox::cuda::conv::strided {

namespace {

/// Weights as they lie in a stage (common/pack.cuh): [group and block of
/// channels][kind][k-block]([item][part] [channel][16 bytes], zeros[channel][16 bytes]). The zeros are not
/// packed.
template <int channels_of_block>
struct ScaledLayout {
  Plan p;
  ItemTaps taps;

  static constexpr int channels = 8;
  int64_t columns() const { return int64_t{p.groups} * p.channel_blocks * channels_of_block; }
  int64_t granules() const { return columns() * p.k_blocks * p.items(); }
  constexpr int64_t next_part() const { return channels_of_block * 16; }
  constexpr Granule at(auto number) const {
    const auto [k_block, item, group, block, channel] =
        digits(number, {p.items(), p.groups, p.channel_blocks, channels_of_block});
    return {.group = group,
            .in = k_block * channels,
            .out = block * channels_of_block + channel,
            .tap = taps.of[item],
            .to = p.weights_at(group, block, k_block, item) + channel * 16};
  }
};

}  // namespace

template <>
void run<float, F16x3>(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed_tensor] = call;
  const auto& planned = recall<make_scaled_plan>(g, transposed);
  const Plan& p = planned->items.plan;
  visit_tile_shape<scaled_tiles_of_64>(planned->items.tile, [&]<int channels, int slots, int tiles>() {
    using Block = ScaledBlock<channels, slots, tiles>;
    const int columns = p.groups * p.channel_blocks;
    const int64_t packed_bytes = int64_t{columns} * p.block_weights;  // a multiple of 16
    const Launch launch(call.op(), output, {&input, &weight, &bias, &failed_tensor});
    const Workspace packed(launch, packed_bytes + int64_t{columns} * Block::channels * 4);
    auto* const to = packed.as<unsigned char>();
    float* const unscale = reinterpret_cast<float*>(to + packed_bytes);
    int64_t* const failed = vox::detail::mutable_ptr<int64_t>(failed_tensor);
    launch.check(cudaMemsetAsync(to, 0, static_cast<size_t>(packed_bytes), launch.stream()));
    pack_weights<F16x3>(launch, vox::detail::ptr<float>(weight), to, weights_of(g, transposed),
                        ScaledLayout<Block::channels>{p, planned->items.taps}, failed, nullptr, unscale);
    launch_blocks<scaled_product_kernel<Block>>(
        launch, p, vox::detail::ptr<float>(input), to, unscale, vox::detail::ptr_or_null<float>(bias),
        vox::detail::mutable_ptr<float>(output), planned->instructions, planned->most_in_sum, failed);
  });
}

}  // namespace vox::cuda::conv::strided
