#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/reduce.h>

#include <limits>
#include <utility>

namespace vox {

namespace {

/// Whether the dtype holds every whole number from `first` to `last`.
bool holds_all(DType dtype, int64_t first, int64_t last) {
  check<DTypeError>(!is_only_stored(dtype), "randint: no op computes in dtype ", dtype,
                    "; convert an i64 with to(dtype)");
  return visit_dtype(dtype, [&]<class T>(T) {
    using Limits = std::numeric_limits<T>;
    if constexpr (is_floating_v<T>)
      return -(int64_t{1} << Limits::digits) <= first && last <= int64_t{1} << Limits::digits;
    else
      return int64_t{Limits::min()} <= first && last <= int64_t{Limits::max()};
  });
}

}  // namespace

Tensor randn(const Shape& shape, TensorOptions options, Generator& generator) {
  constexpr ByDevice kernel{"randn", &cpu::randn, VOX_CUDA(&cuda::randn)};
  detail::check_random("randn", options.dtype);
  const Tensor output = detail::empty_for("randn", shape, options);
  kernel.on(options.device)(output, generator.next());
  return output;
}

Tensor randint(Int low, Int high, const Shape& shape, TensorOptions options, Generator& generator) {
  constexpr ByDevice kernel{"randint", &cpu::randint, VOX_CUDA(&cuda::randint)};
  check<ValueError>(low < high, "randint: needs low < high, got low = ", low, ", high = ", high);
  check<ValueError>(holds_all(options.dtype, low, high - 1), "randint: dtype ", options.dtype,
                    " does not hold all whole numbers from ", low, " to ", high - 1);
  const Tensor output = detail::empty_for("randint", shape, options);
  kernel.on(options.device)(output, generator.next(), low,
                            static_cast<uint64_t>(high) - static_cast<uint64_t>(low));
  return output;
}

Tensor rand_like(const Tensor& t, Generator& generator) {
  detail::check_defined("rand_like", "t", t);
  return in_the_name_of("rand_like", [&] { return rand(t.shape(), t.options(), generator); });
}
Tensor randn_like(const Tensor& t, Generator& generator) {
  detail::check_defined("randn_like", "t", t);
  return in_the_name_of("randn_like", [&] { return randn(t.shape(), t.options(), generator); });
}
Tensor randint_like(const Tensor& t, Int low, Int high, Generator& generator) {
  detail::check_defined("randint_like", "t", t);
  return in_the_name_of("randint_like",
                        [&] { return randint(low, high, t.shape(), t.options(), generator); });
}

Tensor bernoulli(const Tensor& p, Generator& generator) {
  detail::check_floating("bernoulli", "p", p);
  return in_the_name_of("bernoulli", [&] {
    const Tensor chance = p.detach(), allowed = logical_and(ge(chance, 0), le(chance, 1));
    check<ValueError>(all(allowed).item<bool>(), "bernoulli: probabilities must be from 0 to 1");
    return lt(rand(p.shape(), {opmath(p.dtype()), p.device()}, generator), chance.to(opmath(p.dtype())))
        .to(p.dtype());
  });
}

Tensor randperm(Int n, Device device, Generator& generator) {
  check<ValueError>(n >= 0, "randperm: n must be >= 0, got ", n);
  detail::check_device("randperm", device);
  return in_the_name_of("randperm", [&] {
    const Tensor order = arange(n, {.dtype = i64});
    const Tensor draws = randint(0, std::numeric_limits<int64_t>::max(), {n}, {.dtype = i64}, generator);
    int64_t* const out = detail::mutable_ptr<int64_t>(order);
    // Fisher & Yates: swaps element i with a random one of the elements 0 to i.
    for (int64_t i = n - 1; i > 0; --i) std::swap(out[i], out[detail::ptr<int64_t>(draws)[i] % (i + 1)]);
    return order.to(device);
  });
}

}  // namespace vox
