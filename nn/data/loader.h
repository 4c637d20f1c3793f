#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include <voxgrad/core/generator.h>
#include <voxgrad/core/tensor.h>

/// Training data: batches that threads prepare ahead, and random changes of volumes (nn/data/augment.h).
namespace vox::data {

/// The tensors of one example, such as {scan, label}; or those of a batch, with a batch dimension in front.
using Sample = std::vector<Tensor>;

struct LoaderOptions {
  vox::detail::ByName by_name{};
  int64_t batch_size = 1;
  bool shuffle = false;    ///< a new order in each epoch
  bool drop_last = false;  ///< leave out a last batch that is smaller
  uint64_t seed = 0;       ///< of the order, and of the generators that are passed to `get`
  int64_t threads = 2;     ///< number of threads that prepare batches; with 0 the caller does
  int64_t prefetch = 2;    ///< batches per thread, ready or being made, that the caller does not have yet
  Device device = Device::cpu();
};

/// Batches of a data set, as torch.utils.data.DataLoader makes them:
///
///     data::Loader loader(scans.size(), [&](int64_t i, Generator& random) -> data::Sample {
///       return data::random_flip({scans[i], labels[i]}, random);
///     }, {.batch_size = 2, .shuffle = true});
///     for (int64_t epoch = 0; epoch < 10; ++epoch)
///       for (const data::Sample& batch : loader.epoch(epoch)) train(batch[0], batch[1]);
///
/// Everything is a function of (seed, epoch, index): batches do not depend on the number of threads, and a
/// resumed run gets the same batches as an unbroken one. For CUDA, each thread copies through pinned memory,
/// in its own stream, while the GPU computes.
class Loader {
 public:
  /// Makes example `index` of the data set, on the CPU. Several threads call it at once, under no_grad(),
  /// each with a generator for this example in this epoch.
  using Get = std::function<Sample(int64_t index, Generator& random)>;

  /// Throws ValueError for numbers outside their range.
  Loader(Int size, Get get, const LoaderOptions& options = {});

  int64_t batches() const;  ///< of an epoch

  /// One pass over the data; its threads end with it, finished or not.
  class Epoch {
   public:
    ~Epoch();
    Epoch(const Epoch&) = delete;
    Epoch& operator=(const Epoch&) = delete;

    /// The next batch: the examples' tensors stacked; nothing after the last one. If `get` threw for this
    /// batch, throws the same exception, and the epoch is over. ShapeError or DTypeError if examples differ.
    /// Several threads may call: each batch, and an exception, goes to one of them.
    std::optional<Sample> next();

    class Iterator {
     public:
      explicit Iterator(Epoch& epoch) : epoch_(epoch), batch_(epoch.next()) {}
      const Sample& operator*() const { return *batch_; }
      Iterator& operator++() { return batch_ = epoch_.next(), *this; }
      bool operator!=(std::default_sentinel_t) const { return batch_.has_value(); }

     private:
      Epoch& epoch_;
      std::optional<Sample> batch_;
    };
    Iterator begin() { return Iterator(*this); }
    std::default_sentinel_t end() const { return {}; }

   private:
    friend class Loader;
    struct State;
    explicit Epoch(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// Batches from number `first` on. Throws ValueError for negative numbers, Error if threads cannot be
  /// started, OutOfMemoryError if there is no memory for a shuffled order.
  Epoch epoch(Int number = 0, Int first = 0) const;

 private:
  int64_t size_;
  Get get_;
  LoaderOptions options_;
};

}  // namespace vox::data
