#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <voxgrad/dist/control.h>
#include <voxgrad/dist/dist.h>

// How a call of dist.h becomes one of MPI or NCCL. Both move the elements of a Collective; they differ in
// when they are done.

namespace vox::dist {

/// One call, on dense tensors of one device. Input and output of an all_reduce or a broadcast may be one
/// tensor.
struct Collective {
  enum class Kind { all_reduce, broadcast, all_gather, reduce_scatter } kind;
  Tensor input, output;
  Reduce reduce = Reduce::sum;  // not mean
  int root = 0;

  /// "all_reduce(sum) of f32 (2,3) on the CPU"
  std::string description() const;
};

/// True once the elements of a collective have arrived.
using Poll = std::function<bool()>;

/// What init() sets up.
struct World {
  Place place;
  double timeout = 0;                // seconds
  std::unique_ptr<Control> control;  // null if this is the only rank
  bool has_mpi = false;
};
/// The world of this process. Throws DistError, naming `function`, if there are other ranks but init() was
/// not called.
World& world(const char* function);

/// Waits until all ranks make the same call, and returns the data of each (Control::agree).
std::vector<std::string> agree(const char* function, const std::string& call, const std::string& data = "");

/// Starts a collective that all ranks call. On CUDA it is enqueued in the current stream and counts as done
/// at once, because later work of the stream waits for it. `purpose` precedes the description in errors.
Poll start(const char* function, const Collective& collective, const std::string& purpose = "");

/// Returns when done() does. Throws DistError if a rank fails first, or after the timeout. `call` names the
/// collective in errors.
void wait(const Poll& done, const std::string& call);

/// Ends the process with a message if this object lives longer than `seconds`: for MPI calls that may block
/// for ever.
class Alarm {
 public:
  Alarm(std::string message, double seconds);
  ~Alarm();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

namespace mpi {
/// Whether mpirun started this process.
bool is_launcher();
/// Rank, size and the host of rank 0. Throws DistError if the build has no MPI.
Place init(double seconds);
/// Rank 0's `number`, on every rank.
int from_rank_0(int number);
Poll start(const Collective& collective);
void finalize(double seconds);
}  // namespace mpi

namespace nccl {
/// Enqueues the collective in the current stream. The first call connects the GPUs. Throws DistError.
void start(const Collective& collective);
/// Waits for the kernels of this rank, before the program ends.
void finish() noexcept;
/// Ends the kernels that wait for other ranks, after a failure.
void abort() noexcept;
}  // namespace nccl

}  // namespace vox::dist
