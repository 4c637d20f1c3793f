#pragma once

#include <string>

namespace vox::web {

/// Runs a program of the page under a vox::Watch and returns JSON: {recording, lines, output, error}. `lines`
/// has [event, line] for each line that ran, with the event that it began at; `error` is "" or begins with
/// the line.
///
///     x = leaf([1, 2])          # a tensor that requires grad; it is named x
///     c = [[1, 2], [3, 4]]      # a constant
///     repeat 2 {                # blocks: repeat, and no_grad
///       y = exp(x) * 2 + matmul(c, x)
///       backward(sum(y))
///     }
///     print(grad(x))
std::string run(const std::string& program);

}  // namespace vox::web
