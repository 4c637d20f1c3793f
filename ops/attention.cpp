#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/checkpoint.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/attention.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace vox {

namespace {

constexpr const char* function = "scaled_dot_product_attention";

// ---- Parts of a tensor ----
// Their gradients are joined once, where those of slices would be padded and added.

struct SplitNode final : autograd::Node {
  int64_t dim_ = 0;
  const char* name() const override { return "split"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    std::vector<Tensor> parts;
    for (size_t i = 0; i < g.size(); ++i)
      parts.push_back(g[i] ? *g[i] : zeros(outputs()[i].shape, {outputs()[i].dtype, outputs()[i].device}));
    return {cat(parts, dim_)};
  }
};

/// Views of `size` elements along `dim`; the last may be shorter.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  std::vector<Tensor> parts;
  for (int64_t at = 0; at < x.size(dim); at += size)
    parts.push_back(x.detach().slice(dim, at, std::min(at + size, x.size(dim))));
  if (parts.size() == 1) return {x};
  const std::span<const Tensor> outputs(parts);
  if (auto node = autograd::record<SplitNode>(std::span<const Tensor>(&x, 1), outputs)) node->dim_ = dim;
  return parts;
}

// ---- One block ----

constexpr double excluded = -std::numeric_limits<double>::infinity();

/// Scores (..., L, S) of rows `first`, ...: row i keeps columns 0 to i.
Tensor causal(const Tensor& scores, int64_t first) {
  const TensorOptions whole{i64, scores.device()};
  const Tensor rows = arange(first, first + scores.size(-2), 1, whole).unsqueeze(1);
  return where(ge(rows, arange(scores.size(-1), whole)), scores, excluded);
}

Tensor masked(const Tensor& scores, const Tensor& mask) {
  if (!mask.defined()) return scores;
  return mask.dtype() == boolean ? where(mask, scores, excluded) : scores + mask;
}

/// Attention of rows `first`, ... of some heads: q (H, L, E), k (H, S, E), v (H, S, Ev), mask undefined or
/// broadcastable to (H, L, S). The scale is in q.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, int64_t first,
              const AttentionOptions& o) {
  Tensor scores = matmul(q, k.transpose(-2, -1));
  Tensor p = softmax(o.is_causal ? causal(scores, first) : masked(scores, mask), -1);
  if (o.dropout_p > 0)
    p = p * (ge(rand(p.shape(), {.device = p.device()}), o.dropout_p).to(p.dtype()) / (1 - o.dropout_p));
  return matmul(p, v);
}

/// The mask of heads [head, end), from one of shape (..., L or 1, S) whose leading dimensions, padded to
/// `heads`, may be 1.
Tensor of_heads(const Tensor& mask, const Shape& heads, int64_t head, int64_t end) {
  const Shape one_for_all{mask.size(-2), mask.size(-1)};
  if (mask.numel() == one_for_all[0] * one_for_all[1]) return mask.reshape(one_for_all);
  std::vector<Tensor> parts;
  for (int64_t h = head; h < end; ++h) {
    Tensor part = mask;
    int64_t rest = h;
    for (int64_t d = heads.rank() - 1, own = mask.rank() - 3; own >= 0; --d, --own) {
      part = part.select(own, part.size(own) == 1 ? 0 : rest % heads[d]);
      rest /= heads[d];
    }
    parts.push_back(part);
  }
  return parts.size() == 1 ? parts[0] : stack(parts);
}

// ---- One kernel (CUDA) ----

#if VOXGRAD_HAS_CUDA

/// x as the kernels want it: dense, at a multiple of 16 bytes.
Tensor dense(const Tensor& x) {
  const Tensor y = x.detach().contiguous();
  const auto first = reinterpret_cast<uintptr_t>(detail::ptr<std::byte>(y));
  return first % 16 == 0 ? y : y.clone();
}

/// The gradients of y = p v, p = softmax(s), s = scale q k^T:
///   dv = p^T g,  ds = p (g v^T - sum(g y)) along rows,  dq = scale ds k,  dk = scale ds^T q
/// A kernel computes them, unless they are themselves recorded: then they are composed of ops.
struct AttentionNode final : autograd::Node {
  autograd::SavedTensor q_{this}, k_{this}, v_{this}, y_{this}, log_sums_{this};
  detail::AttentionTerms terms_;
  const char* name() const override { return function; }

  autograd::Gradients backward(autograd::Gradients g) override {
    return grad_enabled() ? composed(*g[0]) : fused(*g[0]);
  }

 private:
  autograd::Gradients fused(const Tensor& g) {
    const Tensor q = dense(q_.get()), k = dense(k_.get()), v = dense(v_.get()), grad = dense(g);
    const Tensor delta = sum(grad.to(f32) * y_.get().detach().to(f32), {-1});
    const auto like = [](const Tensor& x) { return detail::empty_for(function, x.shape(), x.options()); };
    Tensor grad_q = needs_grad(0) ? like(q) : Tensor(), grad_k, grad_v;
    if (needs_grad(1) || needs_grad(2)) grad_k = like(k), grad_v = like(v);
    cuda::attention_gradient(grad, q, k, v, terms_, log_sums_.get(), delta, grad_q, grad_k, grad_v);
    return {if_needed(0, [&] { return grad_q; }), if_needed(1, [&] { return grad_k; }),
            if_needed(2, [&] { return grad_v; })};
  }

  autograd::Gradients composed(const Tensor& g) {
    const DType own = g.dtype(), wide = opmath(own);  // 16-bit tensors are computed in f32 and rounded once
    const Tensor q = q_.get().to(wide), k = k_.get().to(wide), v = v_.get().to(wide), grad = g.to(wide);
    const auto transposed = [](const Tensor& x) { return x.transpose(-2, -1); };
    const Tensor s = matmul(q * terms_.scale, transposed(k)),
                 p = softmax(terms_.is_causal ? causal(s, 0) : s, -1);
    const Tensor of_p = matmul(grad, transposed(v));
    const Tensor of_s = p * (of_p - sum(of_p * p, {-1}, true)) * terms_.scale;
    return {matmul(of_s, k).to(own), matmul(transposed(of_s), q).to(own),
            matmul(transposed(p), grad).to(own)};
  }
};

/// Whether the kernels compute it.
bool is_fused(const Tensor& q, const Tensor& v, const AttentionOptions& o) {
  return q.device().is_cuda() && q.dtype() != f64 && std::max(q.size(-1), v.size(-1)) <= 64 &&
         v.size(-1) > 0 && !o.attn_mask.defined() && o.dropout_p == 0 && *o.scale > 0;
}

/// Attention of heads (H, L, E), (H, S, E), (H, S, Ev). The kernels want rows of 16, 32 or 64 elements: zeros
/// after shorter ones change no score.
Tensor fused(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& o) {
  int64_t row = 16;
  while (row < std::max(query.size(-1), value.size(-1))) row *= 2;
  const auto filled = [row](const Tensor& x) {
    return x.size(-1) == row ? x : pad(x, {0, row - x.size(-1)});
  };
  const Tensor q = filled(query), k = filled(key), v = filled(value);
  const detail::AttentionTerms terms{*o.scale, o.is_causal};
  Tensor y = detail::empty_for(function, q.shape(), q.options());
  Tensor log_sums = detail::empty_for(function, {q.size(0), q.size(1)}, {f32, q.device()});
  cuda::attention(dense(q), dense(k), dense(v), terms, y, log_sums);
  if (auto node = autograd::record<AttentionNode>({q, k, v}, y)) {
    node->q_.save(q), node->k_.save(k), node->v_.save(v), node->y_.save(y), node->log_sums_.save(log_sums);
    node->terms_ = terms;
  }
  return value.size(-1) == row ? y : y.slice(-1, 0, value.size(-1));
}

#endif

// ---- Checks ----

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  detail::check_floating(function, "query", q);
  for (const auto& [name, t] : {std::pair("key", &k), std::pair("value", &v)}) {
    detail::check_defined(function, name, *t);
    detail::check_same_dtype(function, q, *t);
    detail::check_same_device(function, q, *t);
  }
  Shape of_k = q.shape(), of_v = q.shape();
  const int64_t r = q.rank();
  if (r >= 2 && k.rank() == r && v.rank() == r)
    of_k[r - 2] = of_v[r - 2] = k.shape()[r - 2], of_v[r - 1] = v.shape()[r - 1];
  check<ShapeError>(r >= 2 && q.size(-1) >= 1 && k.shape() == of_k && v.shape() == of_v, function,
                    ": needs query (..., L, E), key (..., S, E) and value (..., S, Ev) with the same leading "
                    "sizes, E >= 1, got ",
                    q.shape(), ", ", k.shape(), " and ", v.shape());
  check<ValueError>(o.dropout_p >= 0 && o.dropout_p < 1, function, ": dropout_p must be in [0, 1), got ",
                    o.dropout_p);
  if (!o.attn_mask.defined()) return;
  check<ValueError>(!o.is_causal, function, ": attn_mask and is_causal exclude each other");
  detail::check_same_device(function, q, o.attn_mask);
  check<DTypeError>(o.attn_mask.dtype() == boolean || o.attn_mask.dtype() == q.dtype(), function,
                    ": attn_mask must be bool or ", q.dtype(), ", got ", o.attn_mask.dtype());
  Shape pairs = q.shape();
  pairs[r - 1] = k.shape()[r - 2];
  check<ShapeError>(
      o.attn_mask.rank() >= 2 && broadcast_shapes(function, o.attn_mask.shape(), pairs) == pairs, function,
      ": attn_mask must have two dimensions at least and broadcast to ", pairs, ", got ",
      o.attn_mask.shape());
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  AttentionOptions o = options;
  const auto operand = [](const Tensor& t) { return detail::autocast_operand(t); };
  const Tensor q = operand(query), k = operand(key), v = operand(value);
  if (o.attn_mask.defined() && o.attn_mask.dtype() != boolean) o.attn_mask = operand(o.attn_mask);
  check_operands(q, k, v, o);
  const AutocastGuard own_dtype(std::nullopt);
  return in_the_name_of(function, [&] {
    const int64_t rows = q.size(-2), columns = k.size(-2);
    const auto flat = [](const Tensor& t) { return t.rank() == 2 ? t.unsqueeze(0) : t.flatten(0, -3); };
    Shape result = q.shape(), heads = q.shape();
    result[result.rank() - 1] = v.size(-1);
    heads.erase(heads.rank() - 1), heads.erase(heads.rank() - 1);
    if (q.numel() == 0 || columns == 0) return matmul(matmul(q, k.transpose(-2, -1)), v);

    o.scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
#if VOXGRAD_HAS_CUDA
    if (is_fused(q, v, o)) return fused(flat(q), flat(k), flat(v), o).reshape(result);
#endif

    // Probabilities in one block. On a GPU a block must be large enough to occupy it.
    const int64_t most = q.device().is_cuda() ? int64_t{1} << 26 : int64_t{1} << 22;
    const int64_t block_rows = std::clamp<int64_t>(most / columns, 1, rows);
    const int64_t block_heads = std::max<int64_t>(most / (block_rows * columns), 1);
    const auto qs = split(flat(q) * *o.scale, block_heads, 0), ks = split(flat(k), block_heads, 0),
               vs = split(flat(v), block_heads, 0);
    const bool is_one = qs.size() == 1 && block_rows == rows;
    std::vector<Tensor> all;
    for (size_t i = 0; i < qs.size(); ++i) {
      const auto first_head = static_cast<int64_t>(i) * block_heads;
      const Tensor mask = o.attn_mask.defined()
                              ? of_heads(o.attn_mask, heads, first_head, first_head + qs[i].size(0))
                              : Tensor();
      std::vector<Tensor> of_rows;
      int64_t first = 0;
      for (const Tensor& part : split(qs[i], block_rows, 1)) {
        const bool masks_rows = mask.defined() && mask.size(-2) > 1;
        const Tensor m = masks_rows ? mask.slice(-2, first, first + part.size(1)) : mask;
        const auto block = [first, o](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& m) {
          return attend(q, k, v, m, first, o);
        };
        of_rows.push_back(is_one ? block(part, ks[i], vs[i], m) : checkpoint(block, part, ks[i], vs[i], m));
        first += part.size(1);
      }
      all.push_back(of_rows.size() == 1 ? of_rows[0] : cat(of_rows, 1));
    }
    return (all.size() == 1 ? all[0] : cat(all, 0)).reshape(result);
  });
}

}  // namespace vox
