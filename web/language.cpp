#include "language.h"

#include <cctype>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

#include <voxgrad/voxgrad.h>
#include <voxgrad/watch/node_sources.h>
#include <voxgrad/watch/watch.h>

namespace vox::web {
namespace {

using Value = std::variant<double, Tensor>;

Tensor tensor_of(const Value& v) {
  return std::holds_alternative<Tensor>(v) ? std::get<Tensor>(v) : full({}, std::get<double>(v));
}

/// A call with its arguments: `conv3d(x, w, stride=2)`.
struct Call {
  std::string name;
  std::vector<Value> values;
  std::map<std::string, double> options;

  const Value& at(size_t i) const {
    check<ValueError>(i < values.size(), name, ": needs ", i + 1, " arguments, got ", values.size());
    return values[i];
  }
  Tensor tensor(size_t i) const { return tensor_of(at(i)); }
  double number(size_t i) const {
    const bool is_number = std::holds_alternative<double>(at(i));
    check<ValueError>(is_number, name, ": argument ", i + 1, " must be a number, got a tensor");
    return std::get<double>(at(i));
  }
  /// The numbers from argument i on: a shape.
  Shape shape(size_t i) const {
    Shape shape;
    for (; i < values.size(); ++i) shape.push_back(static_cast<int64_t>(number(i)));
    return shape;
  }
  int64_t option(const char* key, int64_t otherwise) const {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : static_cast<int64_t>(found->second);
  }
};

using Function = std::function<Value(const Call&)>;

Function unary(Tensor (*op)(const Tensor&)) {
  return [op](const Call& c) { return op(c.tensor(0)); };
}

Value in_place(const Call& c, const std::function<void(Tensor&)>& write) {
  Tensor t = c.tensor(0);
  write(t);
  return t;
}

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all = {
      {"neg", unary(neg)},
      {"abs", unary(abs)},
      {"exp", unary(exp)},
      {"log", unary(log)},
      {"sqrt", unary(sqrt)},
      {"tanh", unary(tanh)},
      {"sigmoid", unary(sigmoid)},
      {"relu", unary(relu)},
      {"sum", [](const Call& c) { return sum(c.tensor(0), c.shape(1)); }},
      {"mean", [](const Call& c) { return mean(c.tensor(0), c.shape(1)); }},
      {"matmul", [](const Call& c) { return matmul(c.tensor(0), c.tensor(1)); }},
      {"mse_loss", [](const Call& c) { return mse_loss(c.tensor(0), c.tensor(1)); }},
      {"gt", [](const Call& c) { return gt(c.tensor(0), c.tensor(1)); }},
      {"where", [](const Call& c) { return where(c.tensor(0), c.tensor(1), c.tensor(2)); }},
      {"conv3d",
       [](const Call& c) {
         return conv3d(c.tensor(0), c.tensor(1), {},
                       {.stride = c.option("stride", 1), .padding = c.option("padding", 0)});
       }},
      {"conv_transpose3d",
       [](const Call& c) {
         return conv_transpose3d(c.tensor(0), c.tensor(1), {},
                                 {.stride = c.option("stride", 1), .padding = c.option("padding", 0)});
       }},
      {"reshape", [](const Call& c) { return c.tensor(0).reshape(c.shape(1)); }},
      {"expand", [](const Call& c) { return c.tensor(0).expand(c.shape(1)); }},
      {"transpose", [](const Call& c) { return c.tensor(0).transpose(c.shape(1)[0], c.shape(2)[0]); }},
      {"rand", [](const Call& c) { return rand(c.shape(0)); }},
      {"zeros", [](const Call& c) { return zeros(c.shape(0)); }},
      {"ones", [](const Call& c) { return ones(c.shape(0)); }},
      {"leaf", [](const Call& c) { return c.tensor(0).detach().clone().set_requires_grad(); }},
      {"detach", [](const Call& c) { return c.tensor(0).detach(); }},
      {"clone", [](const Call& c) { return c.tensor(0).clone(); }},
      {"grad", [](const Call& c) { return c.tensor(0).grad(); }},
      {"backward",
       [](const Call& c) {
         c.tensor(0).backward({}, {.retain_graph = c.option("retain_graph", 0) != 0});
         return Value();
       }},
      {"zero_grad", [](const Call& c) { return in_place(c, [](Tensor& t) { t.zero_grad(); }); }},
      {"add_", [](const Call& c) { return in_place(c, [&](Tensor& t) { t.add_(c.tensor(1)); }); }},
      {"mul_", [](const Call& c) { return in_place(c, [&](Tensor& t) { t.mul_(c.tensor(1)); }); }},
      {"fill_", [](const Call& c) { return in_place(c, [&](Tensor& t) { t.fill_(c.number(1)); }); }},
      {"step",
       [](const Call& c) {
         const auto guard = no_grad();
         return in_place(c, [&](Tensor& t) { t.add_(t.grad(), -c.number(1)); });
       }},
  };
  return all;
}

template <class Op>
Value combined(const Value& a, const Value& b, Op op) {
  return std::visit([&](const auto& x, const auto& y) { return Value(op(x, y)); }, a, b);
}

using Variables = std::map<std::string, Value>;

/// Reads and computes one line.
class Line {
 public:
  Line(const std::string& text, Variables& variables, std::string& output)
      : text_(text.substr(0, text.find('#'))), variables_(variables), output_(output) {
    skip();
  }

  void run() {
    if (at_ == text_.size()) return;
    const size_t begin = at_;
    const std::string name = word();
    if (!name.empty() && take('=')) {
      Value value = sum_of_terms();
      if (Tensor* t = std::get_if<Tensor>(&value); t && t->defined() && t->name().empty()) t->set_name(name);
      variables_[name] = std::move(value);
    } else {
      at_ = begin;
      sum_of_terms();
    }
    check<ValueError>(at_ == text_.size(), "cannot read '", text_.substr(at_), "'");
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    skip();
    return true;
  }
  void expect(char c) { check<ValueError>(take(c), "expected '", c, "' before '", text_.substr(at_), "'"); }
  std::string word() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    const std::string name = text_.substr(begin, at_ - begin);
    skip();
    return name;
  }

  Value sum_of_terms() {
    Value value = product();
    while (true) {
      if (take('+'))
        value = combined(value, product(), [](const auto& a, const auto& b) { return a + b; });
      else if (take('-'))
        value = combined(value, product(), [](const auto& a, const auto& b) { return a - b; });
      else
        return value;
    }
  }
  Value product() {
    Value value = factor();
    while (true) {
      if (take('*'))
        value = combined(value, factor(), [](const auto& a, const auto& b) { return a * b; });
      else if (take('/'))
        value = combined(value, factor(), [](const auto& a, const auto& b) { return a / b; });
      else
        return value;
    }
  }
  Value factor() {
    const Depth depth(depth_);
    if (take('-')) return std::visit([](const auto& x) { return Value(-x); }, factor());
    if (take('(')) {
      Value value = sum_of_terms();
      expect(')');
      return value;
    }
    if (at_ < text_.size() && text_[at_] == '[') return literal();
    if (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.'))
      return number();
    const std::string name = word();
    check<ValueError>(!name.empty(), "expected a value before '", text_.substr(at_), "'");
    if (take('(')) return call(name);
    const auto found = variables_.find(name);
    check<ValueError>(found != variables_.end(), "nothing is called '", name, "'");
    return found->second;
  }
  double number() {
    const char* const begin = text_.c_str() + at_;
    char* end = nullptr;
    const double value = std::strtod(begin, &end);
    check<ValueError>(end != begin, "expected a number before '", text_.substr(at_), "'");
    at_ += static_cast<size_t>(end - begin);
    skip();
    return value;
  }

  /// `[1, 2]` or `[[1, 2], [3, 4]]`.
  Tensor literal() {
    std::vector<float> values;
    Shape shape;
    elements(values, shape, 0);
    return from_vector(values, shape);
  }
  void elements(std::vector<float>& values, Shape& shape, int64_t dim) {
    const Depth depth(depth_);
    expect('[');
    const bool is_first = shape.rank() == dim;
    if (is_first) shape.push_back(0);
    int64_t count = 0;
    do {
      const bool is_list = at_ < text_.size() && text_[at_] == '[';
      const bool fits = (is_first && count == 0) || is_list == (shape.rank() > dim + 1);
      check<ValueError>(fits, "a list has numbers beside lists");
      ++count;
      if (is_list) {
        elements(values, shape, dim + 1);
      } else {
        values.push_back(static_cast<float>(number_with_sign()));
      }
    } while (take(','));
    expect(']');
    if (shape[dim] == 0) shape[dim] = count;
    check<ValueError>(shape[dim] == count, "the lists have ", shape[dim], " and ", count, " elements");
  }
  double number_with_sign() { return take('-') ? -number() : number(); }

  Value call(const std::string& name) {
    Call call{.name = name, .values = {}, .options = {}};
    while (!take(')')) {
      const size_t begin = at_;
      const std::string key = word();
      if (!key.empty() && take('=')) {
        call.options[key] = number_with_sign();
      } else {
        at_ = begin;
        call.values.push_back(sum_of_terms());
      }
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    if (name == "print") return output_ += str(autograd::summary_of(call.tensor(0)), "\n"), Value();
    const auto found = functions().find(name);
    check<ValueError>(found != functions().end(), "there is no function '", name, "'");
    return found->second(call);
  }

  /// Refuses lines that would overflow the stack.
  struct Depth {
    explicit Depth(int& depth) : depth(depth) {
      check<ValueError>(++depth < 100, "the line is nested too deeply");
    }
    ~Depth() { --depth; }
    int& depth;
  };

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
  Variables& variables_;
  std::string& output_;
};

/// A program with its blocks.
class Program {
 public:
  explicit Program(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }

  void run(const Watch& watch) {
    watch_ = &watch;
    const size_t end = block(0, 0);
    check<ValueError>(end == lines_.size(), "'}' without a block");
  }

  size_t line = 0;  ///< the one that runs
  std::string output;
  nlohmann::json begins = nlohmann::json::array();  ///< [event, line]

 private:
  /// Runs lines up to the end of the block, and returns the number of that line.
  size_t block(size_t at, int depth) {
    check<ValueError>(depth < 20, "blocks are nested too deeply");
    while (at < lines_.size()) {
      line = at;
      std::istringstream words(lines_[at]);
      std::string word, brace;
      words >> word;
      if (word == "}") return at;
      if (word == "repeat" || word == "no_grad") {
        int times = 1;
        if (word == "repeat") words >> times;
        check<ValueError>(words >> brace && brace == "{" && times >= 1 && times <= 100,
                          "expected 'repeat N {' with N from 1 to 100, or 'no_grad {'");
        at = repeated(at, times, word == "no_grad", depth) + 1;
        continue;
      }
      begins.push_back({watch_->recording().events.size(), at + 1});
      Line(lines_[at], variables_, output).run();
      const size_t nodes = watch_->recording().nodes.size();
      check<ValueError>(nodes <= 300, "the program has recorded ", nodes,
                        " nodes; the page draws at most 300");
      ++at;
    }
    check<ValueError>(depth == 0, "a block has no '}'");
    return at;
  }
  size_t repeated(size_t at, int times, bool without_grad, int depth) {
    size_t end = at;
    for (int i = 0; i < times; ++i) {
      const auto guard = without_grad ? no_grad() : grad_enabled() ? enable_grad() : no_grad();
      end = block(at + 1, depth + 1);
      check<ValueError>(end < lines_.size(), "a block has no '}'");
    }
    return end;
  }

  std::vector<std::string> lines_;
  Variables variables_;
  const Watch* watch_ = nullptr;
};

}  // namespace

std::string run(const std::string& text) {
  const Watch watch;
  manual_seed(1);
  Program program(text);
  std::string error;
  try {
    program.run(watch);
  } catch (const std::exception& caught) {
    error = str("line ", program.line + 1, ": ", caught.what());
  }
  const nlohmann::json rest = {{"lines", program.begins}, {"output", program.output}, {"error", error}};
  const std::string tail = rest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return "{\"recording\":" + detail::json_text(watch.recording()) + "," + tail.substr(1);
}

}  // namespace vox::web
