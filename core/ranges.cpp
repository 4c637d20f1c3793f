#include <voxgrad/core/factories.h>

#include <algorithm>
#include <cmath>
#include <limits>

// Tensors of numbers in a row. They are written on the host, then sent.

namespace vox {

namespace {

/// `step` must lead from start towards end. T, int64_t or double, decides the accuracy.
template <class T>
void check_direction(T start, T end, T step) {
  check<ValueError>(step != 0, "arange: step must not be 0");
  check<ValueError>(step > 0 ? start <= end : start >= end, "arange: step ", step,
                    " points away from the end: start ", start, ", end ", end);
}

Tensor integer_range(int64_t start, int64_t end, int64_t step, TensorOptions options) {
  check_direction(start, end, step);
  // Differences of int64_t, and i * step, may need all 64 bits. Arithmetic modulo 2^64 is exact for them.
  const auto first = static_cast<uint64_t>(start), stride = static_cast<uint64_t>(step);
  const uint64_t distance =
      step > 0 ? static_cast<uint64_t>(end) - first : first - static_cast<uint64_t>(end);
  const uint64_t pace = step > 0 ? stride : uint64_t{0} - stride;
  const uint64_t count = distance / pace + (distance % pace != 0);
  check<ShapeError>(count <= static_cast<uint64_t>(INT64_MAX), "arange: ", count,
                    " elements overflow 64 bits");
  const auto element = [=](uint64_t i) { return static_cast<int64_t>(first + i * stride); };
  if (options.dtype == u8 && count > 0) {
    const int64_t last = element(count - 1);
    check<ValueError>(std::min(start, last) >= 0 && std::max(start, last) <= 255, "arange: elements from ",
                      start, " to ", last, " cannot be held by dtype u8");
  }
  const Tensor t = detail::empty_for("arange", {static_cast<int64_t>(count)}, {options.dtype});
  visit_dtype(options.dtype, [&]<class T>(T) {
    T* out = detail::mutable_ptr<T>(t);
    for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<T>(element(i));
  });
  return t.to(options.device);
}

Tensor floating_range(double start, double end, double step, TensorOptions options) {
  check<ValueError>(std::isfinite(start) && std::isfinite(end) && std::isfinite(step),
                    "arange: needs finite numbers, got start ", start, ", end ", end, ", step ", step);
  check_direction(start, end, step);
  const double count = std::ceil((end - start) / step);
  check<ShapeError>(count < 0x1p60, "arange: ", count, " elements are more than 64 bits can address");
  const auto element = [=](double i) { return start + i * step; };
  return visit_floating_storage("arange", options.dtype, [&]<class T>(T) {
    if (count > 0) {
      const double last = element(count - 1), largest = std::numeric_limits<T>::max();
      const auto fits = [](double x) { return std::isfinite(static_cast<opmath_t<T>>(static_cast<T>(x))); };
      check<ValueError>(fits(start) && fits(last), "arange: elements from ", start, " to ", last,
                        " cannot be held by dtype ", options.dtype, "; allowed are ", -largest, " to ",
                        largest);
    }
    const Tensor t = detail::empty_for("arange", {static_cast<int64_t>(count)}, {options.dtype});
    T* out = detail::mutable_ptr<T>(t);
    for (int64_t i = 0; i < t.numel(); ++i) out[i] = static_cast<T>(element(static_cast<double>(i)));
    return t.to(options.device);
  });
}

}  // namespace

Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options) {
  detail::check_device("arange", options.device);
  check<DTypeError>(options.dtype != boolean && !is_only_stored(options.dtype), "arange: dtype ",
                    options.dtype, " has no range; allowed are f32, f64, bf16, f16, i64 and u8");
  if (is_floating(options.dtype))
    return floating_range(start.as_real(), end.as_real(), step.as_real(), options);
  const auto whole = [](Scalar value) {
    detail::check_scalar("arange", value, i64);
    return value.is_integer() ? value.as_integer() : static_cast<int64_t>(value.as_real());
  };
  return integer_range(whole(start), whole(end), whole(step), options);
}

Tensor arange(Scalar end, TensorOptions options) { return arange(0, end, 1, options); }

Tensor linspace(Real start, Real end, Int steps, TensorOptions options) {
  check<ValueError>(steps >= 0, "linspace: steps must be >= 0, got ", steps);
  check<ValueError>(std::isfinite(start) && std::isfinite(end), "linspace: needs finite numbers, got start ",
                    start, " and end ", end);
  const Tensor t = detail::empty_for("linspace", {steps}, {options.dtype});
  visit_floating_storage("linspace", options.dtype, [&]<class T>(T) {
    // From both ends, so that both are exact.
    const double step =
        steps > 1 ? end / static_cast<double>(steps - 1) - start / static_cast<double>(steps - 1) : 0;
    for (int64_t i = 0; i < steps; ++i)
      detail::mutable_ptr<T>(t)[i] =
          static_cast<T>(i < (steps + 1) / 2 ? start + static_cast<double>(i) * step
                                             : end - static_cast<double>(steps - 1 - i) * step);
  });
  return in_the_name_of("linspace", [&] { return t.to(options.device); });
}

Tensor eye(Int n, TensorOptions options) {
  const Tensor t = detail::empty_for("eye", {n, n}, {options.dtype}).zero_();
  visit_storage(options.dtype, [&]<class T>(T) {
    T* out = detail::mutable_ptr<T>(t);
    for (int64_t i = 0; i < n; ++i) out[i * (n + 1)] = T(1);
  });
  return in_the_name_of("eye", [&] { return t.to(options.device); });
}

}  // namespace vox
