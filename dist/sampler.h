#pragma once

#include <cstdint>
#include <vector>

#include <voxgrad/core/arguments.h>

namespace vox::dist {

struct SamplerOptions {
  vox::detail::ByName by_name{};
  int64_t count;       ///< samples of the data set
  int64_t batch_size;  ///< samples of a batch, of all ranks together
  bool shuffle = true;
  uint64_t seed = 0;
};

/// Deals the samples of a data set to the ranks. An epoch visits every sample once, on one rank. The batches
/// do not depend on the number of ranks, which share each batch as equally as they can; the last one of an
/// epoch may be smaller. There is no state: (epoch, step) gives the samples, so a resumed run goes on where
/// it stopped.
///
///     const auto [samples, share] = sampler.batch(epoch, step);
///     ...
///     parallel.backward(samples.empty() ? vox::Tensor() : loss_of(samples), {.share = share});
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  int64_t steps() const;  ///< batches of an epoch

  struct Part {
    std::vector<int64_t> samples;  ///< numbers from 0 to count - 1
    double share;                  ///< the part's size / the size of the whole batch
  };
  /// This rank's part of a batch. It is empty if the batch has fewer samples than there are ranks.
  Part batch(int64_t epoch, int64_t step) const;

 private:
  SamplerOptions options_;
};

}  // namespace vox::dist
