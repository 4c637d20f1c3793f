// 03: views and broadcasting. What is read several times gets the sum of several gradients.

#include <iostream>

#include <voxgrad/voxgrad.h>

double dot(const vox::Tensor& a, const vox::Tensor& b) { return (a * b).sum().item<double>(); }

int main() {
  vox::Tensor x = vox::from_vector<double>({1, 2, 3, 4, 5, 6}, {2, 3}).set_requires_grad(true);
  vox::Tensor row = vox::from_vector<double>({10, 20, 30}, {3}).set_requires_grad(true);

  // A view is an offset, sizes and strides over memory that it shares.
  std::cout << "strides: x " << x.strides() << ", transposed " << x.transpose(0, 1).strides() << ", row "
            << row.strides() << ", row expanded to (2,3) " << row.expand({2, 3}).strides() << "\n\n";

  // Both rows of x read the same row. Its gradient is the sum of the gradients of its copies.
  const vox::Tensor g = vox::from_vector<double>({1, 2, 3, 100, 200, 300}, {2, 3});
  (x + row).backward(g);
  std::cout << "gradient of x + row:\n" << g << "\narrives at x as\n" << x.grad();
  std::cout << "\nand at row as\n" << row.grad() << "\n\n";

  // The gradient of a view is zero outside of what the view shows.
  x.zero_grad();
  x.select(1, 2).sum().backward();
  std::cout << "gradient of x through the sum of its last column:\n" << x.grad() << "\n\n";

  // expand and sum_to are adjoint: <expand(row), g> = <row, sum_to(g)>.
  std::cout << dot(row.expand({2, 3}), g) << " = " << dot(row, vox::sum_to(g, {3})) << "\n";
}
