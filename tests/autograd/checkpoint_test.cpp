#include "tests/support/test.h"

namespace vox {
namespace {

class CheckpointTest : public DeviceTest {
 protected:
  Tensor leaf(const Shape& shape, unsigned seed = 1) {
    return normal(shape, on(f64), seed).set_requires_grad();
  }
};
INSTANTIATE_TEST_SUITE_P(, CheckpointTest, devices(), device_name);

/// The bytes that the tape of t keeps alive, each block once.
int64_t tape_bytes(const Tensor& t) {
  std::set<const Storage*> memory;
  for (const autograd::Node* node : autograd::nodes_of(autograd::gradient_edge(t)))
    memory.merge(autograd::saved_memory(*node));
  int64_t bytes = 0;
  for (const Storage* storage : memory) bytes += storage->bytes();
  return bytes;
}

TEST_P(CheckpointTest, HasTheSameBitsAsThePlainCallWithDropout) {
  const Tensor w = leaf({4, 4}, 2), x = leaf({3, 4});
  nn::Dropout dropout({.p = 0.5});
  const auto block = [&](const Tensor& t) { return dropout(tanh(matmul(t, w))); };
  const auto run = [&](bool checkpointed) {
    manual_seed(3);
    Tensor y = x;
    for (int i = 0; i < 3; ++i) y = checkpointed ? checkpoint(block, y) : block(y);
    const Tensor loss = sum(y * y), noise = rand({5}, on(f32));
    std::vector<Tensor> results = grad({loss}, {x, w});
    results.insert(results.end(), {loss, noise, rand({5}, on(f32))});
    return results;
  };
  const auto plain = run(false), checkpointed = run(true);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(plain[i], checkpointed[i])) << i;
}

TEST_P(CheckpointTest, GradientsFromInsideAndOutsideAreAddedInTheSameOrder) {
  const Tensor w = leaf({100}, 2), x = leaf({100});
  const auto block = [&](const Tensor& a, const Tensor& b) { return tanh(a * w) + a * (b + w) + exp(a); };
  const auto run = [&](bool checkpointed, bool create_graph) {
    const Tensor before = sin(x) * w, h = before * 3;
    const Tensor inside = checkpointed ? checkpoint(block, h, h) : block(h, h);
    const Tensor loss = sum(inside * inside + cos(h) * w + exp(-x) + before);
    std::vector<Tensor> results = grad({loss}, {x, w, h}, {.create_graph = create_graph});
    if (create_graph) results = grad({sum(results[0] * results[1])}, {x, w});
    return results;
  };
  for (const bool create_graph : {false, true}) {
    const auto plain = run(false, create_graph), checkpointed = run(true, create_graph);
    for (size_t i = 0; i < plain.size(); ++i) {
      if (create_graph)
        EXPECT_LT(max(abs(plain[i] - checkpointed[i]) / (abs(plain[i]) + 1)).item<double>(), 1e-12) << i;
      else
        EXPECT_TRUE(same_bits(plain[i], checkpointed[i])) << i;
    }
  }
}

TEST_P(CheckpointTest, AnInputMayBeUnused) {
  const Tensor x = leaf({3}), unused = leaf({2}, 2);
  const Tensor y = sum(checkpoint([](const Tensor& a, const Tensor&) { return exp(a); }, x, unused));
  const auto g = grad({y}, {x, unused}, {.allow_unused = true});
  EXPECT_TRUE(same_bits(g[0], exp(x.detach())));
  EXPECT_FALSE(g[1].defined());
}

TEST_P(CheckpointTest, MayReturnWhatItGotOrCaptured) {
  const Tensor x = leaf({3}), captured = leaf({3}, 2);
  const auto of = [&](const Tensor& a) { return std::vector<Tensor>{a, captured}; };
  const std::vector<Tensor> y = checkpoint(of, x);
  EXPECT_TRUE(x.is_leaf() && captured.is_leaf());
  const auto g = grad({sum(y[0] * 2 + y[1] * 3)}, {x, captured});
  EXPECT_TRUE(same_bits(g[0], full({3}, 2, on(f64))));
  EXPECT_TRUE(same_bits(g[1], full({3}, 3, on(f64))));
}

TEST_P(CheckpointTest, KeepsOnlyTheInputs) {
  const Tensor x = leaf({1000});
  const auto block = [](const Tensor& t) { return tanh(sigmoid(exp(tanh(t)))); };
  EXPECT_EQ(tape_bytes(block(x)), 4 * 8000);
  const Tensor y = checkpoint(block, checkpoint(block, x));
  EXPECT_EQ(tape_bytes(y), 2 * 8000);
}

TEST_P(CheckpointTest, BackwardReachesInputsParametersAndCapturedResults) {
  Tensor x = leaf({3}), w = leaf({3}, 2), v = leaf({3}, 3);
  const auto run = [&](bool checkpointed) {
    for (Tensor* t : {&x, &w, &v}) t->zero_grad();
    Tensor h = v * v, u = w * h;  // u, from before the call, depends on h and w, which f uses too
    h.retain_grad();
    const auto f = [&](const Tensor& a, const Tensor& b) { return sum(a * b * w * h + u * w); };
    Tensor y = checkpointed ? checkpoint(f, x, x) : f(x, x);
    y.backward();
    return std::vector<Tensor>{x.grad(), w.grad(), v.grad(), h.grad()};
  };
  const auto plain = run(false), checkpointed = run(true);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_LT(max(abs(plain[i] - checkpointed[i])).item<double>(), 1e-14) << i;
}

TEST_P(CheckpointTest, HooksOfParametersRunOnce) {
  Tensor w = leaf({3});
  int runs = 0;
  w.register_hook([&](const Tensor& g) -> std::optional<Tensor> { return ++runs, g * 2; });
  checkpoint([&](const Tensor& x) { return sum(x * w); }, ones({3}, on(f64))).backward();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(w.grad().to_vector<double>(), (Doubles{2, 2, 2}));
}

TEST_P(CheckpointTest, SecondDerivativesNestingAndDoubleUse) {
  const Tensor w = leaf({2, 2}, 2);
  const auto inner = [&](const Tensor& t) { return tanh(matmul(t, w)); };
  const auto f = [&](const std::vector<Tensor>& in) {
    const auto outer = [&](const Tensor& a, const Tensor& b) { return checkpoint(inner, a) * b + w; };
    const Tensor once = checkpoint(outer, in[0], in[1]);
    return checkpoint(outer, once, in[0]) * in[1];
  };
  const std::vector<Tensor> inputs{leaf({2, 2}, 3), leaf({2, 2}, 4)};
  expect_gradients(f, inputs);
  // By the captured parameter too.
  const auto of_w = [&](const std::vector<Tensor>& in) {
    return checkpoint([&](const Tensor& x) { return exp(matmul(x, in[0])); }, inputs[0]);
  };
  expect_gradients(of_w, {w});
}

TEST_P(CheckpointTest, SeveralResultsAndARetainedGraph) {
  const Tensor x = leaf({3});
  int runs = 0;
  const auto f = [&](const Tensor& t) {
    ++runs;
    return std::vector<Tensor>{t * t, argmax(t), exp(t), t.detach()};
  };
  const std::vector<Tensor> y = checkpoint(f, x);
  ASSERT_EQ(y.size(), 4u);
  EXPECT_EQ(y[1].dtype(), i64);
  EXPECT_FALSE(y[3].requires_grad());
  const Tensor loss = sum(y[0]);  // exp gets no gradient
  const Tensor first = grad({loss}, {x}, {.retain_graph = true})[0], second = grad({loss}, {x})[0];
  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(same_bits(first, second));
  EXPECT_TRUE(same_bits(first, x.detach() * 2));
  EXPECT_THROW(grad({loss}, {x}), GradError);
}

TEST_P(CheckpointTest, WithoutGradientsItIsThePlainCall) {
  const Tensor x = leaf({3}), constant = x.detach();
  int runs = 0;
  const auto f = [&](const Tensor& t) { return ++runs, t * 2; };
  EXPECT_FALSE(checkpoint(f, constant).requires_grad());
  {
    const auto guard = no_grad();
    EXPECT_FALSE(checkpoint(f, x).requires_grad());
  }
  EXPECT_EQ(runs, 2);
  // An input without gradient beside one with, and an undefined one.
  const auto g = [](const Tensor& a, const Tensor& b, const Tensor& none) {
    EXPECT_FALSE(none.defined());
    return a * b;
  };
  EXPECT_TRUE(same_bits(grad({sum(checkpoint(g, constant, x, Tensor()))}, {x})[0], constant));
}

TEST_P(CheckpointTest, Errors) {
  const Tensor x = leaf({3}), w = leaf({3}, 2);
  int runs = 0;
  const auto changes_shape = [&](const Tensor& t) { return ++runs == 1 ? t * 1 : t.slice(0, 0, 2) * 1; };
  EXPECT_THROW(grad({sum(checkpoint(changes_shape, x))}, {x}), GradError);
  runs = 0;
  const auto changes_use = [&](const Tensor& t) { return ++runs == 1 ? t * 1 : t * w; };
  EXPECT_THROW(grad({sum(checkpoint(changes_use, x))}, {x}), GradError);
  EXPECT_THROW(checkpoint([](const Tensor&) { return Tensor(); }, x), ValueError);
  EXPECT_MESSAGE(ValueError, checkpoint(std::function<Tensor(const Tensor&)>(), x),
                 "checkpoint: argument 'function' is an empty function");
  // The second run's exception reaches the caller, and the generator goes on where it was.
  runs = 0;
  const auto throws = [&](const Tensor& t) {
    rand({1});
    if (++runs == 2) throw std::runtime_error("second");
    return t * 1;
  };
  const Tensor y = sum(checkpoint(throws, x));
  const GeneratorState before = default_generator().state();
  EXPECT_THROW(grad({y}, {x}), std::runtime_error);
  EXPECT_EQ(default_generator().state(), before);
  // An input that was written since.
  Tensor h = x * 1;
  const Tensor z = sum(checkpoint([](const Tensor& t) { return t * t; }, h));
  {
    const auto guard = no_grad();
    h.mul_(2);
  }
  EXPECT_THROW(grad({z}, {x}), GradError);
}

TEST_P(CheckpointTest, ACapturedLeafThatWasWrittenIsAnError) {
  const Tensor x = leaf({3});
  Tensor w = leaf({3}, 2);
  w.set_name("w");
  const auto f = [&](const Tensor& t) { return tanh(t + w); };  // no op of f saves w
  const auto write = [&] {
    const auto guard = no_grad();
    w.mul_(2);
  };
  const Tensor y = sum(checkpoint(f, x));
  EXPECT_TRUE(same_bits(grad({y}, {w}, {.retain_graph = true})[0], grad({sum(f(x))}, {w})[0]));
  write();
  const std::string message = message_of<GradError>([&] { grad({y}, {x}); });
  EXPECT_TRUE(has_parts(message, {"a tensor \"w\" of shape (3,) that checkpoint #"}));
  EXPECT_TRUE(has_parts(message, {"was written in place since"}));
  // A write by f itself, in forward, comes before its results.
  int runs = 0;
  const auto writes = [&](const Tensor& t) {
    if (++runs == 1) write();
    return t * w;
  };
  EXPECT_TRUE(same_bits(grad({sum(checkpoint(writes, x))}, {x})[0], w.detach()));
  EXPECT_EQ(runs, 2);
}

TEST_P(CheckpointTest, RunsAgainWithItsPrecision) {
  std::vector<Float32Precision> seen;
  Tensor y;
  {
    const PrecisionGuard guard(Float32Precision::high);
    y = checkpoint([&](const Tensor& t) { return seen.push_back(float32_precision()), exp(t); }, leaf({2}));
  }
  sum(y).backward();
  EXPECT_EQ(seen, std::vector(2, Float32Precision::high));
  EXPECT_NE(float32_precision(), Float32Precision::high);
}

TEST_P(CheckpointTest, RunsAgainUnderItsAutocast) {
  // Whole numbers: sums in bf16 and in f32 are the same.
  const Tensor x = ones({2, 2}, on(f32));
  Tensor w = from_vector<float>({1, 0, 1, 1}, {2, 2}, device()).set_requires_grad();
  const auto block = [&](const Tensor& t) { return matmul(matmul(t, w), w); };
  const auto run = [&](bool checkpointed) {
    Tensor y;
    {
      const auto guard = autocast(bf16);
      y = matmul(x, w);  // casts w outside of the checkpoint
      y = sum(checkpointed ? checkpoint(block, y) : block(y));
    }
    return grad({y}, {w})[0];
  };
  EXPECT_TRUE(same_bits(run(false), run(true)));
}

}  // namespace
}  // namespace vox
