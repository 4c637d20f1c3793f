#include "tests/support/catalogue.h"

#include <cmath>
#include <limits>

namespace vox::testing {

using enum Holds;

namespace {

std::string described(const capi::Value& value) {
  if (const auto* number = value.get<Scalar>()) return str(number->as_real());
  if (const auto* text = value.get<std::string>()) return *text;
  if (const auto* list = value.get<capi::Value::List>()) return str(Shape(*list));
  return value.is_given() ? "reals" : "none";
}

constexpr double infinity = std::numeric_limits<double>::infinity();

#define VOX_FORMULA(expression)                                                                   \
  []([[maybe_unused]] double x, [[maybe_unused]] double y, [[maybe_unused]] double z) -> double { \
    return expression;                                                                            \
  }

using Formulas = std::vector<std::pair<const char*, Formula>>;

class Table {
 public:
  explicit Table(Size size) : small(size == Size::small) {}

  std::vector<Sample> samples;
  const bool small;
  const Shape box = small ? Shape{3, 2, 4} : Shape{3, 10, 40};
  const Operand x{box}, p{box, positive}, condition{box, bools};
  const char* family = "";

  Sample& add(const char* op, std::vector<Argument> arguments, const DTypes& dtypes = floating) {
    samples.push_back({family, op, std::move(arguments), dtypes});
    return samples.back();
  }
  /// An elementwise op, with its formula and how far it may be from it.
  Sample& add(const char* op, std::vector<Argument> arguments, const DTypes& dtypes, Formula formula,
              double ulps = 0) {
    Sample& sample = add(op, std::move(arguments), dtypes);
    sample.formula = formula, sample.ulps = ulps;
    return sample;
  }

  void unary() {
    family = "unary";
    add("neg", {x}, arithmetic, VOX_FORMULA(-x));
    add("abs", {x}, arithmetic, VOX_FORMULA(std::abs(x)));
    add("sign", {x}, arithmetic, VOX_FORMULA(std::isnan(x) ? x : (x > 0) - (x < 0)));
    add("relu", {x}, arithmetic, VOX_FORMULA(x < 0 ? 0 : x));
    add("relu6", {x}, arithmetic, VOX_FORMULA(x < 0 ? 0 : x > 6 ? 6 : x));
    add("clamp", {x, 1}, arithmetic, VOX_FORMULA(x < y ? y : x));
    for (const char* op : {"clamp", "hardtanh"}) {
      add(op, {x, 0, 2}, arithmetic, VOX_FORMULA(x < y ? y : x > z ? z : x));
      add(op, {x, -1.5, 2}, floating, VOX_FORMULA(x < y ? y : x > z ? z : x));
    }
    add("floor", {x}, arithmetic, VOX_FORMULA(std::floor(x)));
    add("ceil", {x}, arithmetic, VOX_FORMULA(std::ceil(x)));
    add("round", {x}, arithmetic, VOX_FORMULA(std::nearbyint(x)));
    add("exp", {x}, floating, VOX_FORMULA(std::exp(x)), 2.5).in_half(Half::exact_forward);
    add("log", {p}, floating, VOX_FORMULA(std::log(x)), 2.5);
    add("sqrt", {p}, floating, VOX_FORMULA(std::sqrt(x)), 0.5).in_half(Half::exact_forward);
    add("rsqrt", {p}, floating, VOX_FORMULA(1 / std::sqrt(x)), 2).in_half(Half::exact_forward);
    add("sin", {x}, floating, VOX_FORMULA(std::sin(x)), 2);
    add("cos", {x}, floating, VOX_FORMULA(std::cos(x)), 2);
    add("log1p", {p}, floating, VOX_FORMULA(std::log1p(x)), 2);
    add("expm1", {x}, floating, VOX_FORMULA(std::expm1(x)), 2).in_half(Half::exact_forward);
    add("erf", {x}, floating, VOX_FORMULA(std::erf(x)), 2);
    add("tanh", {x}, floating, VOX_FORMULA(std::tanh(x)), 8).in_half(Half::exact_forward);
    add("sigmoid", {x}, floating, VOX_FORMULA(1 / (1 + std::exp(-x))), 4).in_half(Half::exact_forward);
    add("leaky_relu", {x, 0.125}, floating, VOX_FORMULA(x < 0 ? y * x : x));
    // The argument of erfc is rounded, and erfc's steep tail multiplies the error: up to x^2 ulp for x = -4.
    add("gelu", {x}, floating, VOX_FORMULA(x * std::erfc(-x * std::sqrt(0.5)) / 2), 24);
    add("gelu_tanh", {x}).in_half(Half::composed);
    add("silu", {x}, floating, VOX_FORMULA(x / (1 + std::exp(-x))), 4);
    add("mish", {x}, floating, VOX_FORMULA(x * std::tanh(std::log1p(std::exp(x)))), 6);
    add("hardsigmoid", {x}, floating, VOX_FORMULA((x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6), 2);
    add("hardswish", {x}, floating, VOX_FORMULA(x * (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6), 2);
    add("elu", {x, 0.5}, floating, VOX_FORMULA(x > 0 ? x : y * std::expm1(x)), 4);
    for (const auto& [beta, threshold] : {std::pair(1, 20), {2, 3}})
      add("softplus", {x, beta, threshold}, floating,
          VOX_FORMULA(y * x > z ? x : std::log1p(std::exp(y * x)) / y), 4);
  }

  void binary() {
    family = "binary";
    const Shape box = small ? Shape{2, 1, 2} : this->box;  // few elements: second gradients take long
    const Operand x{box}, p{box, positive}, condition{box, bools};
    // NaN wins.
    const Formulas of_numbers{{"add", VOX_FORMULA(x + y)},
                              {"sub", VOX_FORMULA(x - y)},
                              {"mul", VOX_FORMULA(x * y)},
                              {"maximum", VOX_FORMULA(std::isnan(x) || x > y ? x : y)},
                              {"minimum", VOX_FORMULA(std::isnan(x) || x < y ? x : y)}};
    const Formula quotient = VOX_FORMULA(x / y), power = VOX_FORMULA(std::pow(x, y));
    std::vector<Shape> seconds{box};
    if (small)
      seconds.insert(seconds.end(), {Shape{box[2]}, Shape{1, 1, 1}, Shape{2, 1, 1, 1}});  // broadcast
    else
      add("add", {Operand{{10, 40}}, Operand{{1, 40}, numbers, false}}, arithmetic);
    for (const Shape& second : seconds) {
      const Operand y{second, numbers, second == box}, q{second, positive, second == box};
      for (const auto& [op, formula] : of_numbers) add(op, {x, y}, arithmetic, formula);
      add("div", {x, y}, floating, quotient);
      add("pow", {p, q}, floating, power, 4).in_half(Half::exact_forward);
      add("where", {condition, x, y}, any_dtype, VOX_FORMULA(x ? y : z));
    }
    for (const char* op : {"add", "sub", "mul"}) add(op, {x, 3}, arithmetic);
    add("sub", {3, x}, arithmetic);
    for (const char* op : {"add", "mul", "div"}) add(op, {x, 0.3});
    for (const char* op : {"maximum", "minimum"}) add(op, {x, 0.375});
    add("div", {x, 3}, floating, quotient);
    add("div", {3, x}, floating, quotient);
    add("sub", {0.3, x});
    add("div", {0.7, x});
    for (const double exponent : {0., 1., 2., 3.}) add("pow", {x, exponent}, floating, power, 4);
    for (const double exponent : {1.5, -1.5}) add("pow", {p, exponent}, floating, power, 4);
    add("pow", {3, x}, floating, power, 4).in_half(Half::exact_forward);
    const Operand bound{{box[2]}, numbers, false};
    add("clamp", {x, bound, {}}, every_dtype).in_half(Half::composed);
    add("clamp", {x, bound, x}, every_dtype).in_half(Half::composed);
  }

  void choices() {
    family = "choices";
    for (const auto& [op, formula] : Formulas{{"eq", VOX_FORMULA(x == y)},
                                              {"ne", VOX_FORMULA(x != y)},
                                              {"lt", VOX_FORMULA(x < y)},
                                              {"le", VOX_FORMULA(x <= y)},
                                              {"gt", VOX_FORMULA(x > y)},
                                              {"ge", VOX_FORMULA(x >= y)}}) {
      add(op, {x, x}, every_dtype, formula);
      add(op, {x, 1}, every_dtype, formula);
    }
    add("logical_and", {x, x}, every_dtype, VOX_FORMULA(x && y));
    add("logical_or", {x, x}, every_dtype, VOX_FORMULA(x || y));
    add("logical_xor", {x, x}, every_dtype, VOX_FORMULA(!x != !y));
    add("logical_not", {x}, every_dtype, VOX_FORMULA(!x));
    add("isnan", {x}, every_dtype, VOX_FORMULA(std::isnan(x)));
    add("isinf", {x}, every_dtype, VOX_FORMULA(std::isinf(x)));
    add("isfinite", {x}, every_dtype, VOX_FORMULA(std::isfinite(x)));
    add("where", {condition, x, 1}, any_dtype, VOX_FORMULA(x ? y : z));
    add("where", {condition, 1, x}, any_dtype, VOX_FORMULA(x ? y : z));
    add("masked_fill", {x, condition, 1}, any_dtype, VOX_FORMULA(y ? z : x));
    add("prelu", {x, Operand{{box[1]}, numbers, false}}).in_half(Half::exact_forward);
    add("prelu", {x, Operand{{1}, numbers, false}}).in_half(Half::exact_forward);
  }

  void copies() {
    family = "copies";
    add("clone", {x}, any_dtype);
    add("contiguous", {x}, any_dtype);
    add("to", {x, "cpu"}, any_dtype);
    for (const DType to : any_dtype) add("to", {x, to_string(to)}, any_dtype);
    add("zeros_like", {x}, any_dtype);
    add("ones_like", {x}, any_dtype);
    add("full_like", {x, 1}, any_dtype);
  }

  void shaping() {
    family = "shaping";
    add("reshape", {x, {-1, 4}}, any_dtype);
    add("slice", {x, 1, 1, 9, 3}, any_dtype);
    add("select", {x, 2, -1}, any_dtype);
    add("permute", {x, {2, 0, 1}}, any_dtype);
    add("transpose", {x, 0, 2}, any_dtype);
    add("expand", {Operand{{box[0], 1, box[2]}}, {2, -1, 5, -1}}, any_dtype);
    add("squeeze", {Operand{{box[0], 1, box[2]}}}, any_dtype);
    add("squeeze", {Operand{{box[0], 1, box[2]}}, 1}, any_dtype);
    add("unsqueeze", {x, 1}, any_dtype);
    add("flatten", {x, 1, 2}, any_dtype);
    add("pad", {x, {1, 2, 0, 1}, 1}, any_dtype);
    for (const char* mode : {"reflect", "replicate", "circular"})
      add("pad", {x, {1, 2, 0, 1}, mode}, any_dtype).in_half(Half::exact_forward);
    add("flip", {x, {0, 2}}, any_dtype);
    add("roll", {x, {3}, {1}}, any_dtype);
    add("cat", {std::vector{x, x}, 2}, any_dtype);
    add("stack", {std::vector{x, x}, 1}, any_dtype);
    add("index_select", {Operand{box, numbers, false}, 0, Operand{{5}, indices}}, any_dtype);
    add("index_select", {x, 2, Operand{{5}, indices, false}}, any_dtype);
    if (!small) add("index_select", {x, 1, Operand{{5}, indices, false}}, any_dtype);
    add("one_hot", {Operand{{5, 2}, indices}, 3}, {i64});
    add("repeat", {x, {2, 1, 3}}, any_dtype).in_half(Half::exact_forward);
    add("repeat", {Operand{{3}}, {2, 3}}, any_dtype).in_half(Half::exact_forward);
    add("tile", {x, {2, 1}}, any_dtype);
    for (const size_t which : {0, 1}) {
      const Operand rows{{3}, numbers, true, which == 1}, columns{{4}, numbers, false, which == 0};
      add("meshgrid", {std::vector{rows, columns}}, any_dtype).takes(which);
    }
    add("pixel_shuffle", {Operand{{2, 8, 3, 2}}, 2, 2}, any_dtype);
    add("pixel_shuffle", {Operand{{2, 4, 3}}, 2, 1}, any_dtype);
    add("pixel_shuffle", {Operand{{8, 1, 2, 3}}, 2, 3}, any_dtype);
    add("pixel_unshuffle", {Operand{{2, 2, 4, 6}}, 2, 2}, any_dtype);
    add("pixel_unshuffle", {Operand{{1, 2, 4, 2}, numbers, false}, 2, 3}, any_dtype);
  }

  void indexing() {
    family = "indexing";
    const Operand fixed{box, numbers, false}, line{{3, 5}};
    const Operand last{{box[0], box[1], 5}, indices}, first{{5, 2, 3}, indices},
        corner{{2, 1, 3}, indices, false};
    const Operand of_last{last.shape}, of_first{first.shape}, of_corner{{2, 2, 4}, numbers, false};
    add("gather", {x, 2, last}, any_dtype);
    add("gather", {fixed, 0, first}, any_dtype);
    add("scatter", {x, 2, last, of_last}, any_dtype);
    add("scatter", {fixed, 0, first, of_first}, any_dtype);
    add("scatter", {fixed, 2, corner, of_corner}, any_dtype);
    add("scatter", {x, 2, last, 1}, any_dtype);
    add("scatter_add", {x, 2, last, of_last}, arithmetic);
    add("scatter_add", {fixed, 0, first, of_first}, arithmetic);
    add("scatter_add", {fixed, 2, corner, of_corner}, arithmetic);
    add("embedding", {Operand{{5, 2}, indices}, Operand{{3, 4}, numbers, false}});
    add("nonzero", {condition}, {f32});
    add("nonzero", {x}, every_dtype);
    for (const int64_t dim : {0, 2}) {
      add("cumsum", {x, dim}, any_dtype);
      for (const size_t which : {0, 1}) add("sort", {x, dim, dim == 0}, every_dtype).takes(which);
      add("topk", {fixed, 2, dim, dim == 0}, every_dtype);
      add("median", {fixed, dim, dim == 0}, every_dtype);
      for (const double q : {0.3, 1.})
        add("quantile", {fixed, q, dim, dim == 0}).in_half(Half::exact_forward);
    }
    for (const int64_t dim : {0, 1}) add("cumprod", {line, dim}, any_dtype).in_half(Half::exact_forward);
    add("argsort", {x, 1, false}, every_dtype);
    add("median", {fixed}, every_dtype);
    add("quantile", {fixed, 0.5, {}, true}).in_half(Half::exact_forward);
    if (small) return;
    // Rows of several tiles of a GPU.
    add("cumsum", {Operand{{2, 2500}}, 1}, {f32, f64, i64});
    add("sort", {Operand{{3, 2500}}, 1, true}, every_dtype).takes(1);
    add("scatter_add", {Operand{{2500}, numbers, false}, 0, Operand{{3000}, indices}, Operand{{3000}}},
        {f32, f64, i64});
  }

  void reductions() {
    family = "reductions";
    for (const Shape& dims : {Shape{}, {0}, {1}, {2}, {0, 2}, {1, 2}}) {
      const bool keepdim = dims.rank() == 1;
      add("sum", {x, dims, keepdim}, any_dtype);
      for (const char* op : {"max", "min", "argmax", "argmin"}) add(op, {x, dims, keepdim}, every_dtype);
      for (const char* op : {"any", "all"}) add(op, {x, dims, keepdim}, every_dtype);
      add("mean", {x, dims, keepdim});
      add("prod", {x, dims, keepdim}, any_dtype).in_half(Half::composed).in_any_order();
      add("logsumexp", {x, dims, keepdim}).in_half(Half::composed).in_any_order();
      for (const size_t which : {0, 1})
        add("var_mean", {x, dims, 1, keepdim}).in_half(Half::composed).in_any_order().takes(which);
      for (const char* op : {"var", "std"})
        add(op, {x, dims, 0, keepdim}).in_half(Half::composed).in_any_order();
      for (const double order : {1., 2., infinity})
        add("norm", {x, order, dims, keepdim}).in_half(Half::composed).in_any_order();
    }
    for (const int64_t dim : {0, 1, 2}) {
      for (const char* op : {"max", "min"}) add(op, {x, dim, dim == 0}, every_dtype);
      for (const char* op : {"softmax", "log_softmax"}) add(op, {x, dim}).in_half(Half::exact_forward);
    }
    add("sum_to", {x, {box[1], 1}}, every_dtype);
    if (small) return numbers_alone();
    // Rows that fit a warp, a block, or several blocks of a GPU; with dense and with strided elements.
    for (const Shape& shape : {Shape{9, 300}, Shape{300, 9}, Shape{5000}}) {
      for (const char* op : {"sum", "mean", "max", "min"}) add(op, {Operand{shape}, {-1}, false});
      for (const char* op : {"sum", "max"}) add(op, {Operand{shape}, {0}, true});
    }
    for (const Shape& shape :
         {Shape{70, 8}, Shape{70, 64}, Shape{70, 512}, Shape{5, 4096}, Shape{3, 16384}, Shape{2, 40000},
          Shape{2, 5, 64}, Shape{2, 32, 64}, Shape{2, 33, 301}, Shape{4, 33}}) {
      for (const char* op : {"softmax", "log_softmax"})
        add(op, {Operand{shape}, 1}).in_half(Half::exact_forward);
    }
  }

  void numbers_alone() {
    const Operand one{{}, numbers, false};
    for (const int64_t dim : {0, -1}) {
      add("max", {one, dim, false});
      add("log_softmax", {one, dim});
      add("prod", {one, Shape{dim}, false}, any_dtype);
    }
  }

  void products() {
    family = "products";
    const auto matrices = [&](const char* op, const Shape& a, const Shape& b, bool batched = false) {
      return &add(op, {Operand{a}, Operand{b, numbers, batched}});
    };
    const auto einsum = [&](const char* equation, const std::vector<Operand>& operands,
                            const DTypes& dtypes = floating) {
      add("einsum", {equation, operands}, dtypes).in_half(Half::composed);
    };
    einsum("bij,bjk->bik", {Operand{{2, 3, 2}}, Operand{{2, 2, 3}}});
    einsum("ij,kj", {Operand{{2, 3}}, Operand{{4, 3}, numbers, false}});
    einsum("ii,ij,k->kj", {Operand{{3, 3}, numbers, false}, Operand{{3, 2}, numbers, false}, Operand{{2}}});
    einsum("abc->ca", {x}, any_dtype);  // a sum
    einsum("bc,bc->b", {Operand{{2, 3}}, Operand{{2, 1}}});
    const Operand q{small ? Shape{2, 3, 2} : Shape{2, 3, 20, 8}},
        k{small ? Shape{2, 4, 2} : Shape{2, 3, 30, 8}};
    add("scaled_dot_product_attention", {q, k, k}).in_half(Half::composed).in_any_order();
    add("scaled_dot_product_attention", {q, k, k, {}, 0, true}).in_half(Half::composed).in_any_order();
    const Operand mask{small ? Shape{1, 3, 4} : Shape{1, 20, 30}, numbers, false};
    add("scaled_dot_product_attention", {q, k, k, mask}).in_half(Half::composed).in_any_order();
    if (small) {
      matrices("matmul", {3, 2}, {2, 4});
      matrices("matmul", {3}, {3});
      matrices("matmul", {3}, {3, 2});
      matrices("matmul", {2, 3}, {3});
      matrices("matmul", {2, 3, 2}, {2, 3});
      matrices("matmul", {3, 2}, {2, 2, 3});
      matrices("matmul", {3}, {2, 3, 2});
      matrices("matmul", {2, 1, 2, 3}, {3, 3, 2});
      matrices("bmm", {2, 2, 3}, {2, 3, 2}, true);
      matrices("linear", {2, 3}, {4, 3});
      add("linear", {Operand{{2, 3}}, Operand{{4, 3}, numbers, false}, Operand{{4}, numbers, false}});
      return;
    }
    matrices("matmul", {20, 24}, {24, 18});
    matrices("matmul", {3, 7, 5}, {3, 5, 9}, true);
    matrices("matmul", {20, 24}, {24});
    matrices("matmul", {4, 3, 5}, {5, 2})->in_half(Half::exact_forward);
    matrices("matmul", {3, 20, 33}, {3, 33, 17}, true);
    matrices("bmm", {3, 7, 5}, {3, 5, 9}, true);
    matrices("linear", {6, 24}, {10, 24});
  }

  /// input, weight, bias, stride, padding, then dilation or output_padding, groups, and dilation.
  void convolutions() {
    family = "convolutions";
    const auto conv = [&](const char* op, const Shape& input, const Shape& weight, int64_t channels,
                          const std::vector<Argument>& options) {
      std::vector<Argument> all{Operand{input}, Operand{weight, numbers, false},
                                Operand{{channels}, numbers, false}};
      all.insert(all.end(), options.begin(), options.end());
      add(op, std::move(all)).in_half(Half::composed);
    };
    if (small) {
      conv("conv1d", {2, 4, 5}, {2, 2, 3}, 2, {2, 1, 1, 2});
      conv("conv2d", {1, 2, 4, 5}, {3, 2, 2, 3}, 3, {{1, 2}, {1, 0}, {2, 1}});
      conv("conv3d", {2, 2, 3, 2, 3}, {2, 2, 2, 1, 2}, 2, {1, 1});
      conv("conv_transpose1d", {2, 3, 4}, {3, 2, 2}, 2, {3, 0, 1, 1, 2});
      conv("conv_transpose2d", {4, 2, 3}, {4, 1, 3, 2}, 2, {{2, 3}, {0, 1}, {1, 0}, 2});
      conv("conv_transpose3d", {2, 2, 2, 2, 2}, {2, 2, 1, 2, 3}, 2, {{1, 2, 2}, {0, 1, 0}});
      return;
    }
    conv("conv1d", {2, 4, 9}, {6, 2, 3}, 6, {2, 1, 1, 2});
    conv("conv2d", {2, 3, 6, 7}, {4, 3, 2, 3}, 4, {1, 1, {2, 1}});
    conv("conv3d", {2, 4, 5, 6, 7}, {6, 2, 2, 3, 3}, 6, {{1, 2, 1}, 1, 1, 2});
    conv("conv3d", {1, 16, 5, 6, 9}, {16, 16, 3, 3, 3}, 16, {1, 1});  // many channels
    conv("conv_transpose1d", {2, 4, 9}, {4, 3, 3}, 6, {2, 1, 0, 2});
    conv("conv_transpose2d", {2, 3, 6, 7}, {3, 4, 2, 3}, 4, {1, 1, 0, 1, {2, 1}});
    conv("conv_transpose3d", {2, 4, 3, 4, 5}, {4, 3, 2, 3, 3}, 6, {{1, 2, 1}, 1, 0, 2});
    conv("conv_transpose3d", {1, 16, 3, 4, 9}, {16, 16, 3, 3, 3}, 16, {2, 1});
    add("conv3d_weight_grad", {Operand{{2, 4, 5, 6, 7}}, Operand{{2, 6, 5, 6, 7}}, 3, 1, 1, 1, 2})
        .in_half(Half::composed);
  }

  void resampling() {
    family = "resampling";
    const Operand volume{small ? Shape{2, 1, 2, 3, 3} : Shape{3, 9, 5, 6, 7}};
    const Operand picture{small ? Shape{2, 4, 3} : Shape{9, 5, 6}}, row{small ? Shape{2, 6} : Shape{9, 30}};
    const auto size = [this](const Shape& of_small, const Shape& of_large) {
      return small ? of_small : of_large;
    };
    add("interpolate", {Operand{size({1, 2, 2, 3}, {2, 2, 4, 5})}, {}, 2, "trilinear"});
    add("interpolate", {volume, size({4, 3, 5}, {8, 3, 9})});
    add("interpolate", {small ? Operand{{2, 1, 1, 2, 3}} : volume, {}, 2, "trilinear"});
    add("interpolate", {volume, size({1, 5, 2}, {2, 5, 3}), {}, "trilinear"});
    add("interpolate", {volume, size({3, 4, 4}, {7, 4, 11}), {}, "trilinear", true});
    add("interpolate", {volume, {}, capi::Value::Reals{0.7, 1.9, 2.0}, "trilinear"});
    // Odd sizes: no point is at a kink.
    const Operand cells{small ? Shape{2, 2, 3, 5, 3} : Shape{3, 9, 5, 7, 3}},
        points{small ? Shape{2, 1, 2, 2, 3} : Shape{3, 4, 5, 9, 3}},
        plane{small ? Shape{2, 1, 5, 3} : Shape{3, 9, 5, 7}},
        places{small ? Shape{2, 2, 3, 2} : Shape{3, 9, 8, 2}};
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const char* mode : {"trilinear", "nearest"}) {
        for (const bool align_corners : {false, true}) {
          add("grid_sample", {cells, points, mode, padding, align_corners});
          add("grid_sample", {plane, places, mode, padding, align_corners});
        }
      }
    }
    add("affine_grid", {Operand{{2, 3, 4}, numbers, false}, {2, 1, 4, 3, 5}, false})
        .in_half(Half::exact_forward);
    add("affine_grid", {Operand{{2, 2, 3}, numbers, false}, {2, 1, 4, 3}, true}).in_half(Half::exact_forward);
    add("max_pool3d", {volume, 3, 2, 1});
    const Operand wide{{1, 1, 2, small ? 2 : 4, 16}};  // whole packets of a GPU fill its rows
    for (const char* op : {"max_pool3d", "avg_pool3d"}) {
      add(op, {wide, 2});
      add(op, {wide, {1, 2, 2}});
      add(op, {wide, 3, 2, 1});
    }
    add("max_pool3d", {volume, 2});
    add("max_pool3d", {Operand{volume.shape, numbers, true, true}, 2});  // keeps no indices
    add("max_pool3d", {volume, {1, 2, 2}});
    add("max_pool3d", {volume, 1, {1, 2, 1}});
    add("max_pool3d", {volume, {2, 3, 2}, {1, 2, 2}, {1, 1, 0}, {2, 1, 2}, true});
    add("avg_pool3d", {volume, {2, 3, 2}, 1, {1, 1, 0}});
    add("avg_pool3d", {volume, {2, 3, 2}, {1, 2, 2}, {1, 1, 0}, true, false});
    add("avg_pool3d", {volume, 2, {}, 0, false, true, 3});
    for (const size_t which : {0, 1}) {
      add("max_pool3d_with_indices", {volume, 2}).takes(which);
      add("max_pool2d_with_indices", {picture, 2}).takes(which);
      add("max_pool1d_with_indices", {row, 2}).takes(which);
    }
    add("max_unpool1d", {Operand{{2, 3}}, Operand{{2, 3}, indices}, 2});
    add("max_unpool2d", {Operand{{2, 3, 2}}, Operand{{2, 3, 2}, indices}, 3, 2, {1, 0}});
    add("max_unpool3d", {Operand{{1, 2, 1, 2, 2}}, Operand{{1, 2, 1, 2, 2}, indices}, 2, {}, 0, {3, 4, 5}});
    for (const char* op : {"adaptive_max_pool3d", "adaptive_avg_pool3d"}) {
      add(op, {volume, size({2, 2, 2}, {3, 2, 4})});
      add(op, {volume, 1});
    }
    for (const char* op : {"max_pool2d", "avg_pool2d"}) add(op, {picture, {2, 3}, {}, {1, 0}});
    for (const char* op : {"max_pool1d", "avg_pool1d"}) add(op, {row, 3, 2, 1});
    for (const char* op : {"adaptive_max_pool2d", "adaptive_avg_pool2d"}) add(op, {picture, {3, 2}});
    for (const char* op : {"adaptive_max_pool1d", "adaptive_avg_pool1d"}) add(op, {row, 4});
  }

  void losses() {
    family = "losses";
    const Operand scores{small ? Shape{2, 3, 2} : Shape{4, 3, 5, 8}},
        classes{small ? Shape{2, 2} : Shape{4, 5, 8}, indices}, weight{{3}, numbers, false, true};
    const Operand last{{box[2]}, numbers, false}, one{{1, 1}, numbers, false};
    for (const char* reduction : {"none", "mean", "sum"}) {
      for (const char* op : {"mse_loss", "l1_loss"}) add(op, {x, x, reduction});
      for (const char* op : {"smooth_l1_loss", "huber_loss"})
        add(op, {x, x, reduction, 0.7}).in_half(Half::composed);
      add("binary_cross_entropy_with_logits", {x, x, {}, {}, reduction}).in_half(Half::composed);
      add("binary_cross_entropy_with_logits", {x, x, last, one, reduction})
          .in_half(Half::composed)
          .in_any_order();
      add("cross_entropy", {scores, classes, {}, -100, reduction});
      add("cross_entropy", {scores, classes, weight, 1, reduction, 0.25});
      for (const Argument& weights : {Argument(), Argument(Operand{{3}, positive, false})})
        add("cross_entropy", {scores, scores, weights, -100, reduction, 0.25})
            .in_half(Half::composed)
            .in_any_order();
    }
    add("soft_dice_loss", {p, p, {1}, 1}).in_half(Half::composed).in_any_order();
    for (const bool softmax : {false, true}) {
      add("dice_loss", {scores, classes, !softmax, softmax}).in_half(Half::composed).in_any_order();
      add("focal_loss", {scores, classes, 2, {}, softmax}).in_half(Half::composed).in_any_order();
    }
    add("focal_loss", {scores, classes, 2, 0.25, false}).in_half(Half::composed).in_any_order();
    add("dice_loss", {scores, classes, false, true, true, false, false, true})
        .in_half(Half::composed)
        .in_any_order();
    add("dice_loss", {scores, scores, true, false, false, true, true}).in_half(Half::composed).in_any_order();
  }

  /// 16 elements a row: their mean, and the squared deviations from it, have few enough digits for exact
  /// sums.
  void norms() {
    family = "norms";
    const int64_t channels = small ? 2 : 9;
    const Operand volume{small ? Shape{2, 2, 2, 1, 2} : Shape{2, 9, 2, 2, 4}};
    const Operand rows{small ? Shape{4, 2} : Shape{16, 9}}, w{{channels}, numbers, false},
        mean{{channels}, numbers, false, true}, variance{{channels}, positive, false, true};
    const double relu = 0, leaky = 0.5;
    add("batch_norm", {volume, {}, {}, w, w, true, 0.1, 0.5}).in_half(Half::composed);
    add("batch_norm", {volume, mean, variance, w, w, false, 0.1, 0.5, leaky}).in_half(Half::composed);
    add("batch_norm", {rows, {}, {}, w, w, true, 0.1, 0.5, leaky}).in_half(Half::composed);
    add("instance_norm", {volume, {}, {}, w, w, true, 0.1, 0.5}).in_half(Half::composed);
    add("group_norm",
        {Operand{{2, 8, 2, 2}}, 2, Operand{{8}, numbers, false}, Operand{{8}, numbers, false}, 0.5, relu})
        .in_half(Half::composed);
    const Operand inner{{4, 4}, numbers, false};
    add("layer_norm", {Operand{{6, 4, 4}}, {4, 4}, inner, inner, 0.5, leaky}).in_half(Half::composed);
  }
};

std::vector<Sample> all(Size size) {
  Table table(size);
  table.unary(), table.binary(), table.choices(), table.copies(), table.shaping(), table.indexing();
  table.reductions(), table.products(), table.convolutions(), table.resampling(), table.losses(),
      table.norms();
  return std::move(table.samples);
}

}  // namespace

const std::vector<Sample>& catalogue(Size size) {
  static const std::vector<Sample> small = all(Size::small), large = all(Size::large);
  return size == Size::small ? small : large;
}

std::vector<Operand> Sample::operands() const {
  std::vector<Operand> list;
  for (const Argument& argument : arguments) {
    if (const auto* one = std::get_if<Operand>(&argument.what_)) list.push_back(*one);
    if (const auto* several = std::get_if<std::vector<Operand>>(&argument.what_))
      list.insert(list.end(), several->begin(), several->end());
  }
  return list;
}

Tensor Sample::operator()(const Tensors& operands) const {
  capi::Values values;
  auto next = operands.begin();
  for (const Argument& argument : arguments) {
    if (const auto* value = std::get_if<capi::Value>(&argument.what_)) {
      values.push_back(*value);
    } else if (const auto* several = std::get_if<std::vector<Operand>>(&argument.what_)) {
      const auto begin = next;
      next += std::ssize(*several);
      values.emplace_back(Tensors(begin, next));
    } else {
      values.emplace_back(*next++);
    }
  }
  return capi::ops().at(op)(values).at(result);
}

double Sample::expected(const std::vector<double>& elements) const {
  double all[3] = {}, *to = all;
  auto next = elements.begin();
  for (const Argument& argument : arguments) {
    const auto* value = std::get_if<capi::Value>(&argument.what_);
    *to++ = value ? value->get<Scalar>()->as_real() : *next++;
  }
  return formula(all[0], all[1], all[2]);
}

std::string Sample::name() const {
  std::string name = op;
  for (const Argument& argument : arguments) {
    if (const auto* operand = std::get_if<Operand>(&argument.what_)) name += str(" ", operand->shape);
    if (const auto* value = std::get_if<capi::Value>(&argument.what_)) name += " " + described(*value);
  }
  return name;
}

Tensors differentiated(const Sample& op, const Tensors& operands,
                       const std::function<Tensor(const Tensor&)>& of_result) {
  const std::vector<Operand> list = op.operands();
  Tensors leaves;
  for (size_t k = 0; k < operands.size(); ++k)
    leaves.push_back(
        operands[k].detach().set_requires_grad(is_floating(operands[k].dtype()) && !list[k].is_constant));
  const Tensor y = op(leaves);
  Tensors results{y};
  if (!y.requires_grad()) return results;
  y.backward(of_result(y));
  for (const Tensor& leaf : leaves)
    if (leaf.grad().defined()) results.push_back(leaf.grad());
  return results;
}

std::vector<Sample> CatalogueTest::samples(Size size) {
  std::vector<Sample> list;
  for (const Sample& sample : catalogue(size)) {
    if (sample.family == std::string(std::get<1>(GetParam()))) list.push_back(sample);
  }
  return list;
}

Tensor values_of(const Shape& shape, Holds holds, DType dtype, Device device, int64_t seed) {
  std::vector<double> values(static_cast<size_t>(checked_numel("tests", shape)));
  const double unit = is_floating(dtype) ? 0.25 : 1;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t mixed = (static_cast<int64_t>(i) * 7 + seed * 5) % 29;
    const double number = unit * static_cast<double>(mixed % 12 * 2 - 11);
    values[i] = holds == indices                     ? static_cast<double>(mixed % 3)
                : holds == bools || dtype == boolean ? static_cast<double>(mixed % 2)
                : holds == positive                  ? std::abs(number)
                                                     : number;
  }
  const Tensor v = from_vector<double>(values, shape);
  return v.to(holds == indices ? i64 : holds == bools ? boolean : dtype).to(device);
}

}  // namespace vox::testing
