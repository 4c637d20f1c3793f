// 05: saved tensors. What each op keeps for its backward, and how a write to it is found out.

#include <iostream>

#include <voxgrad/voxgrad.h>

int main() {
  vox::Tensor x = vox::from_vector<float>({0, 1, 2}, {3}).set_requires_grad(true).set_name("x");
  vox::Tensor y = vox::exp(x).set_name("y");
  vox::Tensor z = (y * x).set_name("z");
  vox::Tensor loss = z.sum();
  std::cout << vox::tape(loss) << "\n";

  const auto attempt = [&](const char* what) {
    try {
      loss.backward();
      std::cout << what << ": the gradient of x is " << x.grad() << "\n\n";
    } catch (const vox::GradError& error) {
      std::cout << what << ":\n" << error.what() << "\n\n";
    }
    x.zero_grad();
  };

  try {
    y.mul_(2);  // the tape cannot record a write, so grad mode refuses it
  } catch (const vox::GradError& error) {
    std::cout << error.what() << "\n\n";
  }
  const auto guard = vox::no_grad();  // from here on, writes are our own responsibility
  z.fill_(0);                         // no node saved z
  attempt("z was written");
  attempt("backward again");
  {
    const auto recording = vox::enable_grad();
    y = vox::exp(x).set_name("y");
    loss = (y * x).sum();
  }
  y.mul_(2);  // exp and mul saved y
  attempt("y was written");
}
