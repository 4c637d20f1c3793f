// The part of voxgrad::dist that an example needs. In builds without voxgrad::dist, a program is its only
// rank.
#pragma once

#if VOXGRAD_DIST
#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>
#else
#include <optional>

#include <voxgrad/voxgrad.h>

namespace vox::dist {

inline void init() {}
inline int rank() { return 0; }
inline int size() { return 1; }
inline int local_rank() { return 0; }
inline bool any(bool value) { return value; }
inline Tensor all_reduce(const Tensor& x) { return x; }

struct DataParallel {
  explicit DataParallel(nn::Module&) {}
  struct Share {
    double share;
  };
  void backward(Tensor loss, Share) { loss.backward(); }
};

}  // namespace vox::dist
#endif
