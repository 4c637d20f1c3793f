#include <voxgrad/ops/unary.h>

// The ops of one operand that most networks need; functions.cpp has the others.

namespace vox {

using detail::unary;

Tensor neg(const Tensor& x) { return unary<Unary::neg>("neg", x); }
Tensor abs(const Tensor& x) { return unary<Unary::abs>("abs", x); }
Tensor sign(const Tensor& x) { return unary<Unary::sign>("sign", x); }
Tensor exp(const Tensor& x) { return unary<Unary::exp>("exp", x); }
Tensor log(const Tensor& x) { return unary<Unary::log>("log", x); }
Tensor sqrt(const Tensor& x) { return unary<Unary::sqrt>("sqrt", x); }
Tensor tanh(const Tensor& x) { return unary<Unary::tanh>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<Unary::sigmoid>("sigmoid", x); }
Tensor relu(const Tensor& x) { return unary<Unary::relu>("relu", x); }

}  // namespace vox
