// 01: a scalar engine. Every number remembers how it was made; backward walks from the result to the inputs.
// The last line shows the bug that every first engine has.

#include <cmath>
#include <iostream>
#include <vector>

// One entry of the tape: a value, and for each input its place and the slope d(this value) / d(input).
struct Entry {
  struct Input {
    size_t place;
    double slope;
  };
  double value;
  std::vector<Input> inputs;
};
std::vector<Entry> tape;

// A number is a place on the tape.
struct Number {
  Number(double value, std::vector<Entry::Input> inputs = {}) : place(tape.size()) {
    tape.push_back({value, inputs});
  }
  double value() const { return tape[place].value; }
  size_t place;
};

Number operator+(Number a, Number b) { return {a.value() + b.value(), {{a.place, 1}, {b.place, 1}}}; }
Number operator*(Number a, Number b) {
  return {a.value() * b.value(), {{a.place, b.value()}, {b.place, a.value()}}};
}
Number exp(Number a) {
  const double y = std::exp(a.value());
  return {y, {{a.place, y}}};
}

// The derivatives of y with respect to every number on the tape.
std::vector<double> backward(Number y, bool with_bug = false) {
  std::vector<double> gradient(tape.size(), 0.0);
  gradient[y.place] = 1;
  for (size_t i = y.place + 1; i-- > 0;) {
    for (const auto& [place, slope] : tape[i].inputs) {
      const double part = gradient[i] * slope;
      gradient[place] = with_bug ? part : gradient[place] + part;
    }
  }
  return gradient;
}

int main() {
  const Number x = 3, w = 0.5;
  const Number growth = exp(w * x), square = x * x, y = square + growth;
  const std::vector<double> gradient = backward(y);
  for (size_t i = 0; i < tape.size(); ++i)
    std::cout << "#" << i << "  value " << tape[i].value << ", gradient " << gradient[i] << "\n";
  std::cout << "dy/dx by the tape " << gradient[x.place] << ", by hand "
            << 2 * x.value() + w.value() * std::exp(w.value() * x.value()) << ", with the bug "
            << backward(y, true)[x.place] << "\n";
}
