#include <voxgrad/core/factories.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/einsum.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/sum.h>

#include <algorithm>
#include <cctype>
#include <map>

namespace vox {

namespace {

using Letters = std::string;

/// A tensor with a letter for each dimension.
struct Term {
  Tensor tensor;
  Letters letters;

  int64_t dim(char letter) const { return static_cast<int64_t>(letters.find(letter)); }
  int64_t size(char letter) const { return tensor.size(dim(letter)); }
};

bool has(const Letters& letters, char letter) { return letters.find(letter) != Letters::npos; }

/// The terms before "->" and that behind it.
struct Equation {
  std::vector<Letters> operands{{}};
  Letters result;

  explicit Equation(const std::string& text) {
    std::string left = text;
    left.erase(std::remove(left.begin(), left.end(), ' '), left.end());
    const size_t arrow = left.find("->");
    const bool given = arrow != std::string::npos;
    if (given) result = left.substr(arrow + 2), left.resize(arrow);
    for (const char c : left + result)
      check<ValueError>(
          std::isalpha(static_cast<unsigned char>(c)) || (c == ',' && !has(result, c)),
          "einsum: an equation has letters, ',' and one \"->\" (\"...\" is not supported), got '", c,
          "' in \"", text, "\"");
    for (const char c : result)
      check<ValueError>(has(left, c) && std::count(result.begin(), result.end(), c) == 1,
                        "einsum: the result must have letters of the operands, once each, got '", c,
                        "' in \"", text, "\"");
    for (const char c : left) {
      if (c == ',')
        operands.emplace_back();
      else
        operands.back() += c;
      if (!given && c != ',' && std::count(left.begin(), left.end(), c) == 1) result += c;
    }
    if (!given) std::sort(result.begin(), result.end());
  }
};

/// The diagonal of dimensions i < j, at place i.
Tensor diagonal(const Tensor& x, int64_t i, int64_t j) {
  Shape shape = Shape::filled(x.rank(), 1);
  shape[i] = shape[j] = x.size(i);
  return sum(where(eye(x.size(i), {boolean, x.device()}).reshape(shape), x, 0), j).to(x.dtype());
}

/// The operand with each of its letters once.
Term without_repeats(Tensor x, Letters letters) {
  for (size_t j = 1; j < letters.size(); ++j) {
    const size_t i = letters.find(letters[j]);
    if (i == j) continue;
    const auto first = static_cast<int64_t>(i), second = static_cast<int64_t>(j);
    check<ShapeError>(x.size(first) == x.size(second), "einsum: the letter '", letters[j],
                      "' names dimensions of sizes ", x.size(first), " and ", x.size(second));
    x = diagonal(x, first, second);
    letters.erase(j--, 1);
  }
  return {x, letters};
}

/// The operands as terms, with sizes of 1 expanded to those of the other operands.
std::vector<Term> terms_of(const Equation& equation, const std::vector<Tensor>& operands) {
  std::vector<Term> terms;
  std::map<char, int64_t> sizes;
  for (size_t k = 0; k < operands.size(); ++k) {
    detail::check_defined("einsum", "operands", operands[k]);
    const Letters& letters = equation.operands[k];
    check<ShapeError>(std::ssize(letters) == operands[k].rank(), "einsum: operand ", k, " of shape ",
                      operands[k].shape(), " needs a letter for each dimension, got \"", letters, "\"");
    terms.push_back(without_repeats(operands[k], letters));
    for (const char c : terms.back().letters) {
      int64_t& size = sizes.emplace(c, 1).first->second;
      const int64_t here = terms.back().size(c);
      check<ShapeError>(size == 1 || here == 1 || size == here, "einsum: the letter '", c, "' has sizes ",
                        size, " and ", here);
      if (here != 1) size = here;
    }
  }
  for (Term& term : terms) {
    Shape shape;
    for (const char c : term.letters) shape.push_back(sizes[c]);
    term.tensor = term.tensor.expand(shape);
  }
  return terms;
}

/// The term summed over the letters that are not in `kept`.
Term summed(const Term& term, const Letters& kept) {
  Shape dims;
  Letters letters;
  for (const char c : term.letters) has(kept, c) ? letters.push_back(c) : dims.push_back(term.dim(c));
  return {dims.empty() ? term.tensor : sum(term.tensor, dims), letters};
}

/// The term with its dimensions in the order of the letters.
Tensor ordered(const Term& term, const Letters& letters) {
  Shape dims;
  for (const char c : letters) dims.push_back(term.dim(c));
  return term.tensor.permute(dims);
}

/// The product of two terms, summed over the letters that are not in `kept`: a batch of matrix products.
Term product(Term a, Term b, const Letters& kept) {
  a = summed(a, kept + b.letters), b = summed(b, kept + a.letters);
  Letters batch, rows, columns, inner;
  Shape shape;
  int64_t batches = 1, n = 1, m = 1, k = 1;
  for (const char c : a.letters) {
    if (!has(b.letters, c))
      rows += c, n *= a.size(c);
    else if (has(kept, c))
      batch += c, batches *= a.size(c);
    else
      inner += c, k *= a.size(c);
  }
  for (const char c : b.letters)
    if (!has(a.letters, c)) columns += c, m *= b.size(c);
  for (const char c : batch + rows) shape.push_back(a.size(c));
  for (const char c : columns) shape.push_back(b.size(c));
  const Tensor left = ordered(a, batch + rows + inner).reshape({batches, n, k}),
               right = ordered(b, batch + inner + columns).reshape({batches, k, m});
  return {bmm(left, right).reshape(shape), batch + rows + columns};
}

}  // namespace

Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands) {
  const Equation parsed(equation);
  check<ValueError>(parsed.operands.size() == operands.size(), "einsum: \"", equation, "\" needs ",
                    parsed.operands.size(), " operands, got ", operands.size());
  return in_the_name_of("einsum", [&] {
    const std::vector<Term> terms = terms_of(parsed, operands);
    Term result = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      Letters kept = parsed.result;
      for (size_t later = i + 1; later < terms.size(); ++later) kept += terms[later].letters;
      result = product(result, terms[i], kept);
    }
    return ordered(summed(result, parsed.result), parsed.result);
  });
}

}  // namespace vox
