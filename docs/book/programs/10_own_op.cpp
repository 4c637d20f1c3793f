// 10: an op of one's own. 1 / sqrt(x) composed of ops, as a Function, and with a kernel.

#include <iostream>

#include <voxgrad/voxgrad.h>

vox::Tensor composed(const vox::Tensor& x) { return 1 / vox::sqrt(x); }

struct Rsqrt : vox::Function<Rsqrt> {
  static constexpr const char* name = "my_rsqrt";
  vox::Tensor forward(vox::FunctionContext& ctx, const std::vector<vox::Tensor>& inputs) {
    const vox::Tensor y = 1 / vox::sqrt(inputs[0]);
    ctx.save_for_backward({y});
    return y;
  }
  std::vector<vox::Tensor> backward(vox::FunctionContext& ctx, const vox::Tensor& g) {
    const vox::Tensor y = ctx.saved()[0];
    return {g * (y * y * y * -0.5)};
  }
};
vox::Tensor as_function(const vox::Tensor& x) { return Rsqrt().apply({x}); }

int main() {
  vox::Tensor x = vox::from_vector<double>({0.25, 1, 4}, {3}).set_requires_grad(true);
  for (auto* op : {&composed, &as_function, &vox::rsqrt}) {
    vox::Tensor y = op(x);
    const std::string tape = vox::tape(y);
    std::cout << y.detach() << "\n" << tape.substr(0, tape.find("(#"));  // without the legend
    y.sum().backward();
    std::cout << "gradient " << x.grad() << "\n\n";
    x.zero_grad();
  }
  for (auto* op : {&composed, &as_function, &vox::rsqrt}) {
    const auto f = [op](const std::vector<vox::Tensor>& inputs) { return op(inputs[0]); };
    vox::autograd::gradcheck(f, {x});
    vox::autograd::gradgradcheck(f, {x});
  }
  std::cout << "gradcheck and gradgradcheck agree with all three\n";
}
