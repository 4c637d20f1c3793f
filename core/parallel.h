#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace vox {

/// Number of threads that parallel_for() may use, the caller included. The default is the environment
/// variable VOXGRAD_NUM_THREADS or, if that is not set, the number of processors that this process may use.
/// Throws ValueError if the variable is set to anything but a whole number from 1 to 1024.
int get_num_threads();

/// Sets that number, from 1 to 1024; it overrides the environment. No bit of any result depends on it. Calls
/// of parallel_for() that are running keep their threads. Throws ValueError for any other number, and inside
/// a chunk of parallel_for(), unless it is the only one. The next parallel_for() starts the threads: if the
/// system does not start that many, every such call throws Error until fewer are set.
void set_num_threads(int threads);

namespace detail {

/// A reference to any callable `f(begin, end)`; owns nothing.
class RangeFunction {
 public:
  // The condition keeps a copy of a RangeFunction from being a reference to it.
  template <class F>
  requires(!std::is_same_v<std::remove_const_t<F>, RangeFunction>) explicit RangeFunction(F& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, int64_t begin, int64_t end) { (*static_cast<F*>(object))(begin, end); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

void parallel_for(int64_t n, int64_t grain, RangeFunction f);

}  // namespace detail

/// Calls `f(begin, end)` for [0, grain), [grain, 2 grain), ... up to n: each chunk once, in any order and
/// from several threads at once. Returns when all are done. n == 0 calls nothing.
///
/// The chunks depend on n and grain only, never on the number of threads. So a kernel whose chunks are
/// independent gives the same bits on any machine. Choose a grain worth some 10 microseconds of work.
///
/// Modes that belong to a thread, such as no_grad() and autocast(), do not hold in chunks that other threads
/// run: let `f` set those that it needs.
///
/// If chunks throw, the exception of the lowest one reaches the caller, and chunks that have not begun are
/// dropped. Several threads may call at once. A call inside `f` runs on the calling thread alone, unless the
/// outer call has a single chunk: then the inner call uses the threads. Throws ValueError unless n >= 0 and
/// grain >= 1, and Error if the threads cannot be started.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  detail::parallel_for(n, grain, detail::RangeFunction(f));
}

}  // namespace vox
