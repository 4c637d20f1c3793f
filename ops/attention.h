#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>

namespace vox {

struct AttentionOptions {
  detail::ByName by_name{};
  Tensor attn_mask = {};   ///< broadcasts to (..., L, S): bool, true for pairs that count; or floating, added
  double dropout_p = 0;    ///< zeroes probabilities, as nn::Dropout in training
  bool is_causal = false;  ///< row i sees columns 0 to i; not together with attn_mask
  std::optional<double> scale = {};  ///< 1 / sqrt(E)
};
/// softmax(query key^T * scale + mask) value, as torch.nn.functional.scaled_dot_product_attention:
/// (..., L, E), (..., S, E) and (..., S, Ev) with equal leading dimensions (heads) give (..., L, Ev). A row
/// all of whose pairs are masked is NaN, as in PyTorch. Gradients reach query, key, value and a floating
/// mask.
///
/// The matrix of L x S probabilities is never in memory as a whole: blocks of rows are computed one after the
/// other, and again in the backward (vox::checkpoint), unless one block holds all. On CUDA one kernel does so
/// for f32, bf16 and f16 with rows of up to 64 elements, without mask and dropout and with a scale above 0. A
/// backward with create_graph keeps them.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace vox
