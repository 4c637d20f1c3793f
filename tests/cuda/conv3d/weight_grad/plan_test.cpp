#include <voxgrad/cuda/conv3d/weight_grad/plan.h>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::weight_grad {
namespace {

void expect_sound(const Plan& p) {
  EXPECT_GT(p.shared_bytes, 0);
  EXPECT_LE(p.shared_bytes, 227 * 1024 - 512);
  for (const int64_t entry : {int64_t{p.channel_pitch}, int64_t{p.slot_words}, int64_t{p.plane_words},
                              int64_t{p.big_entries}, int64_t{p.small_entries}, p.slices, p.steps, p.splits})
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
        SCOPED_TRACE(str("dilation ", apart, ", factors ", static_cast<int>(factors)));
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
  const Evaluation& products;
  const Plan& p;
  const Slice& slice;
  int neighbours;  // that are loaded together
  Ints number = Ints(static_cast<size_t>(int64_t{p.axis[0].extent} * p.slot_words * p.per_word), unknown);

  static constexpr int64_t unknown = -2;

  void load(const Column& column, int d, int phase, int plane, int step) {
    const PhasedAxis &depth = p.axis[0], &w = p.axis[2];
    const int z = (d + depth.first[phase] + plane) * depth.stride + depth.residue[phase];
    for (int i = 0; i < p.big_entries; i += neighbours) {
      const Entry e = big_entry(p, column, i);
      if (e.to < 0) continue;
      for (int c = 0; c < p.octets * 8; ++c) {
        const int64_t row =
            int64_t{slot_of(p, phase, plane, step)} * p.slot_words + int64_t{c} * p.channel_pitch;
        const int channel = slice.first_octet * 8 + c;
        for (int j = 0; j < neighbours; ++j) {
          const int from = e.from + j;
          const int64_t element = e.from < 0 || channel >= p.big_per_group
                                      ? outside
                                      : products.big(column.image, slice.group * p.big_per_group + channel,
                                                     {z, from / w.big, from % w.big});
          const auto at = static_cast<size_t>(row * p.per_word + e.to + j);
          number.at(at) = element;
          if (p.copy_words > 0) number.at(at + static_cast<size_t>(2 * p.copy_words - 1)) = element;
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

/// The products of a slice in a split, as kernel.cuh and produce.cuh: its steps, one coarse depth of a tile
/// of coarse rows each; the planes that a step adds to the ring; its octets and columns.
void walk(Evaluation& products, const Plan& p, const Slice& slice, int64_t begin, int64_t end,
          int neighbours) {
  const auto& [depth, h, w] = p.axis;
  SharedBig shared{products, p, slice, neighbours};
  for (int64_t i = begin; i < end; ++i) {
    const Column column = column_of(p, i / depth.small);
    const int d = static_cast<int>(i % depth.small), step = static_cast<int>(i - begin);
    for (int phase = 0; phase < depth.phases; ++phase)
      for (int plane = d == 0 || step == 0 ? 0 : depth.span[phase] - 1; plane < depth.span[phase]; ++plane)
        shared.load(column, d, phase, plane, step);
    for (int octet = 0; octet < p.octets_in_slice(); ++octet) {
      const OctetPlace place = place_of_octet(p, slice, octet);
      const int tap = slice.first_tap + octet % p.slice_taps;
      if (tap >= p.taps) continue;
      for (int channel = 0; channel < 8; ++channel) {
        const int of_big = (slice.first_octet + octet / p.slice_taps) * 8 + channel;
        for (int position = 0; position < p.small_entries; ++position) {
          const int from = small_entry(p, column, position).from;
          if (from < 0) continue;  // zeros of small
          const int64_t big = shared.read(place, channel, position / w.tile, position % w.tile, step);
          EXPECT_NE(big, SharedBig::unknown);
          for (int c = 0; c < p.columns && slice.first_column + c < p.small_per_group; ++c) {
            const int of_small = slice.group * p.small_per_group + slice.first_column + c;
            products.multiply(big,
                              products.small(column.image, of_small, {d, from / w.small, from % w.small}),
                              products.weight(of_small, of_big, tap));
          }
        }
      }
    }
  }
}

void expect_definition(const Conv3dGeometry& g, const Plan& p, int neighbours) {
  testing::evaluate(g, Conv3dPass::weight_grad, [&](Evaluation& products) {
    for (int64_t block = 0; block < p.slices * p.splits; ++block) {
      const Slice slice = slice_of(p, block % p.slices);
      const int64_t split = block / p.slices;
      walk(products, p, slice, split * p.steps / p.splits, (split + 1) * p.steps / p.splits, neighbours);
    }
    products.store_all();
  });
}

TEST(Conv3dWeightGradPlan, EvaluatesTheDefinition) {
  const auto geometry = [](const Shape& input, const Shape& weight, const Conv3dOptions& options) {
    return detail::conv3d_geometry("test", input, weight, options);
  };
  const Conv3dGeometry geometries[]{
      geometry({2, 17, 4, 6, 40}, {8, 17, 3, 3, 3}, {.padding = 1}),
      geometry({1, 9, 2, 64, 72}, {2, 9, 3, 3, 3}, {.padding = 1}),
      geometry({2, 16, 3, 10, 24}, {16, 8, 3, 3, 3}, {.padding = 1, .groups = 2}),
      geometry({1, 8, 3, 5, 17}, {8, 8, 1, 1, 1}, {}),
      geometry({1, 9, 5, 6, 33}, {9, 9, 2, 3, 5}, {.padding = {1, 0, 2}}),
      geometry({1, 8, 7, 9, 37}, {8, 8, 4, 4, 4}, {.stride = 2, .padding = 1}),
      geometry({1, 8, 6, 8, 34}, {8, 8, 2, 2, 2}, {.stride = 2}),
      geometry({1, 8, 9, 11, 62}, {8, 8, 2, 3, 3},
               {.stride = {3, 1, 3}, .padding = {0, 2, 4}, .dilation = {2, 1, 2}}),
      geometry({1, 8, 3, 7, 50}, {8, 8, 1, 1, 4}, {.padding = {0, 0, 3}, .dilation = {1, 1, 3}}),
      geometry({1, 130, 1, 2, 20}, {65, 130, 3, 3, 3}, {.padding = 1}),
      geometry({1, 8, 2, 12, 16}, {8, 8, 1, 9, 9}, {.padding = {0, 4, 4}}),
  };
  for (const Conv3dGeometry& g : geometries)
    for (const Factors factors : {Factors::tf32, Factors::tf32x3, Factors::of_16_bits}) {
      SCOPED_TRACE(str(g.big_shape(), " factors ", static_cast<int>(factors)));
      const auto p = make_plan(g, factors);
      ASSERT_TRUE(p.has_value());
      expect_sound(*p);
      const bool may_pair = factors == Factors::of_16_bits && g.stride.w == 1 && g.big.w % 2 == 0;
      expect_definition(g, *p, 1);
      if (may_pair) expect_definition(g, *p, 2);
    }
}

}  // namespace
}  // namespace vox::cuda::conv::weight_grad
