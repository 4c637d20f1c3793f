#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <voxgrad/core/cuda.h>
#include <voxgrad/core/tensor.h>

namespace vox::dist {

struct DataParallelOptions {
  vox::detail::ByName by_name{};
  int64_t bucket_bytes = 5'000'000;  ///< about as many bytes of gradients are reduced in one call
  /// The dtype in which gradients are sent and added, such as bf16. Parameters and grad() keep their dtypes.
  std::optional<DType> gradient_dtype = {};
};

/// Trains one network on several ranks, each of which has a copy and computes a part of the batch:
///
///     vox::dist::DataParallel parallel(network);
///     ...
///     parallel.backward(loss);  // instead of loss.backward(); then grad() is the same on every rank
///     optimizer.step();
///
/// All ranks start with rank 0's parameters and buffers. Their gradients, and so their optimisers, stay equal
/// bit by bit; clip_grad_norm_() between the two calls needs nothing more. The network must outlive this
/// object.
///
/// The gradients are those of the whole batch if each rank's loss is a mean over its part and its part is 1 /
/// size() of the batch. For parts that differ, as at the end of an epoch, pass its share:
///
///     parallel.backward(loss, {.share = part_size / batch_size});
///
/// Note [Buckets] in data_parallel.cpp explains how the reduction runs beside the backward.
class DataParallel {
 public:
  using Named = std::pair<std::string, Tensor>;

  /// Throws ValueError, naming the first difference, if the parameters or buffers of two ranks differ in
  /// names, shapes or dtypes; DTypeError unless gradient_dtype is floating.
  template <class Module>
  explicit DataParallel(Module& network, const DataParallelOptions& options = {})
      : DataParallel(network.named_parameters(), network.named_buffers(), options) {}
  DataParallel(std::vector<Named> parameters, std::vector<Named> buffers,
               const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  struct BackwardOptions {
    vox::detail::ByName by_name{};
    std::optional<double> share = {};  ///< of the whole batch; 1 / size() by default
    /// Only adds to this rank's grad(), without communication. The next backward without it reduces the sum.
    bool accumulate = false;
  };
  /// Runs loss.backward() and gives every rank the sum of share * gradient over all ranks. A rank whose part
  /// is empty passes an undefined loss. A parameter that this rank's loss does not depend on has gradient 0
  /// here; if no rank's loss depends on it, its grad() does not change.
  ///
  /// While this object lives, a backward that reaches the parameters in another way throws GradError, because
  /// the ranks' gradients would differ.
  void backward(const Tensor& loss, const BackwardOptions& options);
  void backward(const Tensor& loss) { backward(loss, BackwardOptions{}); }

  /// Copies rank 0's buffers to all ranks. Running statistics differ between the ranks, unless SyncBatchNorm
  /// computes them, so call this before all ranks evaluate the network together.
  void broadcast_buffers();

 private:
  struct Parameter {
    std::string name;
    Tensor tensor;
    int64_t hook = 0;
    size_t bucket = 0;
    int64_t offset = 0;  // of its first element in the bucket
    bool copied = false;
  };
  struct Bucket {
    std::vector<size_t> parameters;
    int64_t numel = 0;
    DType dtype = f32;
    Device device;
    Tensor gradients;
    size_t missing = 0;          // parameters whose gradients are not in it yet
    std::function<bool()> done;  // set once its reduction has started
  };
  enum class Mode { idle, accumulate, reduce };

  void fill_buckets(const std::vector<size_t>& order);
  void begin();
  void arrived(size_t i);
  void copy_last();
  void copy(size_t i);
  void start_full_buckets();
  void finish();

  DataParallelOptions options_;
  std::vector<Parameter> parameters_;  // those that require grad
  std::vector<Tensor> buffers_;
  std::vector<Bucket> buckets_;
  std::optional<cuda::Stream> stream_;  // of the reductions on CUDA

  // During a backward:
  Mode mode_ = Mode::idle;
  size_t next_bucket_ = 0;        // the first whose reduction has not started
  std::optional<size_t> last_;    // the parameter whose gradient has arrived, but may not be in grad() yet
  std::vector<size_t> arrivals_;  // parameters, in the order of their gradients
  bool ordered_ = false;          // whether buckets_ are in rank 0's order of arrival
};

}  // namespace vox::dist
