#pragma once

#include <voxgrad/cuda/conv3d/select.h>

#include "tests/support/conv3d.h"
#include "tests/support/test.h"

// Tests of plans, without a GPU.
//
// A product of the definition multiplies two elements and adds to a third: one of big, one of small, one of
// the weight. A test walks through a plan as its kernel does, by loops, and names the elements that meet.
// Where the kernel has operands in shared memory, the walk has their numbers there (`outside` for the zeros
// around a tensor), so that offsets and slots are tested too. evaluate() adds the products up on whole
// numbers, and expects that
//
// - every product of the definition is there, once, and no other;
// - every element of the result is stored once;
// - no element beyond a tensor is read or written;
// - the result is that of the reference.

namespace vox::testing {

/// In place of an element's number: a cell outside its grid, or a channel beyond the last. Kernels read it as
/// zero.
inline constexpr int64_t outside = -1;

class Evaluation {
 public:
  using Pass = Conv3dPass;
  using Cell = std::array<int64_t, 3>;  ///< d, h, w; also the place of a tap

  Evaluation(const Conv3dGeometry& g, Pass pass)
      : g_(g),
        pass_(pass),
        big_(integers(numel(g.big_shape()), 1)),
        small_(integers(numel(g.small_shape()), 2)),
        weight_(integers(numel(g.weight_shape()), 3)),
        result_((pass == Pass::conv3d             ? small_
                 : pass == Pass::conv_transpose3d ? big_
                                                  : weight_)
                    .size()),
        stored_(result_.size()),
        done_(small_.size() * static_cast<size_t>(per_small_channel())) {}

  int64_t big(int64_t n, int64_t channel, const Cell& cell) const {
    return element(n, channel, g_.big_channels, cell, g_.big);
  }
  int64_t small(int64_t n, int64_t channel, const Cell& cell) const {
    return element(n, channel, g_.small_channels, cell, g_.small);
  }
  /// Of conv3d and conv_transpose3d.
  int64_t input(int64_t n, int64_t channel, const Cell& cell) const {
    return pass_ == Pass::conv3d ? big(n, channel, cell) : small(n, channel, cell);
  }
  int64_t output(int64_t n, int64_t channel, const Cell& cell) const {
    return pass_ == Pass::conv3d ? small(n, channel, cell) : big(n, channel, cell);
  }
  /// The channel of big is that in its group.
  int64_t weight(int64_t small_channel, int64_t big_in_group, int64_t tap) const {
    const bool inside = small_channel >= 0 && small_channel < g_.small_channels && big_in_group >= 0 &&
                        big_in_group < g_.big_per_group() && tap >= 0 && tap < g_.taps();
    return inside ? (small_channel * g_.big_per_group() + big_in_group) * g_.taps() + tap : outside;
  }
  /// Of a group's channels, as conv3d and conv_transpose3d read and write them.
  int64_t weight(int64_t group, int64_t in, int64_t out, int64_t tap) const {
    const bool conv3d = pass_ == Pass::conv3d;
    const int64_t of_small = conv3d ? out : in, per_group = g_.small_per_group();
    return of_small < per_group ? weight(group * per_group + of_small, conv3d ? in : out, tap) : outside;
  }
  int64_t tap(const Cell& k) const { return (k[0] * g_.kernel.h + k[1]) * g_.kernel.w + k[2]; }

  /// Adds the product of two elements to the third. Nothing if an operand is a zero from outside, or if the
  /// sum belongs to no element of the result: kernels compute whole tiles.
  void multiply(int64_t big, int64_t small, int64_t weight) {
    if (big == outside || small == outside || weight == outside || failed()) return;
    if (!within(big, big_) || !within(small, small_) || !within(weight, weight_))
      return fail_product("an element beyond its tensor", big, small, weight);
    if (big != defined_big(small, weight))
      return fail_product("not a product of the definition", big, small, weight);
    const auto number = static_cast<size_t>(small * per_small_channel() + weight % per_small_channel());
    if (done_[number]) return fail_product("a product for the second time", big, small, weight);
    done_[number] = true;
    if (pass_ == Pass::conv3d)
      at(result_, small) += at(big_, big) * at(weight_, weight);
    else if (pass_ == Pass::conv_transpose3d)
      at(result_, big) += at(small_, small) * at(weight_, weight);
    else
      at(result_, weight) += at(big_, big) * at(small_, small);
  }
  /// multiply() of conv3d and conv_transpose3d.
  void add(int64_t output, int64_t input, int64_t weight) {
    pass_ == Pass::conv3d ? multiply(input, output, weight) : multiply(output, input, weight);
  }
  /// Writes an element of the result.
  void store(int64_t element) {
    if (failed()) return;
    if (!within(element, result_)) return fail("stored beyond the result: element ", element);
    if (stored_[static_cast<size_t>(element)]) return fail("stored for the second time: element ", element);
    stored_[static_cast<size_t>(element)] = true;
  }

  /// Writes every element, where a kernel adds up partial results.
  void store_all() {
    for (int64_t i = 0; i < std::ssize(result_); ++i) store(i);
  }

  void expect_definition() {
    for (size_t i = 0; i < result_.size(); ++i)
      if (!stored_[i]) fail("never stored: element ", i);
    for (int64_t small = 0; small < std::ssize(small_); ++small)
      for (int64_t k = 0; k < per_small_channel() && !failed(); ++k) {
        const int64_t weight = channel_of(small) * per_small_channel() + k, big = defined_big(small, weight);
        if (big != outside && !done_[static_cast<size_t>(small * per_small_channel() + k)])
          fail_product("a product is missing", big, small, weight);
      }
    EXPECT_TRUE(error_.empty()) << error_;
    EXPECT_TRUE(failed() || result_ == reference_values());
  }
  bool failed() const { return !error_.empty(); }

 private:
  static double& at(Values& v, int64_t i) { return v[static_cast<size_t>(i)]; }
  static bool within(int64_t i, const Values& v) { return i >= 0 && i < std::ssize(v); }

  static int64_t element(int64_t n, int64_t channel, int64_t channels, const Cell& cell, const Triple& grid) {
    if (channel < 0 || channel >= channels) return outside;
    int64_t number = n * channels + channel;
    for (int64_t axis = 0; axis < 3; ++axis) {
      const int64_t i = cell[static_cast<size_t>(axis)];
      if (i < 0 || i >= grid[axis]) return outside;
      number = number * grid[axis] + i;
    }
    return number;
  }
  int64_t per_small_channel() const { return g_.big_per_group() * g_.taps(); }
  int64_t channel_of(int64_t small) const { return small / g_.small_cells() % g_.small_channels; }

  /// The element of big that the definition multiplies with these; `outside` also if none.
  int64_t defined_big(int64_t small, int64_t weight) const {
    const int64_t channel = channel_of(small), n = small / g_.small_cells() / g_.small_channels;
    if (weight / per_small_channel() != channel) return outside;
    const auto split = [](int64_t i, const Triple& extent) {
      return Cell{i / extent.w / extent.h, i / extent.w % extent.h, i % extent.w};
    };
    const Cell i = split(small % g_.small_cells(), g_.small), k = split(weight % g_.taps(), g_.kernel);
    Cell o{};
    for (size_t a = 0; a < 3; ++a) {
      const auto axis = static_cast<int64_t>(a);
      o[a] = i[a] * g_.stride[axis] - g_.padding[axis] + k[a] * g_.dilation[axis];
    }
    const int64_t group = channel / g_.small_per_group();
    return big(n, group * g_.big_per_group() + weight / g_.taps() % g_.big_per_group(), o);
  }
  Values reference_values() const {
    const auto r = reference_of(g_);
    return pass_ == Pass::conv3d             ? reference::conv3d(r, big_, weight_)
           : pass_ == Pass::conv_transpose3d ? reference::conv_transpose3d(r, small_, weight_)
                                             : reference::weight_grad(r, big_, small_);
  }

  void fail_product(const char* what, int64_t big, int64_t small, int64_t weight) {
    fail(what, ": elements ", big, " of big, ", small, " of small, ", weight, " of the weight");
  }
  template <class... T>
  void fail(const T&... what) {
    if (!failed()) error_ = str(what...);
  }

  Conv3dGeometry g_;
  Pass pass_;
  Values big_, small_, weight_, result_;
  std::vector<bool> stored_;
  std::vector<bool> done_;  ///< by element of small, channel of big in the group, tap
  std::string error_;       ///< the first
};

/// Expects that `walk(evaluation)` does the products of a pass: see above.
template <class Walk>
void evaluate(const Conv3dGeometry& g, Conv3dPass pass, Walk walk) {
  SCOPED_TRACE(str("pass ", static_cast<int>(pass), " big ", g.big_shape(), " small ", g.small_shape(),
                   " weight ", g.weight_shape(), " groups ", g.groups, " stride ", g.stride, " padding ",
                   g.padding, " dilation ", g.dilation));
  Evaluation evaluation(g, pass);
  walk(evaluation);
  evaluation.expect_definition();
}

/// The same for conv3d or conv_transpose3d.
template <class Walk>
void evaluate(const Conv3dGeometry& g, bool transposed, Walk walk) {
  evaluate(g, transposed ? Conv3dPass::conv_transpose3d : Conv3dPass::conv3d, walk);
}

/// An H200, or a part of one, with this many multiprocessors.
constexpr cuda::conv::Machine with_multiprocessors(int count) {
  cuda::conv::Machine machine = cuda::conv::h200;
  machine.multiprocessors = count;
  return machine;
}

/// How many products evaluating a geometry takes, about; tests stay below some hundred thousand.
inline int64_t products_of(const Conv3dGeometry& g) {
  return g.batch * g.small_channels * g.small_cells() * g.big_per_group() * g.taps();
}

}  // namespace vox::testing
