#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace vox {

/// Number of threads that parallel_for() may use, the caller included. At first that of the environment
/// variable VOXGRAD_NUM_THREADS, or of the processors this process may run on if it is not set.
/// Throws ValueError if the variable is set to anything but a whole number from 1 to 1024.
int get_num_threads();

/// Sets that number, from 1 to 1024; wins over the environment. Results do not depend on it, to the last bit.
/// Calls of parallel_for() that are running keep their threads. Throws ValueError for any other number, or
/// on a thread that shares out chunks. The threads are started by the first parallel_for() that needs them,
/// not here: if the system does not start that many, every such call throws Error until fewer are set.
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
/// from several threads at once, and returns when all are done. n == 0 calls nothing.
///
/// The chunks depend on n and grain only, never on the number of threads: a kernel whose chunks do not look
/// at each other gives the same bits on any machine. Choose a grain worth some 10 microseconds of work.
///
/// If chunks throw, the exception of the lowest one reaches the caller, and chunks that have not begun are
/// dropped. Several threads may call at once. A call inside `f` runs on the calling thread alone, unless the
/// outer call is a single chunk: then it is the inner one that is shared out.
/// Throws ValueError unless n >= 0 and grain >= 1, and Error if the threads cannot be started.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  detail::parallel_for(n, grain, detail::RangeFunction(f));
}

}  // namespace vox
