// voxgrad as a tool of GradBench: it answers GradBench's protocol, JSON lines from stdin to stdout
// (README.md).

#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <voxgrad/core/parallel.h>
#include <voxgrad/voxgrad.h>

using Json = nlohmann::json;
using vox::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

constexpr vox::TensorOptions f64{.dtype = vox::f64};

/// A number, a list of numbers or a list of equally long lists.
Tensor tensor_of(const Json& j) {
  if (!j.is_array()) return vox::full({}, j.get<double>(), f64);
  const auto rows = static_cast<int64_t>(j.size());
  if (rows == 0 || !j[0].is_array()) return vox::from_vector(j.get<std::vector<double>>(), {rows});
  std::vector<double> values;
  for (const Json& row : j) {
    const auto numbers = row.get<std::vector<double>>();
    vox::check<vox::ShapeError>(numbers.size() == j[0].size(), "input: rows differ in length");
    values.insert(values.end(), numbers.begin(), numbers.end());
  }
  return vox::from_vector(values, {rows, static_cast<int64_t>(j[0].size())});
}

Json json_of(const Tensor& t) {
  if (t.rank() == 0) return t.item<double>();
  if (t.rank() == 1) return t.to_vector<double>();
  Json rows = Json::array();
  for (int64_t i = 0; i < t.size(0); ++i) rows.push_back(json_of(t[i]));
  return rows;
}

Tensor indices(const std::vector<int64_t>& values) {
  return vox::from_vector(values, {static_cast<int64_t>(values.size())});
}

/// What an eval computes from one input: f(x), which has gradients by all of x.
struct Problem {
  Tensors x;
  std::function<Tensor(const Tensors&)> f;
};

/// The gradients of f(x); if that is a list, of its last number, as `ode` wants.
Tensors gradients(const Problem& p) {
  const Tensor y = p.f(p.x);
  return vox::grad({y.rank() == 0 ? y : y[-1]}, p.x);
}

Problem hello(const Json& input) {
  return {{tensor_of(input)}, [](const Tensors& x) { return x[0] * x[0]; }};
}

Problem lse(const Json& input) {
  return {{tensor_of(input.at("x"))}, [](const Tensors& x) {
            const Tensor most = x[0].max();
            return most + vox::log(vox::exp(x[0] - most).sum());
          }};
}

Problem llsq(const Json& input) {
  const double n = input.at("n");
  return {{tensor_of(input.at("x"))}, [n](const Tensors& x) {
            std::vector<double> times;
            for (double i = 0; i < n; ++i) times.push_back(-1 + i * 2 / (n - 1));
            const Tensor t = vox::from_vector(times, {std::ssize(times), 1});
            Tensor powers = vox::ones_like(t), next = t;
            for (; powers.size(1) < x[0].numel(); next = next * next)  // columns t^0, t^1, ..., doubled
              powers = vox::cat({powers, powers * next}, 1);
            powers = powers.slice(1, 0, x[0].numel());
            const Tensor error = vox::sign(t).squeeze(1) - vox::matmul(powers, x[0]);
            return (error * error).sum() / 2;
          }};
}

/// y' = x y, moved by one element, with 1 in front: s steps of Runge and Kutta from 0 to 2.
Problem ode(const Json& input) {
  const double s = input.at("s"), h = 2 / s;
  return {{tensor_of(input.at("x"))}, [s, h](const Tensors& x) {
            const Tensor one = vox::ones({1}, f64);
            const auto slope = [&](const Tensor& y) {
              return x[0] * vox::cat({one, y[{.end = y.numel() - 1}]});
            };
            Tensor y = vox::zeros(x[0].shape(), f64);
            for (double step = 0; step < s; ++step) {
              const Tensor k1 = slope(y), k2 = slope(y + k1 * (h / 2)), k3 = slope(y + k2 * (h / 2));
              y = y + (k1 + (k2 + k3) * 2 + slope(y + k3 * h)) * (h / 6);
            }
            return y;
          }};
}

/// Expansion by minors, for all sets of columns at once: each minor of the last rows is computed once.
Problem det(const Json& input) {
  const int64_t n = input.at("ell");
  vox::check<vox::ValueError>(n >= 1 && n <= 16, "det: ell must be 1 to 16, got ", n);
  return {{tensor_of(input.at("A"))}, [n](const Tensors& x) {
            const int64_t sets = int64_t{1} << n;
            std::vector<int64_t> smaller;  // for each set and column, the set without the column
            std::vector<double> signs;     // 0 if the column is not in the set
            for (int64_t set = 0; set < sets; ++set) {
              double sign = 1;
              for (int64_t bit = 1; bit < sets; bit *= 2) {
                smaller.push_back(set & ~bit);
                signs.push_back(set & bit ? std::exchange(sign, -sign) : 0);
              }
            }
            const Tensor without = indices(smaller), sign = vox::from_vector(signs, {sets, n});
            const Tensor a = x[0].reshape({n, n});
            Tensor minors = vox::eq(vox::arange(sets), 0).to(vox::f64);  // of no rows: 1 for the empty set
            for (int64_t row = n - 1; row >= 0; --row)
              minors = (vox::index_select(minors, 0, without).reshape({sets, n}) * sign * a[row]).sum({1});
            return minors[sets - 1];
          }};
}

Problem kmeans(const Json& input) {
  return {{tensor_of(input.at("centroids"))}, [p = tensor_of(input.at("points"))](const Tensors& x) {
            const Tensor& c = x[0];  // |p - c|^2 = |p|^2 + |c|^2 - 2 p c
            const Tensor rest = (c * c).sum({1}) + vox::matmul(p, (-2 * c).transpose(0, 1));
            return (p * p).sum() + vox::min(rest, 1).values.sum();
          }};
}

/// A step of Newton: the gradient by the Hessian, which is diagonal, so its product with ones is its
/// diagonal.
Tensors newton_step(const Problem& p) {
  const Tensor g = vox::grad({p.f(p.x)}, p.x, {.create_graph = true})[0];
  return {g.detach() / vox::grad({g.sum()}, p.x)[0]};
}

Problem gmm(const Json& input) {
  const int64_t d = input.at("d"), below = d * (d - 1) / 2;
  const double dim = input.at("d"), k = input.at("k"), n = input.at("n"), m = input.at("m"),
               gamma = input.at("gamma");
  vox::check<vox::ValueError>(d >= 1 && d <= 10000, "gmm: d must be 1 to 10000, got ", d);
  // Where an element of the matrix Q is in (exp(q), l, 0): l fills what is below the diagonal by columns.
  std::vector<int64_t> source(static_cast<size_t>(d * d), d + below);
  for (int64_t column = 0, next = d; column < d; ++column) {
    source[static_cast<size_t>(column * d + column)] = column;
    for (int64_t row = column + 1; row < d; ++row) source[static_cast<size_t>(row * d + column)] = next++;
  }
  const double degrees = dim + m + 1;
  double prior = degrees * dim * std::log(gamma / std::sqrt(2)) - dim * (dim - 1) / 4 * std::log(M_PI);
  for (double j = 0; j < dim; ++j) prior -= std::lgamma((degrees - j) / 2);
  const Tensor points = tensor_of(input.at("x")).transpose(0, 1).contiguous(), place = indices(source);
  const Tensor l = tensor_of(input.at("l")).reshape({-1, below}), none = vox::zeros({l.size(0), 1}, f64);
  return {
      {tensor_of(input.at("alpha")), tensor_of(input.at("mu")), tensor_of(input.at("q")), l},
      [=](const Tensors& v) {
        const Tensor diagonal = vox::exp(v[2]), sum_q = v[2].sum({1});
        const Tensor q = vox::index_select(vox::cat({diagonal, v[3], none}, 1), 1, place).reshape({-1, d, d});
        const Tensor scaled = vox::matmul(q, points) - vox::matmul(q, v[1].unsqueeze(2));
        const Tensor beta = (v[0] + sum_q).unsqueeze(1) - (scaled * scaled).sum({1}) / 2;
        const Tensor frobenius = (diagonal * diagonal).sum() + (v[3] * v[3]).sum();
        return vox::logsumexp(beta, {0}).sum() - n * (dim / 2 * std::log(2 * M_PI) + vox::logsumexp(v[0])) +
               k * prior - gamma * gamma / 2 * frobenius + m * sum_q.sum();
      }};
}

/// What one function returns: its only result, or those of gmm by name.
Json output(const Tensors& results) {
  if (results.size() == 1) return json_of(results[0]);
  return {{"alpha", json_of(results[0])},
          {"mu", json_of(results[1])},
          {"q", json_of(results[2])},
          {"l", json_of(results[3])}};
}

/// A module has a function of its input, and one that differentiates it.
struct Module {
  const char *primal, *gradient;
  Problem (*problem)(const Json& input);
  Tensors (*differentiate)(const Problem&) = gradients;
};
const std::map<std::string, Module> modules{
    {"hello", {"square", "double", hello}},  {"lse", {"primal", "gradient", lse}},
    {"llsq", {"primal", "gradient", llsq}},  {"ode", {"primal", "gradient", ode}},
    {"det", {"primal", "gradient", det}},    {"kmeans", {"cost", "dir", kmeans, newton_step}},
    {"gmm", {"objective", "jacobian", gmm}},
};

/// Runs the function as often as the input asks for. Times are those of ops, without JSON.
Json evaluate(const Json& message) {
  const Module& module = modules.at(message.at("module"));
  const Json& input = message.at("input");
  const std::string function = message.at("function");
  const bool differentiates = function == module.gradient;
  vox::check<vox::ValueError>(differentiates || function == module.primal, "no function ", function);
  Problem problem = module.problem(input);
  for (Tensor& x : problem.x) x.set_requires_grad();
  const auto at_least = [&](const char* key) { return input.is_object() ? input.value(key, 0.0) : 0; };
  Tensors results;
  Json timings = Json::array();
  double seconds = 0;
  do {
    const auto begin = std::chrono::steady_clock::now();
    if (differentiates) {
      results = module.differentiate(problem);
    } else {
      const auto guard = vox::no_grad();
      results = {problem.f(problem.x)};
    }
    const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - begin;
    timings.push_back({{"name", "evaluate"}, {"nanoseconds", time.count()}});
    seconds += std::chrono::duration<double>(time).count();
  } while (static_cast<double>(timings.size()) < at_least("min_runs") || seconds < at_least("min_seconds"));
  return {{"success", true}, {"output", output(results)}, {"timings", timings}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "--multithreaded") vox::set_num_threads(1);
  for (std::string line; std::getline(std::cin, line);) {
    Json response = Json::object();
    try {
      const Json message = Json::parse(line);
      response["id"] = message.at("id");
      const std::string kind = message.at("kind");
      if (kind == "start") response["tool"] = "voxgrad";
      if (kind == "define") response["success"] = modules.contains(message.at("module"));
      if (kind == "evaluate") response.update(evaluate(message));
    } catch (const std::exception& error) {
      response["success"] = false, response["error"] = error.what();
    }
    std::cout << response << std::endl;
  }
}
