#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace vox::cpu {

/// Cells [begin, end) of an axis.
struct CellRange {
  int64_t begin, end;
};

/// A ring of rows along an axis, as many as one output reads: cell i is in row i % size.
struct CellRing {
  int64_t size = 1;
  std::vector<CellRange> reads;  // the cells that each output reads

  void add(CellRange cells) {
    size = std::max(size, cells.end - cells.begin);
    reads.push_back(cells);
  }
  void number(std::vector<int64_t>& cells) const {
    for (int64_t& cell : cells) cell %= size;
  }
};

}  // namespace vox::cpu
