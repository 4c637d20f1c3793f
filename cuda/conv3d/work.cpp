#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/dense/plan.h>
#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>
#include <voxgrad/cuda/conv3d/few_channels/plan.h>
#include <voxgrad/cuda/conv3d/gather/plan.h>
#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/mma/weight_grad_plan.h>
#include <voxgrad/cuda/conv3d/patches/plan.h>
#include <voxgrad/cuda/conv3d/rolling/plan.h>
#include <voxgrad/cuda/conv3d/strided/plan.h>
#include <voxgrad/cuda/conv3d/weight_grad/plan.h>
#include <voxgrad/cuda/conv3d/work.h>

#include <algorithm>
#include <cmath>

namespace vox::cuda::conv {

namespace {

double as_double(int64_t i) { return static_cast<double>(i); }

/// How often each of `workers` does one of `jobs`.
double rounds(double jobs, double workers) { return std::ceil(jobs / workers); }

/// Of a wgmma with this many columns, for 64 rows and 32 bytes of k: measured.
double instruction_cycles(int64_t columns) { return as_double(std::max(columns / 2, 16 + columns / 4)); }

/// Without those of taps that meet no cell.
double multiply_adds(const Conv3dGeometry& g) {
  double pairs = 1;  // of a coarse cell and a tap that meets a fine one
  for (int64_t axis = 0; axis < 3; ++axis) {
    int64_t here = 0;
    for (int64_t k = 0; k < std::min<int64_t>(g.kernel[axis], 1 << 10); ++k) {
      const int64_t first = g.padding[axis] - k * g.dilation[axis], last = g.big[axis] - 1 + first;
      const int64_t low = first <= 0 ? 0 : ceil_div(first, g.stride[axis]);
      const int64_t high = last < 0 ? -1 : std::min(last / g.stride[axis], g.small[axis] - 1);
      here += std::max<int64_t>(high - low + 1, 0);
    }
    pairs *= as_double(here);
  }
  return as_double(g.batch * g.small_channels) * as_double(g.big_per_group()) * pairs;
}

/// Numbers of both grids, each read or written once.
double numbers_of_grids(const Conv3dGeometry& g) {
  return as_double(g.batch) *
         (as_double(g.small_channels * g.small_cells()) + as_double(g.big_channels * g.big_cells()));
}
double weights(const Conv3dGeometry& g) { return as_double(g.small_channels * g.big_per_group() * g.taps()); }

/// Read and written by the copy of the input (common/channels_last.cuh, mma/granules.cuh).
double copied_bytes(const Conv3dGeometry& g, bool transposed, const Numbers& n) {
  return (n.storage + n.operand) * as_double(g.batch) *
         as_double(transposed ? g.small_channels * g.small_cells() : g.big_channels * g.big_cells());
}

}  // namespace

// ---- direct -----------------------------------------------------------------------------------------------

std::optional<Work> direct_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                                const Machine& machine) {
  constexpr int block_outputs = 256, blocks_at_once = 8;
  const double planes = as_double(g.batch * (transposed ? g.big_channels : g.small_channels)),
               cells = as_double(transposed ? g.big_cells() : g.small_cells());
  const double turns =
      rounds(planes * std::ceil(cells / block_outputs), blocks_at_once * machine.multiprocessors);
  return Work{.products = multiply_adds(g),
              .loads = turns * multiply_adds(g) / std::max(planes * cells, 1.0),
              .rounds = turns,
              .stages = as_double((transposed ? g.small_per_group() : g.big_per_group()) * g.taps()),
              .bytes = n.storage * numbers_of_grids(g)};
}

/// A block of threads owns four weights and walks over all rows of cells, in teams as wide as a row.
std::optional<Work> direct_weight_grad_work(const Conv3dGeometry& g, const Numbers&, const Machine& machine) {
  constexpr int block_threads = 256, blocks_at_once = 8;
  int64_t team = 1;
  while (team < 32 && team < g.small.w) team *= 2;
  const double jobs = as_double(g.groups * ceil_div(g.small_per_group(), 4) * g.big_per_group() * g.taps());
  const int64_t steps =
      g.batch * ceil_div(g.small.d * g.small.h, block_threads / team) * ceil_div(g.small.w, team);
  return Work{.loads = rounds(jobs, blocks_at_once * machine.multiprocessors) * as_double(steps),
              .weights = weights(g)};
}

// ---- mma --------------------------------------------------------------------------------------------------

/// Of a copy. f32 that becomes scaled f16 is read twice: first for its largest values.
int reads(const Numbers& n) { return n.operand == 4 ? 2 : 1; }

std::optional<Work> mma_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                             const Machine& machine) {
  const int parts = n.split() ? 2 : 1;
  const auto& planned = recall<mma::make_plan>(g, transposed, parts, true, machine);
  if (!planned) return std::nullopt;
  return Work{.products = planned->cycles,
              .bytes = copied_bytes(g, transposed, {reads(n) * n.storage, 2 * parts}),
              .weights = weights(g)};
}

std::optional<Work> mma_weight_grad_work(const Conv3dGeometry& g, const Numbers& n, const Machine&) {
  const int parts = n.split() ? 2 : 1;
  const auto& p = recall<mma::make_weight_grad_plan>(g, parts);
  if (!p) return std::nullopt;
  Work work = mma::work_of(*p, parts);
  work.bytes = (reads(n) * n.storage + 2 * parts) * numbers_of_grids(g);
  work.weights = weights(g);
  return work;
}

// ---- few_channels -----------------------------------------------------------------------------------------

std::optional<Work> few_channels_work(const Conv3dGeometry& g, bool transposed, const Numbers&,
                                      const Machine&) {
  const auto& p = recall<few_channels::make_plan>(g, transposed);
  if (!p) return std::nullopt;
  Work work = few_channels::work_of(*p);
  work.weights = weights(g);
  return work;
}

std::optional<Work> few_channels_weight_grad_work(const Conv3dGeometry& g, const Numbers& n, const Machine&) {
  const auto& p = recall<few_channels::make_weight_grad_plan>(g);
  if (!p) return std::nullopt;
  return Work{.products = p->cycles, .bytes = n.storage * numbers_of_grids(g), .weights = weights(g)};
}

// ---- patches ----------------------------------------------------------------------------------------------

std::optional<Work> patches_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                                 const Machine& machine) {
  const auto& planned = recall<patches::make_plan>(g, transposed, n.parts, machine);
  if (!planned) return std::nullopt;
  const patches::Plan& p = planned->plan;
  const double cells = p.grids.kernel_w == 2 ? 32 : 64;  // of a tile
  const double teams = planned->warps / p.parts, jobs = std::ceil(p.tiles / teams),
               at_once =
                   std::max(machine.multiprocessors * patches::blocks_at_once(*planned) / p.m_blocks, 1);
  return Work{.products = as_double(int64_t{p.tiles} * p.m_blocks * p.m_tiles * p.k_steps * n.products()) *
                          cells / machine.multiprocessors,
              .loads = as_double(planned->shared_bytes),
              .stages = rounds(p.tiles, std::min(at_once, jobs) * teams) * p.k_steps * cells,
              .bytes = n.storage * numbers_of_grids(g)};
}

std::optional<Work> patches_weight_grad_work(const Conv3dGeometry& g, const Numbers& n,
                                             const Machine& machine) {
  const auto& planned = recall<patches::make_weight_grad_plan>(g, n.parts);
  if (!planned) return std::nullopt;
  const patches::WeightGradPlan& p = planned->plan;
  return Work{.products = as_double(int64_t{p.steps} * p.small_blocks * p.big_blocks * p.row_warps *
                                    planned->n_tiles * n.products()) /
                          machine.multiprocessors,
              .stores = as_double(p.splits * p.split_floats),
              .bytes = n.storage * numbers_of_grids(g)};
}

// ---- rolling ----------------------------------------------------------------------------------------------

namespace {

/// Cycles in which a lane loads a position of a window: f32 is rounded, and 16-bit rows may be read as words.
double load_cycles(const rolling::Product& p, const Numbers& n) {
  if (n.storage == 2) return rolling::rows_are_words(p) ? 4 : 8;
  return n.operand == 2 ? 8 : 4;
}

}  // namespace

std::optional<Work> rolling_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                                 const Machine& machine) {
  const auto& planned = recall<rolling::make_plan>(g, transposed, n.storage, n.operand, machine);
  if (!planned) return std::nullopt;
  const auto& [tile, plan] = *planned;
  const rolling::Product& p = plan.product;
  const double planes = as_double(std::max<int64_t>(plan.planes, p.d.taps)),  // a short march takes as long
      instructions = p.h.taps * p.w.taps * tile.positions / 64;
  return Work{
      .products = planes * p.k_blocks * instructions * instruction_cycles(tile.taps_d * tile.channels),
      .loads = planes * p.k_blocks * p.row_groups * p.window * load_cycles(p, n),
      .stores = planes * tile.positions * tile.channels,
      .bytes = n.storage * numbers_of_grids(g),
      .weights = weights(g)};
}

// ---- strided ----------------------------------------------------------------------------------------------

std::optional<Work> strided_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                                 const Machine& machine) {
  using namespace strided;
  const Planned* planned = nullptr;
  if (n.split()) {
    if (const auto& scaled = recall<make_scaled_plan>(g, transposed)) planned = &scaled->items;
  } else if (const auto& tiled = recall<make_tiled_plan>(g, transposed, Bytes{n.operand, n.storage})) {
    planned = &*tiled;
  }
  if (!planned) return std::nullopt;
  const auto& [tile, p, taps] = *planned;
  const double columns = as_double(int64_t{p.groups} * p.channel_blocks),
               tiles = as_double(int64_t{p.batch} * p.depth_blocks * p.plane_tiles),
               blocks = std::floor(std::clamp(machine.multiprocessors / columns, 1.0, tiles)),
               turns = rounds(tiles, blocks) * rounds(columns, machine.multiprocessors);
  double items = 0, positions = 0;
  for (int i = 0; i < p.kinds; ++i) {
    items += p.kind[i].first[most_slots] - p.kind[i].first[0];
    positions += p.k_steps * p.kind[i].granule_pitch;
  }
  const double instruction =
      tile.form == Form::wide ? 64 : instruction_cycles(tile.channels) * (n.split() ? 1.5 : 1);
  return Work{.products = turns * p.k_blocks * items * p.k_steps * tile.tiles * instruction,
              .loads = turns * p.k_blocks * positions,
              .rounds = turns,
              .stages = turns * p.k_blocks * p.kinds,
              .stores = turns * 128 * tile.tiles * tile.channels * (transposed ? p.rows * p.phases_w : 1),
              .bytes = n.storage * numbers_of_grids(g),
              .weights = weights(g)};
}

// ---- gather -----------------------------------------------------------------------------------------------

std::optional<Work> gather_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                                const Machine& machine) {
  const auto& planned = recall<gather::make_plan>(g, transposed, n.split(), machine);
  if (!planned) return std::nullopt;
  const auto& [tile, p] = *planned;
  const double columns = as_double(int64_t{p.groups} * p.channel_blocks),
               blocks = std::max(1.0, std::floor(machine.multiprocessors / columns)),
               turns = rounds(p.jobs, blocks) * rounds(columns, machine.multiprocessors);
  const double stages = turns * (p.depths * p.d.stride + tile.slots - 1) * p.k_blocks;
  return Work{.products = stages * p.taps * tile.tiles * tile.slots * (n.split() ? 3 : 1) *
                          instruction_cycles(tile.channels),
              .loads = stages * p.taps * tile.tiles,
              .rounds = turns,
              .stages = stages,
              .bytes = n.storage * numbers_of_grids(g),
              .weights = weights(g)};
}

// ---- dense and windows ------------------------------------------------------------------------------------

namespace {

template <auto make_plan>
std::optional<Work> dense_work_by(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                                  const Machine& machine) {
  const auto& planned = recall<make_plan>(g, transposed, n.operand, machine);
  if (!planned) return std::nullopt;
  return Work{.products = planned->cycles,
              .stores = static_cast<double>(planned->plan.blocks) / machine.multiprocessors *
                        planned->tile.rows() * planned->tile.columns,
              .bytes = copied_bytes(g, transposed, n),
              .weights = weights(g)};
}

}  // namespace

std::optional<Work> dense_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                               const Machine& machine) {
  return dense_work_by<dense::best_plan>(g, transposed, n, machine);
}

std::optional<Work> windows_work(const Conv3dGeometry& g, bool transposed, const Numbers& n,
                                 const Machine& machine) {
  return dense_work_by<dense::make_windows_plan>(g, transposed, n, machine);
}

std::optional<Work> dense_weight_grad_work(const Conv3dGeometry& g, const Numbers& n,
                                           const Machine& machine) {
  const auto& p = recall<dense::make_weight_grad_plan>(g, machine);
  if (!p) return std::nullopt;
  return Work{.products = as_double(p->cycles), .bytes = n.storage * numbers_of_grids(g)};
}

// ---- weight_grad ------------------------------------------------------------------------------------------

std::optional<Work> weight_grad_work(const Conv3dGeometry& g, const Numbers& n, const Machine&) {
  using weight_grad::Factors;
  const Factors factors = n.split() ? Factors::tf32x3 : n.operand == 2 ? Factors::of_16_bits : Factors::tf32;
  const auto& p = recall<weight_grad::make_plan>(g, factors);
  if (!p) return std::nullopt;
  Work work = weight_grad::work_of(*p);
  work.weights = weights(g);
  return work;
}

}  // namespace vox::cuda::conv
