#pragma once

#include <voxgrad/core/shape.h>
#include <voxgrad/ops/cpu/walk.h>

// Private to walks (Note [Walks]): the layout of their operands.

namespace vox::cpu {

constexpr int64_t walk_grain = 32768;  // elements of a chunk

/// The operands' common shape, dimensions from the output's innermost outwards; strides in bytes.
struct Layout {
  int operands = 0, rank = 0;
  int64_t numel = 0;
  int64_t sizes[max_rank] = {};
  int64_t strides[Run::max_operands][max_rank] = {};
  int64_t element[Run::max_operands] = {};
  char* data[Run::max_operands] = {};
  bool stream = false;

  bool is_run(int k) const { return strides[k][0] == element[k]; }
  bool repeats(int k) const { return strides[k][0] == 0; }
  bool is_dense(int k) const { return rank == 1 && is_run(k); }
};

/// Copies n elements of 1, 2, 4 or 8 bytes; strides in bytes.
void copy_elements(int64_t element, const char* from, int64_t from_stride, char* to, int64_t to_stride,
                   int64_t n);

/// Walks by tiles if the operands allow it. Returns whether it did.
bool walk_tiles(const Layout& w, RunFunction function, const void* f);

}  // namespace vox::cpu
