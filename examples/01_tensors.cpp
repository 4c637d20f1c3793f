// 01: tensors. You learn to make, print and view them, to compute with them, and what an error says.

#include <iostream>

#include <voxgrad/voxgrad.h>

int main() {
  // A tensor is a multi-dimensional array with one dtype on one device.
  vox::Tensor a = vox::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  std::cout << "a =\n" << a << "\n\n";

  // Ops work element by element and broadcast: the row is added to both rows of a.
  vox::Tensor row = vox::from_vector<float>({10, 20, 30}, {3});
  std::cout << "a + row =\n" << a + row << "\n\n";
  std::cout << "2 * a - 1 =\n" << 2 * a - 1 << "\n\n";

  // A view has its own offset, sizes and strides but shares the memory.
  vox::Tensor column = a.select(1, 0);
  std::cout << "first column: " << column << ", of the transpose: " << a.transpose(0, 1).select(0, 0) << "\n";
  column.fill_(0);
  std::cout << "after column.fill_(0), a =\n" << a << "\n\n";

  // Copying a Tensor makes a second handle on the same tensor; clone() copies the elements.
  vox::Tensor same = a, copy = a.clone();
  a.zero_();
  std::cout << "same: sum " << same.sum().item() << ", copy: sum " << copy.sum().item() << "\n";

  // dtypes never mix silently. The error says what was wrong and what to do.
  try {
    a + vox::ones({2, 3}, {.dtype = vox::f64});
  } catch (const vox::DTypeError& error) {
    std::cout << "error: " << error.what() << "\n";
  }

  // Devices are explicit too.
  if (vox::cuda::is_available()) {
    vox::Tensor on_gpu = copy.to(vox::Device::cuda());
    std::cout << "on the GPU:\n" << on_gpu * on_gpu << "\n";
  }

  // Random numbers depend only on the seed.
  vox::manual_seed(1);
  vox::Tensor r = vox::randn({2, 2});
  vox::manual_seed(1);
  const bool equal = r.to_vector<float>() == vox::randn({2, 2}).to_vector<float>();
  std::cout << "the same seed gives the same numbers: " << std::boolalpha << equal << "\n";
  return equal && same.sum().item() == 0 && copy.sum().item() == 16 ? 0 : 1;
}
