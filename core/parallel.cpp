#include <voxgrad/core/check.h>
#include <voxgrad/core/parallel.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
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

/// Lets the other thread of the core work while this one waits in a loop.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits until `word` is not `old`. Waking a thread takes longer than a small op, so it looks 1000 times (10
/// to 50 us on x86) before it sleeps.
template <class T>
void wait_while(const std::atomic<T>& word, T old) {
  for (int i = 0; i < 1000; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    relax();
  }
  word.wait(old, std::memory_order_acquire);
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
    if (finished > 0 && unfinished_.fetch_sub(finished, std::memory_order_acq_rel) == finished)
      unfinished_.notify_all();
  }

  bool has_chunks() const { return next_.load(std::memory_order_relaxed) < chunks_; }

  /// Waits for the chunks that helpers still work on, then rethrows the exception of a chunk, if any.
  void wait() {
    while (const int64_t left = unfinished_.load(std::memory_order_acquire)) wait_while(unfinished_, left);
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

  std::mutex mutex_;  // for the exception of chunk lowest_failed_
  std::exception_ptr error_;
};

/// For short work on a list, by many threads at once: none of them should sleep.
class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

/// Threads that help with the jobs of any caller.
class Workers {
 public:
  /// Throws std::system_error if the system does not start that many.
  explicit Workers(int threads) {
    try {
      while (std::ssize(threads_) < threads) threads_.emplace_back([this] { loop(); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Workers() { end(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void offer(std::shared_ptr<Job> job, int64_t helpers) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    news_.fetch_add(1, std::memory_order_release);
    if (helpers < std::ssize(threads_))
      while (helpers-- > 0) news_.notify_one();
    else
      news_.notify_all();
  }

 private:
  /// A job that has chunks left, or null.
  std::shared_ptr<Job> find() {
    const std::lock_guard lock(mutex_);
    std::erase_if(jobs_, [](const auto& job) { return !job->has_chunks(); });
    return jobs_.empty() ? nullptr : jobs_.front();
  }
  void loop() {
    while (!ending_) {
      const int news = news_.load(std::memory_order_acquire);
      if (const auto job = find())
        job->work();
      else if (!ending_)
        wait_while(news_, news);
    }
  }
  void end() {
    ending_ = true;
    news_.fetch_add(1);
    news_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::vector<std::thread> threads_;
  std::vector<std::shared_ptr<Job>> jobs_;
  SpinLock mutex_;            // of jobs_
  std::atomic<int> news_{0};  // changes with every job, and at the end
  std::atomic<bool> ending_{false};
};

/// Workers for a team of `threads`: one fewer, because the caller works too.
std::shared_ptr<Workers> start_workers(int threads) {
  try {
    return std::make_shared<Workers>(threads - 1);
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
    std::shared_ptr<Workers> old;  // destroyed, and its threads joined, after the lock is released
    const std::lock_guard lock(mutex_);
    forget_parents_workers();
    if (threads != threads_) old = std::move(workers_);
    threads_ = threads;
  }

  /// Null for one thread. Shared, so that set_threads() cannot end workers that a running call uses.
  std::shared_ptr<Workers> workers() {
    const std::lock_guard lock(mutex_);
    forget_parents_workers();
    if (checked_threads() > 1 && !workers_) workers_ = start_workers(threads_);
    process_ = getpid();
    return workers_;
  }

 private:
  /// fork() copies the workers, but not their threads: a child process can neither use nor join them.
  void forget_parents_workers() {
    if (workers_ && process_ != getpid())
      new std::shared_ptr<Workers>(std::move(workers_));  // never destroyed
  }
  int checked_threads() {
    if (threads_ == 0) threads_ = threads_from_environment();
    return threads_;
  }

  std::mutex mutex_;
  int threads_ = 0;  // 0: not determined yet
  std::shared_ptr<Workers> workers_;
  pid_t process_ = 0;  // which started them
};

Team& team() {
  // Never destroyed: a static destructor may still compute, and idle workers end with the process.
  static Team& the_team = *new Team;
  return the_team;
}

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
  std::shared_ptr<Job> shared;  // with helpers
  if (workers) {
    try {
      shared = std::make_shared<Job>(n, grain, chunks, f);
      workers->offer(shared, chunks - 1);
    } catch (const std::bad_alloc&) {  // this thread works alone
    }
  }
  Job own(n, grain, chunks, f);
  Job& job = shared ? *shared : own;
  job.work();
  job.wait();
}

}  // namespace vox
