#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/patches/plan.h>

#include <algorithm>

namespace vox::cuda::conv::patches {

namespace {

constexpr int64_t limit = most_int / 2;
constexpr int most_parts = 8;  // warps of a block with different rows

std::optional<Grids> grids_of(const Conv3dGeometry& g) {
  if (g.batch == 0 || g.groups != 1 || g.kernel.w > 2) return std::nullopt;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (g.kernel[axis] != g.stride[axis] || g.padding[axis] != 0 ||
        (g.kernel[axis] > 1 && g.dilation[axis] != 1) || g.big[axis] != g.small[axis] * g.kernel[axis])
      return std::nullopt;
  Triple cells = g.small, kernel = g.kernel;
  if (kernel.h == 1) {  // rows of a plane follow each other in both grids
    cells = {1, cells.d, cells.h * cells.w};
    kernel = {1, kernel.d, kernel.w};
  }
  if (kernel.h == 1) {
    cells = {1, 1, cells.h * cells.w};
  } else if (kernel.d == 1) {
    cells = {1, cells.d * cells.h, cells.w};
  }
  const int64_t big_rows = g.big_channels * kernel.d * kernel.h;
  if (cells.w % chunk != 0 || !product_fits({g.batch, g.small_cells() / chunk}, limit) ||
      g.small_channels > limit || !product_fits({g.taps(), g.big_channels}, limit))
    return std::nullopt;
  Grids p{};
  p.chunks = narrow(g.batch * g.small_cells() / chunk);
  p.by_image = divisor_of(g.small_cells() / chunk), p.by_row = divisor_of(cells.w / chunk);
  p.by_height = divisor_of(cells.h);
  p.small_cells = g.small_cells(), p.big_cells = g.big_cells();
  p.small_image = g.small_channels * p.small_cells, p.big_image = g.big_channels * p.big_cells;
  p.tap_h = cells.w * kernel.w, p.tap_d = cells.h * kernel.h * p.tap_h;
  p.row_step = kernel.h * p.tap_h, p.plane_step = kernel.d * p.tap_d;
  p.kernel_d = narrow(kernel.d), p.kernel_h = narrow(kernel.h), p.kernel_w = narrow(kernel.w);
  p.small_rows = narrow(g.small_channels), p.big_rows = narrow(big_rows);
  return p;
}

}  // namespace

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int parts,
                                 const Machine& machine) {
  const int64_t shared_limit = machine.wgmma ? 200 << 10 : any_block_shared_bytes;
  const auto grids = grids_of(g);
  if (!grids) return std::nullopt;
  Planned planned{};
  Plan& p = planned.plan;
  p.grids = *grids, p.transposed = transposed;
  const bool wide_in = grids->kernel_w == 2 && !transposed, wide_out = grids->kernel_w == 2 && transposed;
  p.in_rows = transposed ? grids->small_rows : grids->big_rows;
  p.out_rows = transposed ? grids->big_rows : grids->small_rows;
  p.weight_in = transposed ? int64_t{grids->big_rows} * grids->kernel_w : grids->kernel_w;
  p.weight_out = transposed ? grids->kernel_w : int64_t{grids->big_rows} * grids->kernel_w;
  p.in_rows_of_step = wide_in ? 8 : 16, p.out_rows_of_tile = wide_out ? 8 : 16;
  p.tiles = ceil_div(grids->chunks, grids->kernel_w == 2 ? 4 : 8);

  const int steps = ceil_div(p.in_rows, p.in_rows_of_step),
            all_tiles = ceil_div(p.out_rows, p.out_rows_of_tile);
  planned.m_step = grids->kernel_w == 1 ? std::min(all_tiles, 2) : all_tiles > 2 ? 4 : all_tiles;
  // With one group of rows there is nothing to keep the input for, and the next cells' can be loaded instead.
  planned.resident = wide_out ? steps <= (parts == 1 ? 8 : 4)
                              : !wide_in && parts == 1 && steps <= 2 && all_tiles > planned.m_step;
  if (wide_out) planned.m_step = planned.resident ? 2 : 4;
  planned.ahead = grids->kernel_w == 1 ? 2 : planned.resident && steps > 4 ? 8 : 4;
  if (parts > 1 && !planned.resident) planned.ahead /= 2;  // as many bytes

  const auto set_ahead = [&](int ahead) {
    planned.ahead = ahead;
    p.k_steps = ceil_div(steps, ahead) * ahead;
  };
  const auto shared_bytes = [&](int64_t m_tiles) {
    return m_tiles * p.k_steps * parts * tile_bytes + int64_t{p.k_steps} * p.in_rows_of_step * 8 +
           m_tiles * p.out_rows_of_tile * 12;
  };
  set_ahead(planned.ahead);
  if (p.k_steps > any_block_shared_bytes / tile_bytes) return std::nullopt;
  if (wide_in)
    while (planned.m_step > 1 && shared_bytes(planned.m_step) > shared_limit) planned.m_step /= 2;
  if (shared_bytes(planned.m_step) > shared_limit) return std::nullopt;
  // A block that reads big has all rows if possible, because the others would read big again. Smaller blocks
  // are more for a multiprocessor.
  const int64_t wanted = std::min<int64_t>(wide_in ? 160 << 10 : most_of_two, shared_limit);
  int64_t groups = 1;  // of m_step tiles
  while (groups * planned.m_step < all_tiles && (planned.resident || groups < most_parts) &&
         shared_bytes((groups + 1) * planned.m_step) <= wanted)
    ++groups;
  p.m_blocks = ceil_div(all_tiles, groups * planned.m_step);
  groups = ceil_div(ceil_div(all_tiles, p.m_blocks), planned.m_step);
  p.m_tiles = narrow(groups) * planned.m_step;
  p.m_blocks = ceil_div(all_tiles, p.m_tiles);
  p.parts = planned.resident ? 1 : narrow(groups);
  // With few warps in all, a warp has more registers, and loads further ahead.
  const int64_t warps = int64_t{p.tiles} * p.parts * p.m_blocks;
  const bool few = wide_in && parts == 1 && planned.m_step == 4 && steps > 4 &&
                   warps <= most_warps(planned.m_step, 8, parts) * machine.multiprocessors;
  if (few) {
    set_ahead(8);
    if (shared_bytes(p.m_tiles) > shared_limit) set_ahead(4);
  }
  planned.shared_bytes = narrow(shared_bytes(p.m_tiles));
  // Two blocks of a multiprocessor, if their weights fit; one begins while the other ends.
  const int most = most_warps(planned.m_step, planned.ahead, parts);
  planned.warps = planned.shared_bytes > most_of_two || p.parts > most / 2 ? most : most / 2;
  planned.warps -= planned.warps % p.parts;
  return planned;
}

std::optional<PlannedWeightGrad> make_weight_grad_plan(const Conv3dGeometry& g, int parts) {
  const auto grids = grids_of(g);
  if (!grids) return std::nullopt;
  PlannedWeightGrad planned{};
  WeightGradPlan& p = planned.plan;
  p.grids = *grids;
  const int tiles = ceil_div(grids->small_rows, 8), n = tiles > 4 ? 8 : tiles > 2 ? 4 : tiles;
  planned.n_tiles = n;
  p.small_blocks = ceil_div(tiles, n);
  const int groups = row_groups(parts), warps = ceil_div(grids->big_rows, 8 * groups);
  p.row_warps = 1;
  while (p.row_warps < warps && p.row_warps < block_warps) p.row_warps *= 2;
  p.big_blocks = ceil_div(warps, p.row_warps);
  p.steps = ceil_div(grids->chunks, 4);
  p.pitch = int64_t{p.big_blocks} * p.row_warps * groups * 8 * grids->kernel_w;
  p.split_floats = int64_t{p.small_blocks} * n * 8 * p.pitch;

  // As many blocks as run at once on an H200, with some steps for each warp.
  constexpr int64_t most_workspace = int64_t{32} << 20;
  const int teams = block_warps / p.row_warps, sums = groups / 2 * grids->kernel_w * n * 4;
  const int64_t blocks = int64_t{p.small_blocks} * p.big_blocks,
                wanted = split_blocks(n, parts) * h200.multiprocessors;
  const int64_t splits = std::min(
      {wanted / blocks, most_workspace / (4 * p.split_floats), int64_t{ceil_div(p.steps, 4 * teams)}});
  p.splits = narrow(std::max<int64_t>(splits, 1));
  if (!product_fits({blocks, p.splits}, limit)) return std::nullopt;
  planned.shared_bytes = teams / 2 * p.row_warps * sums * 32 * 4;
  return planned;
}

}  // namespace vox::cuda::conv::patches
