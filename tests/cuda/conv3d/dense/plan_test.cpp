#include <voxgrad/cuda/conv3d/dense/plan.h>
#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::dense {
namespace {

constexpr int operand_bytes = 2, row_elements = row_bytes / operand_bytes;

const Axis& axis_of(const Plan& p, size_t a) { return a == 0 ? p.d : a == 1 ? p.h : p.w; }

/// Adds the products of a block's steps to an output of its tile; the first block of a cluster stores it.
void sum(Evaluation& products, const Plan& p, const Job& j, const std::array<int, 3>& cell, int n, int out,
         int neighbour) {
  const std::array<int, 3> phase{j.phase_d, j.phase_h, j.phase_w};
  Evaluation::Cell to{};
  for (const size_t a : {0, 1, 2})
    to.at(a) =
        cell.at(a) * axis_of(p, a).out_step + axis_of(p, a).first_out[phase.at(a)] + (a == 2 ? neighbour : 0);
  const int64_t result = products.output(n, j.group * p.out_per_group + out, to);
  if (result == testing::outside) return;
  if (j.rank == 0) products.store(result);
  const Taps d = taps_of(p.d, j.phase_d), h = taps_of(p.h, j.phase_h), w = taps_of(p.w, j.phase_w);
  for (int i = steps_of(p, j).begin; i < steps_of(p, j).end; ++i) {
    const auto [at_d, at_h, at_w, chunk] = digits(i, {h.count, w.count, p.chunks});
    const std::array<int, 3> at{d.first + at_d, h.first + at_h, w.first + at_w};
    Evaluation::Cell from{}, tap{};
    for (const size_t a : {0, 1, 2}) {
      const Axis& axis = axis_of(p, a);
      from.at(a) = cell.at(a) * axis.in_step + axis.offset[at.at(a)];
      tap.at(a) = axis.tap[a == 2 ? neighbour : 0][at.at(a)];
    }
    const int end = std::min((chunk + 1) * row_elements, p.in_per_group);  // the others are zeros
    for (int c = chunk * row_elements; c < end; ++c)
      products.add(result, products.input(n, j.group * p.in_per_group + c, from),
                   products.weight(j.group, c, out, products.tap(tap)));
  }
}

/// As kernel.cuh and windows.cuh: jobs, boxes with zeros outside the input, columns, steps.
void walk(Evaluation& products, const Planned& planned) {
  const Plan& p = planned.plan;
  const int columns = planned.tile.columns, joined = 1 << p.joined;
  for (int block = 0; block < p.blocks; ++block) {
    const Job j = job_of(p, block);
    EXPECT_LT(j.phase_d, p.d.phases);
    for (int row = 0; row < p.box_rows; ++row) {
      const auto [n, d, h, w] = digits(row, {p.d.box, p.h.box, p.w.box});
      for (int column = 0; column < columns && j.n + n < p.batch; ++column)
        if (const int out = (j.column_tile * columns + column) / joined; out < p.out_per_group)
          sum(products, p, j, {j.d + d, j.h + h, j.w + w}, j.n + n, out, column % joined);
    }
  }
}

void expect_reference(const Planned& planned, const Conv3dGeometry& g) {
  testing::evaluate(g, planned.plan.transposed, [&](Evaluation& products) { walk(products, planned); });
}

/// The properties of a plan that the kernel relies on.
void expect_fits(const Planned& planned) {
  const auto& [t, p, cycles] = planned;
  EXPECT_NE(std::ranges::find(tile_shapes, t), std::end(tile_shapes));
  EXPECT_NE(std::ranges::find(splits, p.split), std::end(splits));
  EXPECT_GE(p.stages, 2);
  EXPECT_LE(p.resident, t.most_resident());
  EXPECT_LE(p.shared_bytes * p.resident, (228 - p.resident) * 1024);
  EXPECT_EQ(p.stage_bytes % 1024, 0);
  EXPECT_EQ(p.box_rows, p.w.box * p.h.box * p.d.box * p.box_n);
  EXPECT_LE(p.box_rows, t.rows());
  EXPECT_LE((t.columns >> p.joined) * p.staged_pitch * 4, p.stages * p.stage_bytes);
  EXPECT_GE(p.staged_pitch, t.rows() << p.joined);
  for (const Axis* x : {&p.d, &p.h, &p.w}) {
    EXPECT_GE(x->tiles * x->box, x->cells);
    EXPECT_LE((x->box - 1) * x->in_step + 1, 256);
  }
  EXPECT_TRUE(!p.quads ||
              (p.w.out % 4 == 0 && (p.w.box << p.joined) % 4 == 0 && p.w.out_step == 1 << p.joined));
}

TEST(Conv3dDensePlan, WalksEqualTheReference) {
  Random random{std::mt19937_64(7)};
  int compared = 0, joined = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool transposed = i % 2 == 0, many_channels = i % 5 == 0;
    const Triple kernel = random.triple(1, i % 7 ? 4 : 8);
    const Conv3dOptions o{.stride = random.triple(1, i % 3        ? 2
                                                     : transposed ? 4
                                                                  : 8),
                          .padding = random.triple(0, 3),
                          .dilation = i % 4 < 2 ? Triple(1) : random.triple(1, 3),
                          .groups = i % 3 ? 1 : random(1, 3)};
    const int64_t most = (many_channels ? 140 : 12) / o.groups, width = i % 3 ? 9 : 140;
    const Shape input{random(1, 3), random(1, most) * o.groups, random(1, 7),
                      random(1, many_channels ? 3 : 9), random(1, many_channels ? 6 : width)};
    const auto g = geometry(transposed, input, random(1, most) * o.groups, kernel, o);
    if (!g || products_of(*g) > 100'000) continue;
    const TileShape tile = tile_shapes[static_cast<size_t>(random(0, std::ssize(tile_shapes) - 1))];
    const int split = splits[static_cast<size_t>(random(0, std::ssize(splits) - 1))];
    const auto planned = i % 2 ? best_plan(*g, transposed, operand_bytes, h200)
                               : make_plan(*g, transposed, operand_bytes, tile, split, h200);
    ASSERT_TRUE(planned);
    expect_fits(*planned);
    expect_reference(*planned, *g);
    ++compared;
    joined += planned->plan.joined > 0;
  }
  EXPECT_GT(compared, 400);
  EXPECT_GT(joined, 30);
}

/// The properties of a plan that windows.cuh relies on.
void expect_windows_fit(const Planned& planned) {
  const Plan& p = planned.plan;
  EXPECT_EQ(planned.tile, windows_tile);
  EXPECT_EQ(p.box_rows, windows_tile.rows());
  EXPECT_EQ(p.w.box * p.h.box * p.d.box, slices * slice_edge * slice_edge);
  EXPECT_GE(p.stages, 3);
  EXPECT_EQ(p.stage_bytes % 1024, 0);
  EXPECT_EQ(p.window_bytes % 1024, 0);
  EXPECT_GE(p.window_bytes, slices * p.window_w * p.window_h * row_bytes);
  EXPECT_EQ(p.shared_bytes, 1024 + window_slots * p.window_bytes + p.stages * p.stage_bytes);
  EXPECT_LE(p.shared_bytes, 227 * 1024);
  for (const auto& [axis, window] : {std::pair(&p.h, p.window_h), std::pair(&p.w, p.window_w)}) {
    EXPECT_LE(window, 256);
    const int first = std::min(axis->offset[0], axis->offset[axis->taps() - 1]);
    for (int tap = 0; tap < axis->taps(); ++tap) {
      EXPECT_GE(axis->offset[tap] - first, 0);
      EXPECT_LE(axis->offset[tap] - first + axis->box, window);
    }
  }
}

TEST(Conv3dDensePlan, WalksOfWindowsEqualTheReference) {
  Random random{std::mt19937_64(8)};
  int compared = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool transposed = i % 2 == 0;
    const Triple kernel{random(1, 4), random(1, 5), random(1, 5)};
    const Conv3dOptions o{.padding = random.triple(0, 3),
                          .dilation = {random(1, 3), 1, i % 5 ? 1 : random(1, 2)},
                          .groups = i % 3 ? 1 : random(1, 3)};
    const int64_t most = (i % 4 ? 8 : 70) / o.groups;
    const Shape input{random(1, 2), random(1, most) * o.groups, random(1, 5), random(1, 20), random(1, 20)};
    const auto g = geometry(transposed, input, random(1, most) * o.groups, kernel, o);
    if (!g || products_of(*g) > 200'000) continue;
    const auto planned = make_windows_plan(*g, transposed, operand_bytes, h200);
    if (!planned) {
      EXPECT_GT(g->dilation.w * (g->kernel.w - 1), 4);
      continue;
    }
    expect_windows_fit(*planned);
    expect_reference(*planned, *g);
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(Conv3dDensePlan, BoxesFillTheirRows) {
  const auto conv = [](const Triple& cells, int64_t batch) {
    return *geometry(false, {batch, 64, cells.d, cells.h, cells.w}, 64, 3, {.padding = 1});
  };
  const auto boxes = [&](const Triple& cells, int64_t batch) {
    const Plan p = make_plan(conv(cells, batch), false, 2, {1, 64}, 1, h200)->plan;
    return p.d.tiles * p.h.tiles * p.w.tiles * p.batch_tiles;
  };
  EXPECT_EQ(boxes({32, 32, 32}, 2), 2 * 32 * 32 * 32 / 128);
  EXPECT_EQ(boxes({4, 4, 4}, 2), 1);  // both samples
  EXPECT_EQ(boxes({5, 5, 5}, 1), 1);
  EXPECT_EQ(boxes({20, 20, 20}, 1), 70);  // of 63 at least
  EXPECT_EQ(boxes({1, 1, 1}, 300), 3);
}

// A part of a GPU may have no room for a cluster.
TEST(Conv3dDensePlan, IsForAnyNumberOfMultiprocessors) {
  const auto g = *geometry(false, {1, 256, 4, 4, 4}, 64, 3, {.padding = 1});
  for (const int multiprocessors : {1, 2, 7, 9, 132}) {
    const auto planned = best_plan(g, false, 2, testing::with_multiprocessors(multiprocessors));
    ASSERT_TRUE(planned);
    EXPECT_LE(planned->plan.split, multiprocessors);
    expect_fits(*planned);
  }
}

TEST(Conv3dDensePlan, RefusesWhatDoesNotFit) {
  const auto plan = [](bool transposed, const Shape& input, const Triple& kernel, const Conv3dOptions& o) {
    return best_plan(*geometry(transposed, input, 64, kernel, o), transposed, 2, h200).has_value();
  };
  EXPECT_TRUE(plan(false, {1, 64, 20, 20, 20}, {1, 1, 16}, {.stride = 8}));
  EXPECT_FALSE(plan(false, {1, 64, 20, 20, 20}, {1, 1, 17}, {}));
  EXPECT_FALSE(plan(false, {1, 64, 20, 20, 20}, {1, 1, 1}, {.stride = 9}));
  EXPECT_TRUE(plan(true, {1, 64, 4, 4, 4}, {2, 2, 2}, {.stride = 4}));
  EXPECT_FALSE(plan(true, {1, 64, 4, 4, 4}, {2, 2, 2}, {.stride = 5}));
  EXPECT_FALSE(plan(false, {1, 64, 1, 1, 1 << 15}, {1, 1, 2}, {.dilation = {1, 1, 1 << 14}}));
  EXPECT_FALSE(plan(false, {0, 64, 4, 4, 4}, {2, 2, 2}, {}));
  EXPECT_FALSE(plan(false, {1, 64, 512, 512, 512}, {1, 1, 1}, {}));  // 2^33 elements

  const auto windows = [](const Shape& input, const Triple& kernel, const Conv3dOptions& o) {
    return make_windows_plan(*geometry(false, input, 64, kernel, o), false, 2, h200).has_value();
  };
  EXPECT_TRUE(windows({1, 64, 20, 20, 20}, 5, {}));
  EXPECT_FALSE(windows({1, 64, 20, 20, 20}, 7, {}));
  EXPECT_FALSE(windows({1, 64, 20, 20, 20}, 3, {.stride = {2, 1, 1}}));
  EXPECT_FALSE(windows({0, 64, 4, 4, 4}, 3, {}));
  EXPECT_FALSE(windows({1, 64, 512, 512, 512}, 1, {}));
}

/// What TMA loads of a tensor's channel: the numbers of the elements of a box of cells (w, h, d, batch),
/// `step` cells apart.
template <class Element>
Ints loaded(const std::array<int64_t, 4>& from, const std::array<int, 4>& box, const int (&step)[3],
            Element element) {
  Ints numbers;
  for (int i = 0; i < box[0] * box[1] * box[2] * box[3]; ++i) {
    const auto [n, d, h, w] = digits(i, {box[2], box[1], box[0]});
    const int64_t image = from[3] + n;
    numbers.push_back(element(image, {from[2] + d * step[0], from[1] + h * step[1], from[0] + w * step[2]}));
  }
  return numbers;
}

/// The products of a step of a tile, 16 cells at a time. With `stores`, its elements of dweight are stored.
void add_step(Evaluation& products, const WeightGradPlan& p, const Conv3dGeometry& g, int tile, int64_t step,
              bool stores) {
  const auto [in, id, ih, iw] = digits(step, {p.boxes[2], p.boxes[1], p.boxes[0]});
  const std::array<int64_t, 4> at{iw * p.box[0], ih * p.box[1], id * p.box[2], in * p.box[3]};
  const int first_row = tile / p.window_tiles * p.tile.rows * chunk_channels;
  const int rows_end = std::min(first_row + p.tile.rows * chunk_channels, p.small_channels);
  const auto of_channel = [&](int64_t channel, auto element) {
    return [=, &products, &g](int64_t n, const Evaluation::Cell& cell) {
      return n < g.batch ? (products.*element)(n, channel, cell) : outside;
    };
  };
  std::vector<Ints> rows;  // of small
  for (int sc = first_row; sc < rows_end; ++sc)
    rows.push_back(
        loaded(at, {p.box[0], p.box[1], p.box[2], p.box[3]}, {1, 1, 1}, of_channel(sc, &Evaluation::small)));
  for (int v = 0; v < p.tile.windows; ++v) {
    const int index = tile % p.window_tiles * p.tile.windows + v;
    if (index >= p.windows()) continue;
    const Window window = window_at(p, index);
    const std::array<int64_t, 4> begin{at[0] * p.stride[2] + window.w, at[1] * p.stride[1] + window.h,
                                       at[2] * p.stride[0] + window.d, at[3]};
    for (int bc = window.first_channel; bc < std::min(window.first_channel + chunk_channels, p.big_channels);
         ++bc) {
      const auto a = loaded(begin, {p.window[0], p.window[1], p.box[2], p.box[3]}, p.stride,
                            of_channel(bc, &Evaluation::big));
      for (int sc = first_row; sc < rows_end; ++sc) {
        const auto& b = rows[static_cast<size_t>(sc - first_row)];
        for (int part = 0; part < p.tile.group_taps(); ++part) {
          const auto [h, w] = digits(part, {p.tile.group_w});
          if (window.k_h + h >= p.kernel[1] || window.k_w + w >= p.kernel[2]) continue;
          const int64_t weight =
              products.weight(sc, bc, products.tap({window.k_d, window.k_h + h, window.k_w + w}));
          if (stores) products.store(weight);
          const int shift = h * p.tap_cell[1] + w * p.tap_cell[0];
          for (int i = 0; i < box_cells; ++i)
            products.multiply(a.at(static_cast<size_t>(p.slice_cell[i / 16] + shift + i % 16)),
                              b.at(static_cast<size_t>(i)), weight);
        }
      }
    }
  }
}

/// As dense/weight_grad.cuh: runs of steps, tiles and splits.
void walk(Evaluation& products, const WeightGradPlan& p, const Conv3dGeometry& g) {
  std::vector<int> splits(static_cast<size_t>(p.tiles()));
  for (int block = 0; block < p.blocks; ++block) {
    EXPECT_LT(p.begin_of(block), p.begin_of(block + 1));
    for (int64_t step = p.begin_of(block); step < p.begin_of(block + 1); ++step) {
      const auto tile = static_cast<int>(step / p.steps);
      int& known = splits.at(
          static_cast<size_t>(tile));  // a block's split is the next one, or that of its step before
      const int split = block - p.first_block(tile);
      EXPECT_TRUE(split == known || split == known - 1);
      known = split + 1;
      add_step(products, p, g, tile, step % p.steps, step % p.steps == 0);
    }
  }
  EXPECT_EQ(p.begin_of(p.blocks), p.tiles() * p.steps);
  for (int tile = 0; tile < p.tiles(); ++tile) {
    EXPECT_EQ(splits.at(static_cast<size_t>(tile)), p.splits_of(tile));
    EXPECT_LE(p.splits_of(tile), p.splits);
  }
}

TEST(DenseWeightGradPlan, EvaluatesTheDefinition) {
  struct Case {
    Shape input, weight;
    ConvTranspose3dOptions options;
    int group_taps;  // of the tile that is chosen
  };
  const Case cases[]{
      {{1, 2, 4, 4, 4}, {2, 3, 3, 3, 3}, {.padding = 1}, 1},
      {{3, 3, 2, 4, 4}, {3, 2, 3, 3, 3}, {.padding = 1}, 1},
      {{2, 3, 3, 4, 16}, {3, 2, 3, 3, 3}, {.padding = 1}, 9},
      {{1, 2, 2, 8, 48}, {2, 2, 2, 3, 5}, {.padding = {0, 1, 2}}, 9},
      {{1, 2, 2, 4, 16}, {2, 2, 1, 3, 3}, {.dilation = {1, 2, 3}}, 9},
      {{1, 65, 2, 4, 16}, {65, 2, 1, 1, 3}, {}, 3},
      {{2, 2, 4, 4, 4}, {2, 2, 3, 3, 3}, {.stride = 2, .padding = 1, .output_padding = 1}, 1},
      {{5, 2, 2, 2, 4}, {2, 66, 2, 4, 1}, {.stride = {1, 2, 3}, .dilation = {2, 1, 1}}, 1},
      {{1, 64, 1, 4, 48}, {64, 130, 3, 3, 3}, {.padding = 1}, 9},
      {{1, 2, 2, 8, 48}, {2, 2, 3, 3, 3}, {.padding = 1}, 9},
  };
  int uneven = 0;  // some block does a part of one tile and a part of another
  for (const Case& c : cases) {
    const Conv3dGeometry g = testing::geometry(c.input, c.weight, c.options);
    for (const int multiprocessors : {1, 5, 132}) {
      const auto p = make_weight_grad_plan(g, testing::with_multiprocessors(multiprocessors));
      ASSERT_TRUE(p) << c.weight;
      EXPECT_EQ(p->tile.group_taps(), c.group_taps) << c.input << c.weight;
      EXPECT_LE(p->stages * p->stage_bytes, 200 * 1024);
      EXPECT_GE(p->stages, 3);
      testing::evaluate(g, Conv3dPass::weight_grad, [&](Evaluation& e) { walk(e, *p, g); });
      uneven += p->blocks % p->tiles() != 0 && p->tiles() % p->blocks != 0;
    }
  }
  EXPECT_GT(uneven, 0);
}

TEST(DenseWeightGradPlan, RefusesWhatItCannotDo) {
  const auto plan = [](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    return make_weight_grad_plan(testing::geometry(input, weight, options), h200);
  };
  EXPECT_TRUE(plan({1, 64, 4, 4, 4}, {64, 64, 3, 3, 3}, {}));
  EXPECT_FALSE(plan({1, 64, 4, 4, 4}, {64, 32, 3, 3, 3}, {.groups = 2}));
  EXPECT_FALSE(plan({0, 64, 4, 4, 4}, {64, 64, 3, 3, 3}, {}));
  EXPECT_FALSE(plan({1, 64, 4, 5, 6}, {64, 64, 3, 3, 3}, {}));  // boxes would end outside
  EXPECT_FALSE(plan({1, 64, 4, 4, 4}, {64, 64, 3, 3, 3}, {.stride = {1, 1, 9}}));
  EXPECT_FALSE(plan({1, 64, 4, 4, 4}, {64, 64, 9, 9, 9}, {}));
  EXPECT_FALSE(plan({1, 64, 300, 400, 400}, {64, 64, 1, 1, 1}, {}));
}

}  // namespace
}  // namespace vox::cuda::conv::dense
