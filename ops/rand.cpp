#include <voxgrad/core/new_tensor.h>
#include <voxgrad/ops/kernels.h>

namespace vox {

void detail::check_random(const char* function, DType dtype) {
  check<DTypeError>(is_floating(dtype), function, ": needs a floating dtype, got ", dtype,
                    "; allowed are f32, f64, bf16 and f16 (randint() draws whole numbers)");
}

Tensor rand(const Shape& shape, TensorOptions options, Generator& generator) {
  constexpr ByDevice kernel{"rand", &cpu::rand, VOX_CUDA(&cuda::rand)};
  detail::check_random("rand", options.dtype);
  const Tensor output = detail::empty_for("rand", shape, options);
  kernel.on(options.device)(output, generator.next());
  return output;
}

}  // namespace vox
