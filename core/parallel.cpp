#include <voxgrad/core/check.h>
#include <voxgrad/core/parallel.h>

#include <unistd.h>
#include <unsupported/Eigen/CXX11/ThreadPool>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace vox {
namespace {

constexpr int max_threads = 1024;

/// True on a thread that is inside a chunk: parallel_for() there must not wait for other threads.
thread_local bool inside_parallel_for = false;

int threads_from_environment() {
  const char* text = std::getenv("VOXGRAD_NUM_THREADS");
  if (!text) return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, max_threads);
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  check<ValueError>(end != text && *end == '\0' && threads >= 1 && threads <= max_threads,
                    "get_num_threads: the environment variable VOXGRAD_NUM_THREADS must be a whole number ",
                    "from 1 to ", max_threads, ", got \"", text, "\" (correct or unset it)");
  return static_cast<int>(threads);
}

// Note [Workers]
//
// Eigen's pool cannot be left half made: if its constructor throws because a thread does not start, it waits
// forever for the threads that did. So all threads are started first and then handed to the pool. Once it has
// them, nothing can fail. Until then they only wait, and can be told to end.

/// A thread that waits to be told what to run. If it is told nothing, the destructor ends it.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    tell({});
    thread_.join();
  }

  /// Only the first call counts.
  void tell(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(told_, true)) task_ = std::move(task);
    wake_.notify_one();
  }

 private:
  void work() {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return told_; });
    }
    if (task_) task_();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool told_ = false;
  std::function<void()> task_;  // constant once told_ is true
  std::thread thread_;          // last, because it uses the other members
};

using Workers = std::vector<std::unique_ptr<Worker>>;

/// Gives Eigen's pool the threads of `waiting`.
struct Environment : Eigen::StlThreadEnvironment {
  using EnvThread = Worker;
  Worker* CreateThread(std::function<void()> loop) {
    Worker* worker = waiting->back().release();
    waiting->pop_back();
    worker->tell(std::move(loop));
    return worker;
  }
  Workers* waiting;  // valid while the pool is being made
};

using Pool = Eigen::ThreadPoolTempl<Environment>;

/// A pool for a team of `threads`. It has one thread fewer, because the caller works too.
std::shared_ptr<Pool> start_workers(int threads) {
  try {
    Workers waiting;
    while (std::ssize(waiting) < threads - 1) waiting.push_back(std::make_unique<Worker>());
    return std::make_shared<Pool>(threads - 1, Environment{{}, &waiting});
  } catch (const std::exception& error) {
    throw Error(str("parallel_for: the system does not start ", threads, " threads: ", error.what(),
                    " (ask for fewer with set_num_threads() or the environment variable ",
                    "VOXGRAD_NUM_THREADS)"));
  }
}

/// The process-wide number of threads, and the workers, made on first use.
class Team {
 public:
  int threads() {
    const std::lock_guard lock(mutex_);
    return checked_threads();
  }

  void set_threads(int threads) {
    std::shared_ptr<Pool> old;  // destroyed, and its threads joined, after the lock is released
    const std::lock_guard lock(mutex_);
    forget_parents_workers();
    if (threads != threads_) old = std::move(workers_);
    threads_ = threads;
  }

  /// Null for one thread. Shared, so that set_threads() cannot end workers that a running call uses.
  std::shared_ptr<Pool> workers() {
    const std::lock_guard lock(mutex_);
    forget_parents_workers();
    if (checked_threads() > 1 && !workers_) workers_ = start_workers(threads_);
    process_ = getpid();
    return workers_;
  }

 private:
  /// fork() copies the pool, but not its threads: a child process can neither use nor join them.
  void forget_parents_workers() {
    if (workers_ && process_ != getpid()) new std::shared_ptr<Pool>(std::move(workers_));  // never destroyed
  }
  int checked_threads() {
    if (threads_ == 0) threads_ = threads_from_environment();
    return threads_;
  }

  std::mutex mutex_;
  int threads_ = 0;  // 0: not determined yet
  std::shared_ptr<Pool> workers_;
  pid_t process_ = 0;  // which started them
};

Team& team() {
  // Never destroyed: a static destructor may still compute, and idle workers end with the process.
  static Team& the_team = *new Team;
  return the_team;
}

/// One call of parallel_for(). Shared with helpers, which may wake only when the call has returned: they
/// then find no chunk left, and so never touch `f`.
class Job {
 public:
  Job(int64_t n, int64_t grain, int64_t chunks, detail::RangeFunction f)
      : n_(n), grain_(grain), chunks_(chunks), f_(f), unfinished_(chunks) {}

  /// Takes chunks in ascending order until none is left.
  void work() {
    const bool outer = std::exchange(inside_parallel_for, true);
    int64_t finished = 0;
    for (int64_t chunk; (chunk = next_.fetch_add(1, std::memory_order_relaxed)) < chunks_; ++finished) {
      if (chunk < lowest_failed_.load(std::memory_order_relaxed)) run(chunk);
    }
    inside_parallel_for = outer;
    if (finished > 0 && unfinished_.fetch_sub(finished, std::memory_order_acq_rel) == finished) {
      const std::lock_guard lock(mutex_);
      done_ = true;
      all_done_.notify_all();
    }
  }

  /// Waits for the chunks that helpers still work on, then rethrows the exception of a chunk, if any.
  void wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return done_; });
    if (error_) std::rethrow_exception(std::move(error_));
  }

 private:
  void run(int64_t chunk) {
    try {
      const int64_t begin = chunk * grain_;
      f_(begin, n_ - begin > grain_ ? begin + grain_ : n_);
    } catch (...) {
      // Only chunks above a failing one are dropped, so all those below it run: the lowest failing chunk is
      // the same on any number of threads.
      const std::lock_guard lock(mutex_);
      if (chunk < lowest_failed_.load(std::memory_order_relaxed)) {
        error_ = std::current_exception();
        lowest_failed_.store(chunk, std::memory_order_relaxed);
      }
    }
  }

  const int64_t n_, grain_, chunks_;
  const detail::RangeFunction f_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> unfinished_;
  std::atomic<int64_t> lowest_failed_{std::numeric_limits<int64_t>::max()};

  std::mutex mutex_;
  std::condition_variable all_done_;
  bool done_ = false;
  std::exception_ptr error_;
};

}  // namespace

int get_num_threads() { return team().threads(); }

void set_num_threads(int threads) {
  check<ValueError>(threads >= 1 && threads <= max_threads, "set_num_threads: allowed are 1 to ", max_threads,
                    " threads, got ", threads);
  check<ValueError>(!inside_parallel_for, "set_num_threads: not allowed inside parallel_for()");
  team().set_threads(threads);
}

void detail::parallel_for(int64_t n, int64_t grain, RangeFunction f) {
  check<ValueError>(n >= 0 && grain >= 1, "parallel_for: needs n >= 0 and grain >= 1, got n = ", n,
                    ", grain = ", grain);
  if (n == 0) return;
  if (n <= grain) return f(0, n);

  const int64_t chunks = (n - 1) / grain + 1;
  const auto workers = inside_parallel_for ? nullptr : team().workers();
  const auto job = std::make_shared<Job>(n, grain, chunks, f);
  if (workers) {
    const int64_t helpers = std::min<int64_t>(workers->NumThreads(), chunks - 1);
    try {
      for (int64_t i = 0; i < helpers; ++i) workers->Schedule([job] { job->work(); });
    } catch (const std::bad_alloc&) {
      // Go on with fewer helpers: returning here would destroy `f` while others run it.
    }
  }
  job->work();
  job->wait();
}

}  // namespace vox
