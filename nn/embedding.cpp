#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/nn/embedding.h>
#include <voxgrad/nn/init.h>
#include <voxgrad/nn/layer.h>
#include <voxgrad/ops/indexing.h>

namespace vox::nn {

Embedding::Embedding(const Options& o) : options(o) {
  const int64_t rows = o.num_embeddings;
  check<ValueError>(rows >= 0 && o.embedding_dim >= 0,
                    "nn::Embedding: num_embeddings and embedding_dim must be >= 0, got ", rows, " and ",
                    o.embedding_dim);
  check<ValueError>(!o.padding_idx || (*o.padding_idx >= -rows && *o.padding_idx < rows),
                    "nn::Embedding: padding_idx must be from ", -rows, " to ", rows - 1, ", got ",
                    o.padding_idx.value_or(0));
  detail::check_dtype("nn::Embedding", o.tensor.dtype);
  Tensor w = vox::detail::empty_for("nn::Embedding", {rows, o.embedding_dim}, o.tensor);
  weight = register_parameter("weight", init::normal_(w, 0, 1));
  if (!o.padding_idx) return;
  const auto guard = no_grad();
  weight.select(0, *o.padding_idx).zero_();
}

Tensor Embedding::forward(const Tensor& indices) {
  std::optional<Int> padding;
  if (options.padding_idx) padding = *options.padding_idx;
  return in_the_name_of("nn::Embedding", [&] { return embedding(indices, weight, padding); });
}

std::string Embedding::describe() const {
  return str("Embedding(", options.num_embeddings, ", ", options.embedding_dim,
             options.padding_idx ? str(", padding_idx=", *options.padding_idx) : "", ")");
}

}  // namespace vox::nn
