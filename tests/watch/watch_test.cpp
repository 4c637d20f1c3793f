#include <regex>

#include <voxgrad/watch/node_sources.h>
#include <voxgrad/watch/watch.h>

#include "tests/support/test.h"
#include "tests/support/tree.h"

// Names, recordings of the tape, the words that explain a gradient, and the page.

namespace {

namespace fs = std::filesystem;
using vox::from_vector;
using vox::Recording;
using vox::Tensor;
using vox::Watch;
using Kind = vox::Recording::Kind;

Tensor leaf(std::vector<float> values, const std::string& name) {
  const auto size = static_cast<int64_t>(values.size());
  return from_vector(values, {size}).set_requires_grad(true).set_name(name);
}

/// The text with node numbers counted from 1.
std::string renumbered(const std::string& text, const std::string& mark = "#") {
  std::set<int> numbers;
  const std::regex number(mark + "([0-9]+)");
  for (std::sregex_iterator i(text.begin(), text.end(), number), end; i != end; ++i)
    numbers.insert(stoi((*i)[1]));
  std::string out;
  size_t last = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), number), end; i != end; ++i) {
    out += text.substr(last, static_cast<size_t>(i->position()) - last);
    out += mark + std::to_string(1 + std::distance(numbers.begin(), numbers.find(stoi((*i)[1]))));
    last = static_cast<size_t>(i->position() + i->length());
  }
  return out + text.substr(last);
}
std::string text_of(const Watch& watch) { return renumbered(vox::str(watch.recording())); }

/// The message of what f throws.
std::string error_of(auto f) { return renumbered(vox::testing::message_of(f)); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(contains(text, part)) << text

TEST(Names, BelongToTheTensorAndAllItsHandles) {
  Tensor x = vox::ones({2});
  EXPECT_EQ(x.name(), "");
  const Tensor same = x;
  x.set_name("x");
  EXPECT_EQ(same.name(), "x");
  EXPECT_FALSE(x.requires_grad());
  EXPECT_EQ(x.detach().name(), "");
  EXPECT_EQ(x.set_name("").name(), "");
  EXPECT_THROW(x.set_name("two\nlines"), vox::ValueError);
  EXPECT_THROW(Tensor().set_name("x"), vox::Error);
}

TEST(Names, AppearOnTheTape) {
  Tensor x = vox::ones({2}).set_name("x");  // before it is a leaf of any tape
  x.set_requires_grad(true);
  Tensor loss = [&] {
    Tensor y = x * 2;
    y.set_name("y");
    return y.sum();
  }();  // y is gone; its node remains
  loss.set_name("loss");
  const std::string expected =
      "#3 sum \"loss\"          ()    saves 0 B  -> #2\n"
      "#2 mul \"y\"             (2,)  saves 0 B  -> #1\n"
      "#1 AccumulateGrad \"x\"  (2,)  saves 0 B\n";
  EXPECT_EQ(renumbered(vox::tape(loss)).substr(0, expected.size()), expected);
  x.set_name("renamed");
  EXPECT_CONTAINS(vox::tape(loss), "AccumulateGrad \"renamed\"");
}

TEST(Names, TheTapeExplainsItsColumns) {
  Tensor x = leaf({1}, "x");
  const std::string text = renumbered(vox::tape(x * vox::ones({1})));
  EXPECT_CONTAINS(text, "-> #1 -\n");
  EXPECT_CONTAINS(text, "\"-\" for an input that needs none");
}

TEST(TapeDot, DrawsTheTape) {
  const Tensor x = leaf({1, 2}, "x"), unused = leaf({1}, "unused");
  EXPECT_EQ(renumbered(renumbered(vox::tape_dot((x * x).sum())), "n"), R"dot(digraph tape {
  node [shape=box, fontname="monospace"];
  n3 [label="#3 sum\n()"];
  n3 -> n2;
  n2 [label="#2 mul\n(2,)\nsaves 8 B"];
  n2 -> n1;
  n2 -> n1;
  n1 [label="#1 AccumulateGrad \"x\"\n(2,)"];
}
)dot");
  EXPECT_CONTAINS(vox::tape_dot(unused), "AccumulateGrad");
}

TEST(Names, AreEscapedForGraphviz) {
  Tensor x = leaf({1}, "a\"]; b -> c; // \\N &lt;");
  EXPECT_CONTAINS(vox::tape_dot(x), R"(AccumulateGrad \"a\"]; b -> c; // \\N &amp;lt;\"\n)");
}

TEST(Names, AppearInErrors) {
  Tensor x = leaf({1, 2}, "x"), z = leaf({3, 4}, "z");
  Tensor y = (x * x).set_name("y");
  EXPECT_CONTAINS(error_of([&] { vox::grad({y.sum()}, {z}); }),
                  "no output depends on input 0 \"z\" of shape (2,)");
  EXPECT_CONTAINS(error_of([&] { x.fill_(0); }), "the target \"x\" requires grad");
  {
    const auto guard = vox::no_grad();
    x.fill_(5);
  }
  EXPECT_CONTAINS(error_of([&] { y.sum().backward(); }),
                  "a tensor \"x\" of shape (2,) that mul #1 \"y\" saved was written in place since");
  Tensor w = (z * z).set_name("w");
  w.register_hook([](const Tensor&) { return vox::ones({7}); });
  EXPECT_CONTAINS(error_of([&] { w.sum().backward(); }), "hook on mul #1 \"w\"");
  w = z * z;
  w.sum().backward();
  EXPECT_CONTAINS(error_of([&] { w.sum().backward(); }), "mul #1 ran before and freed");
}

TEST(Names, OfParameters) {
  vox::nn::Sequential net{vox::nn::Linear({.in_features = 2, .out_features = 3}), vox::nn::ReLU()};
  net.name_parameters();
  EXPECT_CONTAINS(vox::tape(net(vox::ones({1, 2}))), "AccumulateGrad \"0.weight\"");
}

TEST(Watch, RecordsADiamond) {
  Watch watch;
  Tensor x = leaf({1, 2}, "x");
  const Tensor square = x * x, triple = x * 3;  // one after the other
  Tensor y = (square + triple).sum();
  y.set_name("y");
  y.backward();
  EXPECT_EQ(text_of(watch), R"(made mul #2 of leaf #1 "x", leaf #1 "x": (2,) [1, 4], norm 4.123
made mul #3 of leaf #1 "x": (2,) [3, 6], norm 6.708
made add #4 of mul #2, mul #3: (2,) [4, 10], norm 10.77
made sum #5 "y" of add #4: () 14
backward from sum #5 "y"; 8 B saved
  sum #5 "y" takes () 1
    -> add #4: (2,) [1, 1], norm 1.414
    pending: add #4; freed 0 B, 8 B saved
  add #4 takes (2,) [1, 1], norm 1.414
    -> mul #2: (2,) [1, 1], norm 1.414
    -> mul #3: (2,) [1, 1], norm 1.414
    pending: mul #3, mul #2; freed 0 B, 8 B saved
  mul #3 takes (2,) [1, 1], norm 1.414
    -> leaf #1 "x": (2,) [3, 3], norm 4.243
    pending: mul #2, leaf #1 "x"; freed 0 B, 8 B saved
  mul #2 takes (2,) [1, 1], norm 1.414
    -> leaf #1 "x": (2,) [1, 2], norm 2.236
    -> leaf #1 "x": (2,) [1, 2], norm 2.236
    pending: leaf #1 "x"; freed 8 B, 0 B saved
  leaf #1 "x" takes (2,) [5, 7], norm 8.602
    pending: nothing; freed 0 B, 0 B saved
end; 0 B saved
)");
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{5, 7}));
  EXPECT_EQ(renumbered(watch.recording().why(x)), "leaf #1 \"x\" got the gradient (2,) [5, 7], norm 8.602");
}

TEST(Watch, NamesNodesByTheirCall) {
  Watch watch;
  const Tensor x = leaf({-1, 2}, "x"), target = vox::full({2}, 1);
  const Tensor results[]{mse_loss(x, target), l1_loss(x, target), vox::max(x), vox::min(x), norm(x), gelu(x),
                         log_softmax(x, 0)};
  const std::string text = text_of(watch);
  for (const char* name : {"mse_loss", "l1_loss", "max", "min", "norm", "gelu", "log_softmax"})
    EXPECT_CONTAINS(text, std::string("made ") + name + " #");
}

/// One step of a line's training; `forgets` leaves out zero_grad().
void train(Tensor w, const Tensor& data, const Tensor& target, bool forgets) {
  if (!forgets) w.zero_grad();
  mse_loss(data * w, target).backward();
  const auto guard = vox::no_grad();
  w.add_(w.grad(), -0.125);
}

TEST(Watch, SeesDataTargetAndAForgottenZeroGrad) {
  for (const bool forgets : {false, true}) {
    Watch watch;
    const Tensor w = leaf({1, 1}, "w"), data = leaf({1, 2}, "data").detach().set_name("data");
    const Tensor target = vox::ones({2}).set_name("target");
    train(w, data, target, forgets);
    train(w, data, target, forgets);
    const Recording& recording = watch.recording();
    ASSERT_EQ(recording.constants.size(), 2u);
    EXPECT_EQ(recording.constants[0].name, "data");
    EXPECT_EQ(vox::str(recording.constants[1].value), "(2,) [1, 1], norm 1.414");
    EXPECT_EQ(std::count_if(recording.nodes.begin(), recording.nodes.end(),
                            [](const auto& n) { return n.second.is_leaf; }),
              1);
    const std::string text = text_of(watch);
    EXPECT_CONTAINS(text, "made mul #2 of \"data\", leaf #1 \"w\": (2,) [1, 2]");
    EXPECT_CONTAINS(text, "made mul #4 of \"data\", leaf #1 \"w\": (2,) [1, 1.5]");
    EXPECT_EQ(contains(text, "grad() was (2,) [0, 2], norm 2, 1 of 2 zero and is (2,) [0, 3]"), forgets)
        << text;
    EXPECT_EQ(contains(text, "! leaf #1 \"w\": this gradient is added to that of an earlier backward"),
              forgets);
  }
}

TEST(Watch, KnowsWhatAStepFindsSaved) {
  Watch watch;
  Tensor x = leaf({1, 2}, "x");
  const Tensor c = vox::full({2}, 3);
  Tensor y = x * c, z = y * x;
  z.sum().backward({}, {.retain_graph = true});
  const auto saved_by = [&](const Tensor& t) {  // in its last step
    std::vector<std::string> texts;
    for (const Recording::Event& event : watch.recording().events) {
      if (event.kind != Kind::step || event.node != t.impl()->autograd->node->number()) continue;
      texts.clear();
      for (const Recording::Saved& s : event.saved)
        texts.push_back(vox::str(s.node ? watch.recording().nodes.at(s.node).op : "constant", " ", s.value));
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(saved_by(y).back(), "constant (2,) [3, 3], norm 4.243");
  EXPECT_EQ(saved_by(z), (Texts{"mul (2,) [3, 6], norm 6.708", "AccumulateGrad (2,) [1, 2], norm 2.236"}));
  {
    const auto guard = vox::no_grad();
    y.mul_(2);
  }
  EXPECT_THROW(z.sum().backward(), vox::GradError);
  EXPECT_EQ(saved_by(z)[0], "constant ()");  // not known
}

TEST(Watch, FindsWhereNaNBegan) {
  Watch watch;
  Tensor x = leaf({-1, 1}, "x");
  const Tensor l = vox::log(x);
  (l * l).sum().backward();
  const std::string text = text_of(watch);
  EXPECT_CONTAINS(text, "! log #2: NaN first computed here\n");
  EXPECT_CONTAINS(text, "! mul #3: NaN first in a gradient here\n");
  EXPECT_CONTAINS(renumbered(watch.recording().why(x)),
                  "not finite, (2,) [nan, 0], norm nan, 1 NaN, 1 of 2 zero; it comes from mul #3, which "
                  "takes (2,) [1, 1], norm 1.414 and returns (2,) [nan, 0]");
}

TEST(Watch, FindsWhereInfinityBecameNaN) {
  Watch watch;
  Tensor x = leaf({0}, "x");
  vox::sqrt(x * x).sum().backward();
  const std::string text = text_of(watch);
  EXPECT_CONTAINS(text, "! sqrt #3: infinity first in a gradient here\n");
  EXPECT_CONTAINS(text, "! mul #2: NaN first in a gradient here\n");
  EXPECT_TRUE(std::isnan(x.grad().item()));
  EXPECT_CONTAINS(renumbered(watch.recording().why(x)),
                  "it comes from sqrt #3, which takes (1,) [1] and returns (1,) [inf]");
}

TEST(Watch, FindsWhereTheGradientBecameZero) {
  Watch watch;
  Tensor x = leaf({-1, -2}, "x");
  vox::relu(x * 2).sum().backward();
  EXPECT_CONTAINS(text_of(watch), "! relu #3: the gradient for mul #2 is zero from here on\n");
  const std::string why = renumbered(watch.recording().why(x));
  EXPECT_CONTAINS(why, "got a zero gradient, (2,) [0, 0], norm 0, 2 of 2 zero; it comes from relu #3");
  EXPECT_CONTAINS(why, "its output is (2,) [0, 0]");
  EXPECT_CONTAINS(vox::why(x), "has the gradient (2,) [0, 0], norm 0, 2 of 2 zero; a vox::Watch");
}

TEST(Watch, TellsCancellationFromZeros) {
  Watch watch;
  Tensor x = leaf({1}, "x");
  const Tensor a = x * 2, b = x * 2;
  (a - b).sum().backward();
  EXPECT_CONTAINS(renumbered(watch.recording().why(x)),
                  "the gradients that mul #3, mul #2 sent to leaf #1 \"x\" are not, but their sum, or what a "
                  "hook made of it, is");
}

TEST(Watch, FindsTheDetachThatCutThePath) {
  Watch watch;
  Tensor x = leaf({1}, "x"), w = leaf({2}, "w");
  (vox::exp(x).detach() * w).sum().backward();
  EXPECT_CONTAINS(text_of(watch),
                  "! leaf #1 \"x\": not reached: no path leads to it from the output; mul #4 uses exp #2 as "
                  "a constant: detach() cut the path\n");
  EXPECT_CONTAINS(vox::why(x), "the tensor \"x\" has no gradient");
}

TEST(Watch, KnowsHowFarTheTapeOfAnUnreachedLeafGoes) {
  Watch watch;
  Tensor x = leaf({1}, "x"), w = leaf({2}, "w");
  const Tensor unused = vox::exp(x);
  w.sum().backward();
  EXPECT_CONTAINS(renumbered(watch.recording().why(x)),
                  "its tape ends at exp #2, and what comes after was not recorded");
}

TEST(Watch, OfTheSecondDerivative) {
  Watch watch;
  Tensor x = leaf({3}, "x");
  const Tensor y = x * x * x;
  Tensor g = vox::grad({y}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(g.item(), 27.f);
  const size_t first = watch.recording().events.size();
  g.backward();
  EXPECT_EQ(x.grad().item(), 18.f);
  const auto& events = watch.recording().events;
  EXPECT_TRUE(std::any_of(events.begin(), events.begin() + static_cast<int64_t>(first), [](const auto& e) {
    return e.kind == Kind::made && e.depth == 1;  // recorded by the backward
  }));
  EXPECT_EQ(events[first].kind, Kind::begin);
  EXPECT_FALSE(events[first].partial);
  EXPECT_TRUE(watch.recording().problems().empty()) << text_of(watch);
}

TEST(Watch, OfGradStopsAtItsInputs) {
  Watch watch;
  Tensor x = leaf({3}, "x"), w = leaf({2}, "w");
  vox::grad({x * w}, {x});
  const std::string text = text_of(watch);
  EXPECT_CONTAINS(text, "grad from mul #3;");
  EXPECT_CONTAINS(text, "! leaf #2 \"w\": not reached: mul #3 returned no gradient for it");
  EXPECT_CONTAINS(renumbered(watch.recording().why(x)), "got the gradient (1,) [2]; vox::grad returned it");
}

TEST(Watch, CountsMemoryOnceThatTwoNodesSave) {
  Watch watch;
  const Tensor x = leaf({1, 2}, "x"), y = vox::exp(x), z = vox::sin(y);  // both save y
  for (const auto& event : watch.recording().events) {
    EXPECT_LE(event.saved_bytes, 8);
    EXPECT_EQ(event.freed_bytes, 0);
  }
}

TEST(Watch, SeesNoMemoryFreedUnderRetainGraph) {
  Watch watch;
  Tensor x = leaf({1, 2}, "x");
  Tensor y = vox::exp(x).sum();
  y.backward({}, {.retain_graph = true});
  EXPECT_EQ(watch.recording().events.back().saved_bytes, 8);
  y.backward();
  EXPECT_EQ(watch.recording().events.back().saved_bytes, 0);
}

TEST(Watch, OfABackwardInsideABackward) {
  Watch watch;
  Tensor x = leaf({1}, "x"), z = leaf({2}, "z");
  Tensor y = x * 2;
  y.register_hook([&](const Tensor&) {
    const auto guard = vox::enable_grad();
    (z * 5).backward();
  });
  y.backward();
  EXPECT_EQ(z.grad().item(), 5.f);
  EXPECT_EQ(x.grad().item(), 2.f);
  const std::string text = text_of(watch);
  EXPECT_CONTAINS(text, "\n    backward from mul #4");
  EXPECT_CONTAINS(text, "\n    end; 0 B saved\n  mul #2 takes (1,) [1]\n");
}

TEST(Watch, OutlivesExceptions) {
  Watch watch;
  Tensor x = leaf({1}, "x");
  Tensor y = x * 2;
  const int64_t hook = y.register_hook([](const Tensor&) { throw std::runtime_error("stop"); });
  EXPECT_THROW(y.backward({}, {.retain_graph = true}), std::runtime_error);
  EXPECT_CONTAINS(text_of(watch),
                  "end by an exception; 0 B saved\n! mul #2: an exception ended the backward here: stop\n");
  EXPECT_CONTAINS(watch.recording().why(x), "the backward ended by an exception before it");
  y.remove_hook(hook);
  y.backward();
  EXPECT_CONTAINS(watch.recording().why(x), "got the gradient (1,) [2]");
  EXPECT_EQ(watch.recording().events.back().depth, 0);
}

TEST(Watch, MayEndInsideABackward) {
  auto watch = std::make_unique<Watch>();
  Tensor x = leaf({1}, "x");
  Tensor y = x * 2;
  y.register_hook([&](const Tensor&) { watch.reset(); });
  y.backward();
  EXPECT_EQ(x.grad().item(), 2.f);
}

TEST(Watch, IsPerThreadAndTheInnermostRecords) {
  Watch outer;
  {
    const Watch inner;
    (leaf({1}, "x") * 2).backward();
    EXPECT_EQ(inner.recording().events.size(), 5u);
  }
  std::thread([] { (leaf({1}, "x") * 2).backward(); }).join();
  EXPECT_TRUE(outer.recording().events.empty());
  (leaf({1}, "x") * 2).backward();
  EXPECT_EQ(outer.recording().events.size(), 5u);
}

TEST(Watch, KeepsNoTensorAlive) {
  Watch watch;
  std::weak_ptr<vox::Storage> storage;
  {
    Tensor x = leaf({1}, "x");
    storage = x.impl()->storage;
    vox::exp(x * x).backward();
  }
  EXPECT_TRUE(storage.expired());
  EXPECT_CONTAINS(text_of(watch), "leaf #1 \"x\" takes");
}

TEST(Watch, OfABackwardAlone) {  // values are not known, gradients are
  Tensor x = leaf({1, 2}, "x");
  Tensor y = vox::exp(x).sum();
  Watch watch;
  y.backward();
  EXPECT_CONTAINS(text_of(watch), "backward from sum #3; 8 B saved\n  sum #3 takes () 1\n");
  EXPECT_EQ(watch.recording().events.size(), 5u);
}

TEST(Watch, OfIntegersEmptyTensorsAndHalves) {
  Watch watch;
  Tensor none = vox::ones({0}).set_requires_grad(true);
  none.sum().backward();
  Tensor half = vox::ones({2}, {.dtype = vox::bf16}).set_requires_grad(true).set_name("half");
  (half * half).sum().backward();
  EXPECT_CONTAINS(text_of(watch), "leaf #3 \"half\" takes (2,) [2, 2]");
  EXPECT_TRUE(watch.recording().problems().empty());
}

TEST(Watch, OfALongChain) {
  Watch watch;
  Tensor x = leaf({1}, "x"), y = x * 0;
  for (int i = 0; i < 10'000; ++i) y = y * 1;
  y.backward();
  EXPECT_EQ(watch.recording().nodes.size(), 10'002u);
  EXPECT_GT(vox::str(watch.recording()).size(), 10'000u);
  EXPECT_CONTAINS(watch.recording().why(x), "got a zero gradient, (1,) [0]; it comes from mul");
  EXPECT_THROW(vox::write_html(watch.recording(), "unused.html"), vox::ValueError);
}

TEST(Watch, DrawsAtMost500Nodes) {
  const vox::testing::TemporaryFolder folder;
  for (const int products : {499, 500}) {
    Watch watch;
    Tensor x = leaf({1}, "x"), y = x;
    for (int i = 0; i < products; ++i) y = y * 1;
    y.backward();
    const auto draw = [&] { vox::write_html(watch.recording(), folder / "page.html"); };
    if (products < 500)
      EXPECT_NO_THROW(draw());
    else
      EXPECT_THROW(draw(), vox::ValueError);
  }
}

TEST(Why, NamesTheReasonThatTheTensorKnows) {
  EXPECT_EQ(vox::why({}), "the tensor is undefined");
  EXPECT_CONTAINS(vox::why(vox::ones({1}).to(vox::i64)), "its dtype is i64, not floating");
  EXPECT_CONTAINS(vox::why(vox::ones({1})), "it does not require grad");
  Tensor x = leaf({1}, "x");
  EXPECT_CONTAINS(vox::why(x), "the tensor \"x\" has no gradient: no tape leads to it now");
  Tensor y = x * 2;
  EXPECT_CONTAINS(vox::why(x), "but no backward has reached it");
  EXPECT_CONTAINS(renumbered(vox::why(y)), "it is not a leaf, but the output of mul #1; call retain_grad()");
  y.retain_grad();
  EXPECT_CONTAINS(renumbered(vox::why(y)), "no backward has reached mul #1 since retain_grad()");
  y.backward();
  EXPECT_EQ(vox::why(x), "the tensor \"x\" has the gradient (1,) [2]");
  const Watch watch;
  EXPECT_CONTAINS(watch.recording().why(y), "the tensor has the gradient (1,) [1]; the recording saw no op");
}

/// The code of every node is quoted from the line that it names.
TEST(NodeSources, AreInTheTree) {
  std::set<std::string> types;
  for (const vox::detail::NodeSource& source : vox::detail::node_sources()) {
    types.insert(source.type);
    const std::string where = source.where;
    const size_t colon = where.find(':');
    std::istringstream file(vox::testing::read_in_tree(where.substr(0, colon)));
    std::string line, rest;
    for (int i = std::stoi(where.substr(colon + 1)); i > 1; --i) std::getline(file, line);
    while (std::getline(file, line)) rest += line + "\n";
    EXPECT_EQ(rest.rfind(source.code, 0), 0u) << where;
  }
  const std::regex node(
      "\nstruct ([A-Za-z0-9]+Node) .*\\{|\n +return (?:autograd::)?linear(?:_keeping)?\\([^\"]*\"(\\w+)\"");
  for (const fs::directory_entry& entry : fs::directory_iterator(vox::testing::tree / "ops")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = vox::testing::read_in_tree(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), node), end; match != end; ++match) {
      const std::string type = (*match)[1].str() + (*match)[2].str();
      EXPECT_TRUE(types.contains(type)) << type << " of " << entry.path();
    }
  }
}

class WatchPage : public ::testing::Test {
 protected:
  void SetUp() override {
    // tests/watch/watch_page.cmake opens the pages that are written here in a browser.
    const char* given = std::getenv("VOXGRAD_WATCH_PAGES");
    folder_ = given ? fs::path(given) : fs::temp_directory_path() / "voxgrad_watch_pages";
    fs::create_directories(folder_);
  }

  std::string written(const Watch& watch, const std::string& name) const {
    const fs::path path = folder_ / (name + ".html");
    vox::write_html(watch.recording(), path.string());
    return vox::testing::read_bytes(path);
  }

  fs::path folder_;
};

TEST_F(WatchPage, HoldsGraphCodeAndData) {
  Watch watch;
  Tensor x = leaf({1, -2, 3}, "x"), w = leaf({0.5, 1, 2}, "w");
  vox::maximum(vox::silu(x) * w.detach(), w * vox::sqrt(x * 0)).mean().backward();
  const std::string page = written(watch, "page");
  EXPECT_CONTAINS(page, "return g * (s * (N(1) + x * (N(1) - s)));");
  EXPECT_CONTAINS(page, "return div(g, Scalar(count))");   // of mean, which linear() records
  EXPECT_CONTAINS(page, "template \\u003cbool largest>");  // of maximum, not the node of max()
  EXPECT_FALSE(contains(page, "{{")) << "a mark of the template is left";
  EXPECT_FALSE(contains(page, "http-equiv") || contains(page, "src=")) << "the page loads something";
}

TEST_F(WatchPage, OfTwoBackwardsAndAnException) {
  Watch watch;
  Tensor x = leaf({3}, "x");
  Tensor y = x * x * x;
  Tensor g = vox::grad({y}, {x}, {.create_graph = true})[0];
  g.backward();
  Tensor z = vox::exp(x);
  z.register_hook([](const Tensor&) { throw std::runtime_error("stop"); });
  EXPECT_THROW(z.backward(), std::runtime_error);
  written(watch, "second");
}

TEST_F(WatchPage, OfTraining) {
  Watch watch;
  const Tensor w = leaf({1, 1}, "w"), data = vox::ones({2}).set_name("data");
  const Tensor target = vox::zeros({2}).set_name("target");
  for (const bool forgets : {false, false, true}) train(w, data, target, forgets);
  EXPECT_CONTAINS(written(watch, "training"), "this gradient is added to that of an earlier backward");
}

TEST_F(WatchPage, OfABackwardAlone) {
  Tensor x = leaf({1, 2}, "x");
  Tensor y = vox::exp(x).sum();
  Watch watch;
  y.backward();
  written(watch, "backward_alone");
}

TEST_F(WatchPage, TakesNamesAsText) {
  Watch watch;
  Tensor x = leaf({1}, "</script><script>console.error('name ran')</script>");
  Tensor y = leaf({2}, "\"]; n1 -> n2 [label=\"$(touch x) `touch x` &lt; \\N {{DATA}}");
  Tensor z = leaf({3}, "\xff\xfe not UTF-8, but \xc3\xa9 is");
  Tensor loss = (x * y * z).set_name("<img src=x onerror=console.error(1)>");
  loss.backward();
  const std::string page = written(watch, "names");
  EXPECT_FALSE(contains(page, "<script>console"));
  EXPECT_FALSE(contains(page, "<img"));
  EXPECT_CONTAINS(page, "\\u003cimg");
}

TEST_F(WatchPage, NamesWhatIsMissing) {
  Watch watch;
  EXPECT_THROW(vox::write_html(watch.recording(), "unused.html"), vox::ValueError);  // nothing recorded
  (leaf({1}, "x") * 2).backward();
  EXPECT_CONTAINS(error_of([&] { vox::write_html(watch.recording(), "/nonexistent/page.html"); }),
                  "write_html: cannot write /nonexistent/page.html: No such file or directory");
}

}  // namespace
