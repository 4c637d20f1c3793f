#pragma once

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// Vectors for classes or tokens: row i of a weight (num_embeddings, embedding_dim) for each index i. Indices
/// (i64) of any shape give (..., embedding_dim). The weight starts normal with mean 0 and variance 1. The row
/// padding_idx, if given (counted from the end if negative), starts at 0 and gets no gradient.
class Embedding final : public Module {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    int64_t num_embeddings, embedding_dim;
    std::optional<int64_t> padding_idx = {};
    TensorOptions tensor = {};  ///< dtype and device of the weight
  };
  /// Throws ValueError for negative sizes and for a padding_idx that is no row.
  explicit Embedding(const Options& options);
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& indices);
  std::string describe() const override;

  Options options;
  Tensor weight;
};

}  // namespace vox::nn
