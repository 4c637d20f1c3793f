#pragma once

// What a block of the strided kernels (kernel.cuh, f16x3.cuh) owns: the roles of its warps, its work, and its
// shared memory.

#include <voxgrad/cuda/conv3d/strided/plan.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>

namespace vox::cuda::conv::strided {

constexpr int consumer_threads = 256;
constexpr int producers = 128;  // in a group; the two groups fill stages in turn
constexpr int block_threads = consumer_threads + 2 * producers;
constexpr int most_stages = 8;

/// A block works on the tiles number blockIdx.x, blockIdx.x + gridDim.x ... for one block of channels.
struct Columns {
  int group, channel_block;
};
__device__ __forceinline__ Columns columns_of_block(const Plan& p) {
  return {static_cast<int>(blockIdx.y) / p.channel_blocks, static_cast<int>(blockIdx.y) % p.channel_blocks};
}

struct Shared {
  unsigned char *stages, *weights;
  uint32_t* table;
  float* bias;  // for the block's channels, followed by eight zeros
  ptx::Mbarrier *full, *empty, *weights_here;
};

/// What a block computes at once (TileShape), its number formats, and its sums.
template <class Storage_, class Operand_, int channels_, int slots_, int tiles_, Form form_ = Form::rows>
struct Block {
  using Storage = Storage_;  // in tensors
  using Operand = Operand_;  // of the tensor cores; common/operands.cuh
  static constexpr int channels = channels_, slots = slots_, tiles = tiles_;
  static constexpr Form form = form_;
  static constexpr bool wide = form == Form::wide;
  static constexpr bool scaled = Operand::parts > 1;                      // f16x3.cuh
  static constexpr int granule = 16 / sizeof(typename Operand::Element);  // channels in 16 bytes
  static constexpr int per_row = slots > 1 && !wide ? 2 : 1, rows = slots / per_row;
  // An instruction multiplies 64 cells by the channels; or (wide) the channels at both phases by the cells.
  static constexpr int columns = wide ? 64 * tiles : channels, instructions = wide ? 1 : tiles;
  static constexpr int weight_rows = weight_rows_of({channels, slots, tiles, {}, form});
  static constexpr int sums = columns / 2;  // of a slot, for a thread and an instruction
  // How many positions a producer loads at once, 8 channels each: twice as many where sums leave registers
  // for them. Windows of two wide tiles are often slightly more than three or six positions for each
  // producer. They end with a row where possible (Plan::zero_bytes); else the rest comes element by element.
  static constexpr bool trims = wide && tiles == 2;
  static constexpr int batch = slots == 1 ? 8 : !wide ? 4 : trims ? 3 : 5;
  static constexpr int producer_registers = slots > 1 ? 88 : 128,
                       consumer_registers = 256 - producer_registers;
};

/// The kernel's inputs. Without a bias, bias is nullptr.
template <class Block>
struct Operands {
  const typename Block::Storage *input, *weight, *bias;
};

/// In a wide block, the channel of row 8 * octet + row of an instruction, for both phases along w. The
/// channels of a warp are four apart, so that their planes have the same alignment modulo four elements.
constexpr int wide_channel(int octet, int row) { return row * 4 + octet / 2; }

}  // namespace vox::cuda::conv::strided
