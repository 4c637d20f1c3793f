// 11: number formats. What they can hold, and which updates of training survive in them.

#include <bit>
#include <iomanip>
#include <iostream>

#include <voxgrad/voxgrad.h>

// What a tensor core reads of an f32 in TF32 arithmetic: the nearest number of 11 significant bits.
float tf32(float v) { return std::bit_cast<float>((std::bit_cast<uint32_t>(v) + 0x1000u) & ~0x1fffu); }

double stored(double v, vox::DType dtype) {
  return vox::full({}, v, {.dtype = vox::f64}).to(dtype).to(vox::f64).item<double>();
}

int main() {
  std::cout << std::setprecision(8);
  for (const double v : {1.0 / 3, 1.001, 1e-8, 1e6})
    std::cout << v << ": f32 " << stored(v, vox::f32) << ", TF32 " << tf32(static_cast<float>(v)) << ", bf16 "
              << stored(v, vox::bf16) << ", f16 " << stored(v, vox::f16) << "\n";

  // 1000 steps that each add 0.001 to a weight of 1.
  for (const vox::DType dtype : {vox::f32, vox::bf16, vox::f16}) {
    vox::Tensor weight = vox::full({}, 1, {.dtype = dtype}), master = vox::full({}, 1);
    for (int step = 0; step < 1000; ++step) {
      weight.add_(vox::full({}, 0.001, {.dtype = dtype}));
      master.add_(0.001);
    }
    std::cout << dtype << " weight: " << weight.to(vox::f32).item()
              << ", rounded from an f32 master: " << master.to(dtype).to(vox::f32).item() << "\n";
  }

  // A small gradient vanishes in f16. Scaling the loss moves it into f16's range.
  const vox::Tensor x = vox::full({}, 1, {.dtype = vox::f16}).set_requires_grad(true);
  for (const double scale : {1.0, 65536.0}) {
    const vox::Tensor loss = x.to(vox::f32) * 1e-8 * scale;
    const vox::Tensor g = vox::grad({loss}, {x})[0];
    std::cout << "loss times " << scale << ": gradient " << g.to(vox::f32).item() / scale << "\n";
  }
}
