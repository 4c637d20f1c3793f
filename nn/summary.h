#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// What a call of a network needs, layer by layer. Layers are the modules without children, and those with
/// parameters of their own.
struct Summary {
  struct Row {
    std::string name, layer = {};  ///< the layer's dotted name, and its class
    Shape output = {};             ///< of the last call; if there are several results, the first
    int64_t calls = 0;             ///< 0 for a layer whose operator() was not called
    int64_t parameters = 0;        ///< elements; of a shared parameter in the first row only
    int64_t bytes = 0;             ///< of all results, except views of the input
    int64_t multiply_adds = 0;     ///< of convolutions and Linear
  };
  std::vector<Row> rows;
  Row total() const;
};
/// A table with a line for each row, and the totals.
std::ostream& operator<<(std::ostream& out, const Summary& summary);

namespace detail {
/// The summary of what happens to `network` during call().
Summary summarize(Module& network, const std::function<void()>& call);
}  // namespace detail

/// Calls the network once, in evaluation mode and without gradients, and counts:
/// `std::cout << nn::summary(net, ones({1, 1, 64, 64, 64}));` Work outside of layers is not counted.
template <class M, class... Inputs>
Summary summary(M&& network, const Inputs&... inputs) {
  return detail::summarize(network, [&] { network(inputs...); });
}

}  // namespace vox::nn
