// Radix sort of the keys of each row, from the lowest 8 bits to the highest. Each pass is stable. A pass
// whose digits are all equal is left out.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/sort_key.h>

#include <algorithm>
#include <array>
#include <vector>

namespace vox::cpu {

namespace {

struct Entry {
  uint64_t key;
  int64_t index;
};

/// Sorts the row, with `other` as working memory of the same size.
void sort_row(std::vector<Entry>& row, std::vector<Entry>& other, int bits) {
  for (int shift = 0; shift < bits; shift += 8) {
    const auto digit = [shift](const Entry& e) { return static_cast<size_t>(e.key >> shift & 255); };
    std::array<size_t, 257> begin{};  // of each digit
    for (const Entry& e : row) ++begin[digit(e) + 1];
    if (begin[digit(row[0]) + 1] == row.size()) continue;
    for (size_t d = 0; d < 256; ++d) begin[d + 1] += begin[d];
    for (const Entry& e : row) other[begin[digit(e)]++] = e;
    std::swap(row, other);
  }
}

}  // namespace

void argsort(const Tensor& x, bool descending, Tensor& indices) {
  const int64_t n = x.size(-1);
  visit_dtype(x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    int64_t* to = detail::mutable_ptr<int64_t>(indices);
    parallel_for(x.numel() / n, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
      std::vector<Entry> row(static_cast<size_t>(n)), other(row.size());
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t i = 0; i < n; ++i)
          row[static_cast<size_t>(i)] = {detail::sort_key(from[r * n + i], descending), i};
        sort_row(row, other, detail::sort_key_bits<T>);
        for (int64_t i = 0; i < n; ++i) to[r * n + i] = row[static_cast<size_t>(i)].index;
      }
    });
  });
}

}  // namespace vox::cpu
