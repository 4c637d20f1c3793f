// Makes the plans of f16x3.cuh and launches it.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/strided/f16x3.cuh>

#include <algorithm>
#include <cmath>
#include <optional>

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

constexpr int tiles_of_64 = 1;  // with several slots: totals and sums both take registers

/// A plan, with and without instructions in place of items.
struct ScaledPlanned {
  TileShape tile;
  Planned items;
  Plan instructions;
  MostInSum most_in_sum;
};

/// How many taps a sum may hold: truncation (Note [Truncating sums] in common/operands.cuh) is then about as
/// large as f32's own error. An even number, so that all taps except the last have partners.
int most_taps_in_sum(double products) {
  return std::clamp(static_cast<int>(std::sqrt(products) / 4) * 2, 2, 20);
}

/// Every tap is one instruction for high low' + low high'. Two taps share one instruction for high high'; a
/// last odd one is paired with zeros. In a sum the small products come first, because each addition truncates
/// the sum so far. Nothing if there are too many instructions, or if a partner does not lie behind its tap.
std::optional<ScaledPlanned> make_scaled_plan(const Conv3dGeometry& g, bool transposed) {
  TileShape tile = tile_for(g, transposed, {.operand = 4, .storage = 4, .scaled = true});
  if (tile.channels == 64 && tile.slots > 1) tile.tiles = tiles_of_64;
  auto planned = make_plan(g, transposed, tile);
  if (!planned && tile.channels > 32) {  // half of a stage's weights may fit
    tile = shape_of(32, tile.slots > 1, tile.bytes);
    planned = make_plan(g, transposed, tile);
  }
  if (!planned) return std::nullopt;
  ScaledPlanned scaled{tile, *planned, planned->plan, {}};
  const Plan& p = scaled.items.plan;
  Plan& to = scaled.instructions;
  int count = 0;
  const auto add = [&](uint32_t position, uint32_t input_distance, uint32_t weights, uint32_t distance) {
    if (count < most_items) to.item[count] = {position | input_distance << 16, weights | distance << 16};
    ++count;
  };
  const auto part = static_cast<uint32_t>(tile.channels);  // of an item's weights, in units of 16 bytes
  for (int k = 0; k < p.kinds; ++k) {
    const Kind& kind = p.kind[k];
    const auto to_low = static_cast<uint32_t>(kind.granule_pitch),
               zeros = static_cast<uint32_t>(kind.stage_weights) / 16 - part;
    for (int slot = 0; slot < most_slots; ++slot) {
      const int first = kind.first[slot], last = kind.first[slot + 1], taps = last - first;
      const int of_output = transposed ? taps : p.kind[p.kinds - 1].first[most_slots];
      const int most = most_taps_in_sum(static_cast<double>(of_output) * p.in_per_group);
      const int chunks = std::max((taps + most - 1) / most, 1);
      const int chunk = std::max((taps + 2 * chunks - 1) / (2 * chunks) * 2, 2);
      scaled.most_in_sum.of[k][slot] = static_cast<uint8_t>(chunk + chunk / 2);
      to.kind[k].first[slot] = static_cast<uint16_t>(count);
      for (int begin = first; begin < last; begin += chunk) {
        const int end = std::min(begin + chunk, last);
        for (int i = begin; i < end; ++i) add(p.item[i].position, to_low, p.item[i].weights, part);
        for (int i = begin; i < end; i += 2) {
          const auto [position, weights] = p.item[i];
          const uint32_t high = weights + 2 * part;
          if (i + 1 == end) {
            add(position, to_low, high, zeros - high);
          } else {
            if (p.item[i + 1].position < position) return std::nullopt;
            add(position, p.item[i + 1].position - position, high, 3 * part);
          }
        }
      }
    }
    to.kind[k].first[most_slots] = static_cast<uint16_t>(count);
  }
  if (count >= most_items) return std::nullopt;  // the kernel reads one beyond the end
  return scaled;
}

}  // namespace

template <>
bool takes<float, F16x3>(const Conv3dGeometry& g, bool transposed) {
  return recall<make_scaled_plan>(g, transposed).has_value();
}

bool f16x3_pays(const Conv3dGeometry& g, bool transposed) {
  const auto& planned = recall<make_scaled_plan>(g, transposed);
  if (!planned) return false;
  const Plan& p = planned->items.plan;
  constexpr int64_t enough = 24;  // of 132 multiprocessors
  return int64_t{p.batch} * p.depth_blocks * p.plane_tiles * p.groups * p.channel_blocks >= enough;
}

template <>
void run<float, F16x3>(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed_tensor] = call;
  const auto& planned = recall<make_scaled_plan>(g, transposed);
  const Plan& p = planned->items.plan;
  visit_tile_shape<tiles_of_64>(planned->tile, [&]<int channels, int slots, int tiles>() {
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
    launch.allow_shared_memory<scaled_product_kernel<Block>>(p.shared_bytes);
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    const int in_parallel = std::clamp(multiprocessors(launch) / columns, 1, all_tiles);
    scaled_product_kernel<Block><<<dim3(static_cast<unsigned>(in_parallel), static_cast<unsigned>(columns)),
                                   block_threads, p.shared_bytes, launch.stream()>>>(
        vox::detail::ptr<float>(input), to, unscale, vox::detail::ptr_or_null<float>(bias),
        vox::detail::mutable_ptr<float>(output), planned->instructions, planned->most_in_sum, failed);
    launch.check();
  });
}

}  // namespace vox::cuda::conv::strided
