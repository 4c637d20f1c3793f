#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/weight_grad/plan.h>

#include <algorithm>
#include <vector>

// Plans are made on the CPU, so they can be tested without a GPU.

namespace vox::cuda::conv::weight_grad {
namespace {

void expect_sound(const Plan& p) {
  EXPECT_GT(p.shared_bytes, 0);
  EXPECT_LE(p.shared_bytes, 227 * 1024 - 512);
  for (const int64_t entry : {int64_t{p.channel_pitch}, int64_t{p.slot_words}, int64_t{p.plane_words},
                              int64_t{p.big_entries}, int64_t{p.small_entries}, p.slices, p.steps, p.slabs})
    EXPECT_GT(entry, 0);
  int64_t words = int64_t{p.axis[0].extent} * p.slot_words + int64_t{2} * p.parts * p.tile_words();
  words += 2 * (int64_t{p.big_entries} + p.small_entries) + int64_t{2} * p.products * 8;
  EXPECT_EQ(p.shared_bytes, 4 * words);
}

// The extent of a window grows with the distance of the taps, and its size with the square of it.
TEST(Conv3dWeightGradPlan, TapsFarApartHaveASoundPlanOrNone) {
  int plans = 0;
  for (int64_t dilation = 1; dilation <= 60'000; dilation += dilation < 64 ? 1 : dilation / 16) {
    for (const Triple& apart : {Triple(1, dilation, dilation), Triple(dilation, 1, 1), Triple(dilation)}) {
      const auto g = detail::conv3d_geometry("test", {2, 16, 16, 16, 16}, {16, 16, 3, 3, 3},
                                             {.padding = apart, .dilation = apart});
      for (const Factors factors : {Factors::tf32, Factors::tf32x3, Factors::of_16_bits}) {
        SCOPED_TRACE(::testing::Message()
                     << "dilation " << apart << ", factors " << static_cast<int>(factors));
        const auto p = make_plan(g, factors);
        if (!p) continue;
        ++plans;
        expect_sound(*p);
      }
    }
  }
  EXPECT_GT(plans, 10);
  for (const int64_t far : {20'000, 23'170, 32'768, 46'341, 60'000}) {
    const auto g = detail::conv3d_geometry("test", {2, 16, 1, 16, 16}, {16, 16, 1, 3, 3},
                                           {.padding = Triple(0, far, far), .dilation = Triple(1, far, far)});
    for (const Factors factors : {Factors::tf32, Factors::tf32x3, Factors::of_16_bits})
      EXPECT_FALSE(make_plan(g, factors).has_value()) << far;
  }
}

/// Shared memory for big, as producers fill it and consumers read it, with the numbers of elements for
/// values.
struct SharedBig {
  const Plan& p;
  int neighbours;  // that are brought together
  std::vector<int64_t> number =
      std::vector<int64_t>(static_cast<size_t>(int64_t{p.axis[0].extent} * p.slot_words * p.per_word), -1);

  /// The number of an element of an image of big; 0 outside.
  int64_t number_of(int64_t channel, int64_t z, int64_t y, int64_t x) const {
    const auto& [d, h, w] = p.axis;
    if (channel >= p.big_per_group || z < 0 || z >= d.big || y < 0 || y >= h.big || x < 0 || x >= w.big)
      return 0;
    return ((channel * d.big + z) * h.big + y) * w.big + x + 1;
  }

  void bring(const Slice& slice, const Column& column, int d, int phase, int plane, int step) {
    const PhasedAxis &depth = p.axis[0], &w = p.axis[2];
    const int z = (d + depth.first[phase] + plane) * depth.stride + depth.residue[phase];
    for (int i = 0; i < p.big_entries; i += neighbours) {
      const Entry e = big_entry(p, column, i);
      if (e.to < 0) continue;
      for (int c = 0; c < p.octets * 8; ++c) {
        const int64_t row =
            int64_t{slot_of(p, phase, plane, step)} * p.slot_words + int64_t{c} * p.channel_pitch;
        for (int j = 0; j < neighbours; ++j) {
          const int from = e.from + j;
          const int64_t value =
              e.from < 0 ? 0 : number_of(slice.first_octet * 8 + c, z, from / w.big, from % w.big);
          const auto at = static_cast<size_t>(row * p.per_word + e.to + j);
          number.at(at) = value;
          if (p.copy_words > 0) number.at(at + static_cast<size_t>(2 * p.copy_words - 1)) = value;
        }
      }
    }
  }

  /// What a consumer multiplies with position x of coarse row y of the tile.
  int64_t read(const OctetPlace& octet, int channel, int y, int x, int step) const {
    const int64_t word = int64_t{slot_of(p, octet.phase, octet.plane, step)} * p.slot_words + octet.place +
                         int64_t{channel} * p.channel_pitch + int64_t{y} * p.axis[2].extent;
    return number.at(static_cast<size_t>(word * p.per_word + x));
  }
};

void expect_consumers_to_read_what_taps_touch(const Conv3dGeometry& g, const Plan& p, const Slice& slice,
                                              const Column& column, int neighbours) {
  const auto& [depth, h, w] = p.axis;
  SharedBig shared{p, neighbours};
  for (int d = 0; d < depth.small; ++d) {
    for (int phase = 0; phase < depth.phases; ++phase)
      for (int plane = d == 0 ? 0 : depth.span[phase] - 1; plane < depth.span[phase]; ++plane)
        shared.bring(slice, column, d, phase, plane, d);
    for (int octet = 0; octet < p.octets_in_slice(); ++octet) {
      const OctetPlace place = place_of_octet(p, slice, octet);
      const int tap = slice.first_tap + octet % p.slice_taps;
      if (tap >= p.taps) continue;
      const int64_t kd = tap / (h.kernel * w.kernel), kh = tap / w.kernel % h.kernel, kw = tap % w.kernel;
      for (int channel = 0; channel < 8; ++channel)
        for (int y = 0; y < std::min(h.tile, h.small - column.h); ++y)
          for (int x = 0; x < std::min(w.tile, w.small - column.w); ++x)
            ASSERT_EQ(shared.read(place, channel, y, x, d),
                      shared.number_of((slice.first_octet + octet / p.slice_taps) * 8 + channel,
                                       d * g.stride.d - g.padding.d + kd * g.dilation.d,
                                       (column.h + y) * g.stride.h - g.padding.h + kh * g.dilation.h,
                                       (column.w + x) * g.stride.w - g.padding.w + kw * g.dilation.w))
                << "octet " << octet << ", channel " << channel << ", cell " << d << ' ' << y << ' ' << x;
    }
  }
}

TEST(Conv3dWeightGradPlan, ConsumersReadWhatTapsTouch) {
  const auto geometry = [](const Shape& input, const Shape& weight, const Conv3dOptions& options) {
    return detail::conv3d_geometry("test", input, weight, options);
  };
  const Conv3dGeometry geometries[]{
      geometry({2, 17, 4, 6, 40}, {8, 17, 3, 3, 3}, {.padding = 1}),
      geometry({2, 32, 6, 64, 72}, {32, 32, 3, 3, 3}, {.padding = 1}),
      geometry({1, 8, 3, 5, 17}, {8, 8, 1, 1, 1}, {}),
      geometry({1, 9, 5, 6, 33}, {9, 9, 2, 3, 5}, {.padding = {1, 0, 2}}),
      geometry({1, 8, 7, 9, 37}, {8, 8, 4, 4, 4}, {.stride = 2, .padding = 1}),
      geometry({1, 8, 6, 8, 34}, {8, 8, 2, 2, 2}, {.stride = 2}),
      geometry({1, 8, 9, 11, 62}, {8, 8, 2, 3, 3},
               {.stride = {3, 1, 3}, .padding = {0, 2, 4}, .dilation = {2, 1, 2}}),
      geometry({1, 8, 3, 7, 50}, {8, 8, 1, 1, 4}, {.padding = {0, 0, 3}, .dilation = {1, 1, 3}}),
      geometry({1, 130, 2, 4, 20}, {65, 130, 3, 3, 3}, {.padding = 1}),
      geometry({1, 8, 2, 12, 16}, {8, 8, 1, 9, 9}, {.padding = {0, 4, 4}}),
  };
  for (const Conv3dGeometry& g : geometries)
    for (const Factors factors : {Factors::tf32, Factors::tf32x3, Factors::of_16_bits}) {
      SCOPED_TRACE(::testing::Message()
                   << g.big_shape() << ' ' << g.weight_shape() << " factors " << static_cast<int>(factors));
      const auto p = make_plan(g, factors);
      ASSERT_TRUE(p.has_value());
      expect_sound(*p);
      const bool may_pair = factors == Factors::of_16_bits && g.stride.w == 1 && g.big.w % 2 == 0;
      const int64_t last_tile = int64_t{p->axis[1].tiles} * p->axis[2].tiles - 1;  // of the first image
      for (const int64_t slice : {int64_t{0}, p->slices - 1})
        for (const int64_t tile : {int64_t{0}, last_tile})
          for (const int neighbours : {1, may_pair ? 2 : 1})
            expect_consumers_to_read_what_taps_touch(g, *p, slice_of(*p, slice), column_of(*p, tile),
                                                     neighbours);
    }
}

}  // namespace
}  // namespace vox::cuda::conv::weight_grad
