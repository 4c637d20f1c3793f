#include <bit>
#include <iomanip>

#include "docs/faq/answers.h"

namespace faq {

ANSWER(16, sums) {
  const vox::Tensor x = vox::full({1000000}, 0.1f);
  float in_order = 0;
  for (const float value : x.to_vector<float>()) in_order += value;
  vox::set_num_threads(1);
  const float one_thread = x.sum().item();
  vox::set_num_threads(4);
  const float four_threads = x.sum().item();
  std::cout << std::fixed << std::setprecision(3) << "one after the other  " << in_order
            << "\nsum, 1 thread        " << one_thread << "\nsum, 4 threads       " << four_threads
            << "\nsum in f64           " << x.to(vox::f64).sum().item<double>() << "\n";
}

/// The nearest number with TF32's 11 significant bits; f32 has 24.
float to_tf32(float value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x1000u) & ~0x1fffu);
}

ANSWER(17, tf32) {
  const bool highest = vox::float32_precision() == vox::Float32Precision::highest;
  std::cout << "the default is highest: " << std::boolalpha << highest << "\n";
  for (const float value : {1000.3f, 0.1f, 1.0f / 3})
    std::cout << std::setprecision(8) << value << " becomes " << to_tf32(value) << "\n";
  const vox::PrecisionGuard guard(vox::Float32Precision::high);  // TF32 on this thread, until the block ends
}

ANSWER(18, dtypes) {
  const vox::Tensor a = vox::ones({2}), b = vox::ones({2}, {.dtype = vox::f64});
  const vox::Tensor i = vox::arange(2, {.dtype = vox::i64});
  attempt([&] { a + b; });
  attempt([&] { i * 0.5; });
  attempt([&] { vox::exp(i); });
  std::cout << a.to(vox::f64) + b << "\n" << 0.5 * i.to(vox::f32) << "\n";
}

ANSWER(19, seeds) {
  vox::manual_seed(1);
  const vox::Tensor first = vox::rand({3});
  const vox::GeneratorState place = vox::default_generator().state();
  const vox::Tensor second = vox::rand({3});
  std::cout << first << "\n" << second << "\n";

  vox::manual_seed(1);
  std::cout << vox::rand({3}) << " the same seed\n";
  vox::default_generator().set_state(place);  // as from a checkpoint
  std::cout << vox::rand({3}) << " the same place in the stream\n";
}

}  // namespace faq
