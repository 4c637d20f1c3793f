#pragma once

#include <algorithm>
#include <cstdint>

// Results of one thread that share their place along H and W, so that it computes what depends on these once.

namespace vox::cuda {

/// The results of one thread: [begin, end) along D at (h, w) of a plane.
struct Column {
  int64_t plane, begin, end, h, w;
};

/// Cuts results of (planes, D, H, W) into columns: enough of them to fill any GPU, and none so long that its
/// thread is still busy when the others have ended. Neighbours are neighbours along W.
class Columns {
 public:
  Columns(int64_t planes, int64_t d, int64_t h, int64_t w) : planes_(planes), d_(d), h_(h), w_(w) {
    constexpr int64_t enough = int64_t{1} << 19, longest = 32;
    length_ = std::clamp<int64_t>(planes * d * h * w / enough, 1, longest);
    parts_ = (d + length_ - 1) / length_;
  }
  int64_t count() const { return planes_ * parts_ * h_ * w_; }
  __device__ Column operator[](int64_t n) const {
    const int64_t row = n / w_, slice = row / h_, plane = slice / parts_;
    const int64_t begin = (slice - plane * parts_) * length_;
    return {plane, begin, begin + length_ < d_ ? begin + length_ : d_, row - slice * h_, n - row * w_};
  }

 private:
  int64_t planes_, d_, h_, w_, length_, parts_;
};

}  // namespace vox::cuda
