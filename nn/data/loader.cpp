#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/cuda.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/core/philox.h>
#include <voxgrad/nn/data/loader.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

namespace vox::data {

namespace {

uint64_t random_number(uint64_t seed, int64_t epoch, int64_t index) {
  const PhiloxWords words = philox_block(seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index));
  return join_words(words.word[0], words.word[1]);
}

/// The indices of the examples, in the order of an epoch. Empty without shuffle: then example i is the i-th.
std::vector<int64_t> order(int64_t size, const LoaderOptions& o, int64_t epoch) {
  std::vector<int64_t> indices;
  if (!o.shuffle) return indices;
  try {
    indices.resize(static_cast<size_t>(size));
  } catch (const std::exception&) {  // bad_alloc, or length_error beyond max_size()
    throw OutOfMemoryError(str("Loader::epoch: no memory for a shuffled order of ", size, " examples"));
  }
  std::iota(indices.begin(), indices.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) {
    const uint64_t random = random_number(o.seed, epoch, i);  // the bias is below size / 2^64
    std::swap(indices[static_cast<size_t>(i)], indices[random % static_cast<uint64_t>(i + 1)]);
  }
  return indices;
}

/// Where a thread stacks tensor i of each batch: new memory, or pinned memory that the next batch uses again.
class Staging {
 public:
  explicit Staging(Device device) : device_(device) {
    if (device.is_cuda()) stream_.emplace(device);
  }

  /// The stacked tensors on the device.
  Tensor stack(size_t i, const std::vector<Sample>& samples) {
    const Tensor& first = samples[0][i];
    Shape shape = first.shape();
    shape.insert(0, static_cast<int64_t>(samples.size()));
    Tensor batch = device_.is_cuda() ? pinned(i, shape, first.dtype())
                                     : detail::empty_for("Loader", shape, first.options());
    for (size_t k = 0; k < samples.size(); ++k) batch.select(0, static_cast<int64_t>(k)).copy_(samples[k][i]);
    if (!device_.is_cuda()) return batch;
    const cuda::StreamGuard own(*stream_);
    return batch.to(device_);  // waits for the copy
  }

 private:
  Tensor pinned(size_t i, const Shape& shape, DType dtype) {
    pinned_.resize(std::max(pinned_.size(), i + 1));
    Tensor& memory = pinned_[i];
    if (!memory.defined() || memory.shape() != shape || memory.dtype() != dtype) {
      const std::shared_ptr<void> owner(cuda::allocate_pinned(detail::checked_bytes("Loader", shape, dtype)),
                                        cuda::deallocate_pinned);
      memory = detail::from_blob(owner.get(), dtype, shape, contiguous_strides(shape), Device::cpu(),
                                 [owner](void*) {});
    }
    return memory;
  }

  Device device_;
  std::optional<cuda::Stream> stream_;
  std::vector<Tensor> pinned_;
};

}  // namespace

struct Loader::Epoch::State {
  const Loader loader;
  const LoaderOptions& options = loader.options_;
  const int64_t number, batches = loader.batches(), ahead = options.threads * options.prefetch;
  const std::vector<int64_t> indices;  // see order()

  /// A batch, or what was thrown for it.
  struct Prepared {
    Sample batch;
    std::exception_ptr error;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Prepared> prepared;
  int64_t begun, taken;  // numbers of the next batch to begin, and of the next that a caller gets
  bool stopped = false;
  std::exception_ptr broken;  // what a thread threw outside of the examples
  std::vector<std::thread> threads;
  std::optional<Staging> staging;  // of the callers, if there are no threads

  State(const Loader& of, int64_t epoch, int64_t first)
      : loader(of), number(epoch), indices(order(of.size_, options, epoch)), begun(first), taken(first) {}
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopped = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  Sample make(int64_t batch, Staging& staging_memory) const {
    const auto guard = no_grad();
    const int64_t begin = batch * options.batch_size;
    const int64_t end = begin + std::min(options.batch_size, loader.size_ - begin);
    std::vector<Sample> samples;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = options.shuffle ? indices[static_cast<size_t>(i)] : i;
      Generator random(random_number(~options.seed, number, index));
      samples.push_back(loader.get_(index, random));
      check_like(samples[0], samples.back(), index);
    }
    Sample result;
    for (size_t i = 0; i < samples[0].size(); ++i) result.push_back(staging_memory.stack(i, samples));
    return result;
  }

  static void check_like(const Sample& first, const Sample& sample, int64_t index) {
    check<ShapeError>(sample.size() == first.size(),
                      "Loader: the examples of a batch must have equally many tensors, got ", first.size(),
                      ", and ", sample.size(), " for example ", index);
    for (size_t i = 0; i < sample.size(); ++i) {
      check<ValueError>(sample[i].defined(), "Loader: tensor ", i, " of example ", index, " is undefined");
      check<ShapeError>(sample[i].shape() == first[i].shape(),
                        "Loader: the examples of a batch must have equal shapes, got ", first[i].shape(),
                        ", and ", sample[i].shape(), " for tensor ", i, " of example ", index);
      check<DTypeError>(sample[i].dtype() == first[i].dtype(),
                        "Loader: the examples of a batch must have equal dtypes, got ", first[i].dtype(),
                        ", and ", sample[i].dtype(), " for tensor ", i, " of example ", index);
    }
  }

  Prepared prepare(int64_t batch, std::optional<Staging>& staging_memory) const {
    try {
      if (!staging_memory) staging_memory.emplace(options.device);
      return {make(batch, *staging_memory), nullptr};
    } catch (...) {
      return {{}, std::current_exception()};
    }
  }

  /// What each thread does.
  void work() {
    std::optional<Staging> own;
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopped || begun == batches || begun - taken < ahead; });
      if (stopped || begun == batches) return;
      const int64_t batch = begun++;
      lock.unlock();
      Prepared result = prepare(batch, own);
      lock.lock();
      try {
        prepared.emplace(batch, std::move(result));
      } catch (...) {  // no memory for the map
        broken = std::current_exception();
        stopped = true;
      }
      changed.notify_all();
    }
  }

  /// Several callers take turns: `taken` changes while they wait.
  std::optional<Sample> next() {
    Prepared result;
    {
      std::unique_lock lock(mutex);
      if (!threads.empty())
        changed.wait(lock, [&] { return taken == batches || prepared.contains(taken) || broken; });
      if (taken == batches) return std::nullopt;
      if (threads.empty())
        result = prepare(taken, staging);
      else if (auto ready = prepared.extract(taken))
        result = std::move(ready.mapped());
      else
        result.error = broken;
      taken = result.error ? batches : taken + 1;
      stopped = stopped || result.error;
    }
    changed.notify_all();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.batch);
  }
};

Loader::Loader(Int size, Get get, const LoaderOptions& options)
    : size_(size), get_(std::move(get)), options_(options) {
  vox::detail::check_callable("Loader", "get", get_);
  check<ValueError>(size >= 0, "Loader: size must be >= 0, got ", size);
  check<ValueError>(options.batch_size >= 1, "Loader: batch_size must be >= 1, got ", options.batch_size);
  check<ValueError>(options.threads >= 0 && options.threads <= 1024,
                    "Loader: threads must be from 0 to 1024, got ", options.threads);
  check<ValueError>(options.prefetch >= 1 && options.prefetch <= 1 << 20,
                    "Loader: prefetch must be from 1 to 2^20, got ", options.prefetch);
}

int64_t Loader::batches() const {
  return size_ / options_.batch_size + (!options_.drop_last && size_ % options_.batch_size != 0);
}

Loader::Epoch Loader::epoch(Int number, Int first) const {
  check<ValueError>(number >= 0, "Loader::epoch: the number must be >= 0, got ", number);
  check<ValueError>(first >= 0 && first <= batches(), "Loader::epoch: the first batch must be from 0 to ",
                    batches(), ", got ", first);
  auto state = std::make_unique<Epoch::State>(*this, number, first);
  try {
    for (int64_t i = 0; i < std::min(options_.threads, batches() - first); ++i)
      state->threads.emplace_back([s = state.get()] { s->work(); });
  } catch (const std::system_error& error) {
    throw Error(str("Loader::epoch: cannot start ", options_.threads, " threads: ", error.what()));
  }
  return Epoch(std::move(state));
}

Loader::Epoch::Epoch(std::unique_ptr<State> state) : state_(std::move(state)) {}
Loader::Epoch::~Epoch() = default;
std::optional<Sample> Loader::Epoch::next() { return state_->next(); }

}  // namespace vox::data
