#include <voxgrad/core/philox.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/dist/sampler.h>

#include <algorithm>
#include <numeric>

namespace vox::dist {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check<ValueError>(options.count > 0 && options.batch_size > 0,
                    "Sampler: count and batch_size must be positive, got ", options.count, " and ",
                    options.batch_size);
}

int64_t Sampler::steps() const { return (options_.count + options_.batch_size - 1) / options_.batch_size; }

Sampler::Part Sampler::batch(int64_t epoch, int64_t step) const {
  check<ValueError>(epoch >= 0 && step >= 0 && step < steps(), "Sampler: an epoch has steps 0 to ",
                    steps() - 1, ", got step ", step, " of epoch ", epoch);
  std::vector<int64_t> order(static_cast<size_t>(options_.count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (options_.shuffle) {  // Fisher and Yates
    for (uint64_t i = order.size(); i-- > 1;) {
      const PhiloxWords random = philox_block(options_.seed, static_cast<uint64_t>(epoch), i);
      std::swap(order[i], order[join_words(random.word[0], random.word[1]) % (i + 1)]);
    }
  }
  const int64_t begin = step * options_.batch_size;
  const int64_t length = std::min(options_.batch_size, options_.count - begin);
  const int64_t first = begin + length * rank() / size(), last = begin + length * (rank() + 1) / size();
  return {{order.begin() + first, order.begin() + last},
          static_cast<double>(last - first) / static_cast<double>(length)};
}

}  // namespace vox::dist
