#pragma once

#include <string>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace vox {

/// Sums of products by Einstein's convention: einsum("bij,bjk->bik", {a, b}) is bmm(a, b). The equation has a
/// letter for each dimension of each operand, and after "->" those of the result in its order; without "->",
/// the letters that occur once, in alphabetical order (capitals first). A letter that the result lacks is
/// summed over. A letter that an operand has twice takes its diagonal. Sizes of one letter are equal or 1.
/// Spaces are ignored.
///
/// Operands are multiplied from left to right, each pair by matmul, so two operands or more need one floating
/// dtype and device. Throws ValueError for an equation that is not of this form ("..." is not supported), or
/// does not fit the number of operands, and ShapeError for letters that do not fit an operand. A product of a
/// pair may have at most 8 dimensions. Gradients: those of matmul.
Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands);

}  // namespace vox
