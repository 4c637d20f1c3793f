#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/walk_layout.h>

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace vox::cpu {

void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

namespace {

constexpr int most = Run::max_operands;
constexpr int64_t buffer_elements = 1024;  // of one operand, in a buffered walk
constexpr int64_t shortest_direct = 32;
constexpr int64_t largest_element = 8;

Layout layout_of(const Tensor* const* operands, int count) {
  const Tensor& output = *operands[0];
  Layout w;
  w.operands = count;
  w.numel = output.numel();
  for (int k = 0; k < count; ++k) {
    w.element[k] = size_of(operands[k]->dtype());
    w.data[k] = static_cast<char*>(operands[k]->impl()->data());
  }
  w.stream = w.numel * w.element[0] >= stream_bytes;

  int64_t dims[max_rank];
  int rank = 0;
  for (int64_t d = output.rank() - 1; d >= 0; --d) {
    if (output.shape()[d] != 1) dims[rank++] = d;
  }
  std::stable_sort(dims, dims + rank,
                   [&](int64_t a, int64_t b) { return output.strides()[a] < output.strides()[b]; });
  for (int i = 0; i < rank; ++i) {
    const int64_t size = output.shape()[dims[i]];
    const auto stride = [&](int k) { return operands[k]->strides()[dims[i]] * w.element[k]; };
    const int last = w.rank - 1;
    bool join = last >= 0;
    for (int k = 0; k < count && join; ++k) join = stride(k) == w.strides[k][last] * w.sizes[last];
    if (join) {
      w.sizes[last] *= size;
      continue;
    }
    w.sizes[w.rank] = size;
    for (int k = 0; k < count; ++k) w.strides[k][w.rank] = stride(k);
    ++w.rank;
  }
  if (w.rank == 0) {  // a single element
    w.rank = 1;
    w.sizes[0] = 1;
    for (int k = 0; k < count; ++k) w.strides[k][0] = w.element[k];
  }
  return w;
}

template <class T>
void copy_strided(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n) {
  if (from_stride == sizeof(T) && to_stride == sizeof(T)) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, sizeof(T));
}

/// A place in the layout: indices, and the offsets of all operands.
struct Place {
  int64_t index[max_rank];
  int64_t offset[most] = {};

  Place(const Layout& w, int64_t position) {
    for (int d = 0; d < w.rank; ++d) {
      const int64_t rest = position / w.sizes[d];
      index[d] = d + 1 < w.rank ? position - rest * w.sizes[d] : position;
      for (int k = 0; k < w.operands; ++k) offset[k] += index[d] * w.strides[k][d];
      position = rest;
    }
  }
  /// Moves by `n` elements along the innermost dimension, not beyond its end, and carries like an odometer.
  void advance(const Layout& w, int64_t n) {
    index[0] += n;
    for (int k = 0; k < w.operands; ++k) offset[k] += n * w.strides[k][0];
    for (int d = 0; d + 1 < w.rank && index[d] == w.sizes[d]; ++d) {
      index[d] = 0;
      ++index[d + 1];
      for (int k = 0; k < w.operands; ++k) offset[k] += w.strides[k][d + 1] - w.sizes[d] * w.strides[k][d];
    }
  }
};

// ---- Direct -----------------------------------------------------------------------------------------------

void walk_direct(const Layout& w, RunFunction function, const void* f) {
  parallel_for(w.numel, walk_grain, [&](int64_t begin, int64_t end) {
    Place place(w, begin);
    Run run{};
    run.stream = w.stream;
    for (int k = 0; k < w.operands; ++k) run.step[k] = w.repeats(k) ? 0 : 1;
    while (begin < end) {
      run.n = std::min(end - begin, w.sizes[0] - place.index[0]);
      for (int k = 0; k < w.operands; ++k) run.at[k] = w.data[k] + place.offset[k];
      function(f, run);
      place.advance(w, run.n);
      begin += run.n;
    }
    if (w.stream) finish_streaming();
  });
}

// ---- Buffered ---------------------------------------------------------------------------------------------

/// Cuts n elements from `place` on into pieces and calls f(operand's memory, elements before, length) for
/// each. Returns the place behind them.
template <class F>
Place for_pieces(const Layout& w, Place place, int k, int64_t n, F f) {
  for (int64_t done = 0; done < n;) {
    const int64_t length = std::min(n - done, w.sizes[0] - place.index[0]);
    f(w.data[k] + place.offset[k], done, length);
    place.advance(w, length);
    done += length;
  }
  return place;
}

void walk_buffered(const Layout& w, RunFunction function, const void* f) {
  bool is_dense[most], is_one[most];  // over the whole walk
  for (int k = 0; k < w.operands; ++k) {
    int64_t expected = w.element[k];
    is_dense[k] = is_one[k] = true;
    for (int d = 0; d < w.rank; ++d) {
      is_dense[k] = is_dense[k] && w.strides[k][d] == expected;
      is_one[k] = is_one[k] && w.strides[k][d] == 0;
      expected *= w.sizes[d];
    }
  }
  parallel_for(w.numel, walk_grain, [&](int64_t begin, int64_t end) {
    alignas(64) char buffers[most][buffer_elements * largest_element];
    Place place(w, begin);
    Run run{};
    run.stream = w.stream;
    while (begin < end) {
      run.n = std::min(end - begin, buffer_elements);
      for (int k = 0; k < w.operands; ++k) {
        run.step[k] = is_one[k] ? 0 : 1;
        run.at[k] = is_dense[k] || is_one[k] ? w.data[k] + place.offset[k] : buffers[k];
        if (k == 0 || is_dense[k] || is_one[k]) continue;
        for_pieces(w, place, k, run.n, [&](const char* memory, int64_t done, int64_t length) {
          copy_elements(w.element[k], memory, w.strides[k][0], buffers[k] + done * w.element[k], w.element[k],
                        length);
        });
      }
      run.stream = w.stream && is_dense[0];
      function(f, run);
      if (!is_dense[0]) {
        for_pieces(w, place, 0, run.n, [&](char* memory, int64_t done, int64_t length) {
          copy_elements(w.element[0], buffers[0] + done * w.element[0], w.element[0], memory, w.strides[0][0],
                        length);
        });
      }
      begin += run.n;
      place = for_pieces(w, place, 0, run.n, [](const char*, int64_t, int64_t) {});
    }
    if (w.stream) finish_streaming();
  });
}

}  // namespace

void copy_elements(int64_t element, const char* from, int64_t from_stride, char* to, int64_t to_stride,
                   int64_t n) {
  if (element == 1) return copy_strided<uint8_t>(from, from_stride, to, to_stride, n);
  if (element == 2) return copy_strided<uint16_t>(from, from_stride, to, to_stride, n);
  if (element == 4) return copy_strided<uint32_t>(from, from_stride, to, to_stride, n);
  copy_strided<uint64_t>(from, from_stride, to, to_stride, n);
}

void walk(const Tensor* const* operands, int count, RunFunction function, const void* f) {
  Layout w = layout_of(operands, count);
  if (w.numel == 0) return;
  bool direct = w.is_run(0) && (w.rank == 1 || w.sizes[0] >= shortest_direct);
  for (int k = 1; k < count; ++k) direct = direct && (w.is_run(k) || w.repeats(k));
  if (direct) return walk_direct(w, function, f);
  if (walk_tiles(w, function, f)) return;
  walk_buffered(w, function, f);
}

}  // namespace vox::cpu
