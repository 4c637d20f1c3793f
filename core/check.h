#pragma once

#include <exception>
#include <locale>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

namespace vox {

/// Base of all exceptions of voxgrad. A message names the function, the rule, what it got and what is
/// allowed.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
  /// An error of the same class with another message.
  virtual std::exception_ptr with(const std::string& message) const {
    return std::make_exception_ptr(Error(message));
  }
};

namespace detail {
template <class E>
struct ErrorOf : Error {
  using Error::Error;
  std::exception_ptr with(const std::string& message) const override {
    return std::make_exception_ptr(E(message));
  }
};
}  // namespace detail

struct ShapeError : detail::ErrorOf<ShapeError> {
  using ErrorOf::ErrorOf;
};  ///< sizes, ranks, indices, strides
struct DTypeError : detail::ErrorOf<DTypeError> {
  using ErrorOf::ErrorOf;
};  ///< element types
struct DeviceError : detail::ErrorOf<DeviceError> {
  using ErrorOf::ErrorOf;
};  ///< devices that differ or do not exist
struct ValueError : detail::ErrorOf<ValueError> {
  using ErrorOf::ErrorOf;
};  ///< an argument outside its allowed range
struct GradError : detail::ErrorOf<GradError> {
  using ErrorOf::ErrorOf;
};  ///< misuse of autograd
struct CudaError : detail::ErrorOf<CudaError> {
  using ErrorOf::ErrorOf;
};  ///< a CUDA call that failed
struct OutOfMemoryError : detail::ErrorOf<OutOfMemoryError> {
  using ErrorOf::ErrorOf;
};  ///< failed allocations
struct IoError : detail::ErrorOf<IoError> {
  using ErrorOf::ErrorOf;
};  ///< files: missing, corrupt, not writable

/// A stream into a string, in the C locale, so that texts do not depend on the program's. If memory runs out
/// it throws std::bad_alloc, where std::ostringstream cuts the text and goes on.
struct TextStream : std::ostringstream {
  TextStream() {
    imbue(std::locale::classic());
    exceptions(std::ios::badbit);
  }
};

/// Streams all arguments into one string.
template <class... Args>
std::string str(const Args&... args) {
  TextStream out;
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

/// Returns f(). An error that does not name `function`, because an op inside f threw it, gets the name in
/// front of its message. So does std::bad_alloc.
template <class F>
decltype(auto) in_the_name_of(const char* function, F f) {
  try {
    return f();
  } catch (const Error& error) {
    const std::string name = str(function, ": "), message = error.what();
    if (message.starts_with(name)) throw;
    std::rethrow_exception(error.with(name + message));
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(str(function, ": no memory for its tables"));
  }
}

}  // namespace vox
