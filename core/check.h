#pragma once

#include <locale>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

namespace vox {

/// Base of everything voxgrad throws. A message says: function, rule, what it got, what is allowed.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ShapeError : Error {
  using Error::Error;
};  ///< sizes, ranks, indices, strides
struct DTypeError : Error {
  using Error::Error;
};  ///< element types
struct DeviceError : Error {
  using Error::Error;
};  ///< devices that differ or do not exist
struct ValueError : Error {
  using Error::Error;
};  ///< an argument outside its allowed range
struct GradError : Error {
  using Error::Error;
};  ///< misuse of autograd
struct CudaError : Error {
  using Error::Error;
};  ///< a CUDA call that failed
struct OutOfMemoryError : Error {
  using Error::Error;
};  ///< failed allocations
struct IoError : Error {
  using Error::Error;
};  ///< files: missing, corrupt, not writable

/// Streams all arguments into one string, in the C locale, so that messages do not depend on the program's.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << std::boolalpha;
  (out << ... << args);
  return out.str();
}

/// Throws `E` with the streamed message unless `ok`. The message is only formatted on failure.
template <class E, class... Args>
inline void check(bool ok, const Args&... message) {
  if (!ok) [[unlikely]]
    throw E(str(message...));
}

/// Returns f(). Errors for lack of memory, those of the standard library included, name `function`.
template <class F>
decltype(auto) in_the_name_of(const char* function, F f) {
  try {
    return f();
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(str(function, ": ", error.what()));
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(str(function, ": no memory for its tables"));
  }
}

}  // namespace vox
