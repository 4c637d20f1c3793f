// Attention without its matrix of probabilities: Dao et al., FlashAttention, 2022, and FlashAttention-2,
// 2023.
//
//     s = scale q k^T,  p = softmax(s) along rows,  y = p v
//     dv = p^T g,  ds = p (g v^T - delta),  dq = scale ds k,  dk = scale ds^T q,  delta = sum(g y) along rows
//
// A block owns 64 rows of one head, 16 for each warp, and goes through the other side in tiles, which come by
// cp.async while the tile before is multiplied. Scores and probabilities of a tile are a warp's sums in
// registers, and become its left factor there. Forward: each row keeps its largest score so far and scales
// what it has added when that grows. Backward: probabilities are computed again from log2 of the row's sum of
// powers, which the forward keeps. One kernel owns rows of q and gives dq; the same kernel with the sides
// exchanged owns rows of k and gives dk and dv. So nothing is added by atomics, and results have the same
// bits every time.

#include <voxgrad/core/check.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/cuda/exponential.cuh>
#include <voxgrad/cuda/factors.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>

#include <numbers>

namespace vox::cuda {

namespace {

using detail::AttentionTerms;

constexpr int threads = 128, own = 64, gap = 8;  // rows of a block; elements between rows in shared memory

/// Columns of a tile, in groups of 16.
template <class T>
constexpr int groups = sizeof(T) == 2 ? 4 : 2;
template <class T>
constexpr int width = 16 * groups<T>;

struct Sizes {
  int64_t rows, columns;  // of the scores: those of q, and of k and v
  float scale, power;     // exp(scale s) = exp2(power s)
  bool causal;
};

/// Starts to copy rows [first, first + count) of a matrix of n rows of E elements; rows beyond n become 0.
template <int E, int count, class T>
__device__ void copy_rows(T* to, const T* from, int64_t first, int64_t n) {
  constexpr int each = 16 / sizeof(T), of_row = E / each;
  for (int e = threadIdx.x; e < count * of_row; e += threads) {
    const int64_t row = first + e / of_row;
    ptx::cp_async_16_or_zeros(ptx::shared_address_of(to + e / of_row * (E + gap) + e % of_row * each),
                              from + (row < n ? row : 0) * E + e % of_row * each, row < n);
  }
}

/// Makes the scores -inf that do not count, of a warp's rows from `first_row` and a tile from `first`: those
/// beyond the `others` that exist, and of causal scores those of queries with later keys.
template <bool of_keys, class T>
__device__ void hide(Sums (&s)[groups<T>], int64_t first_row, int64_t first, int64_t others, bool causal,
                     int lane) {
  const int64_t end = first + width<T>;
  if (end <= others && !(causal && (of_keys ? first < first_row + 15 : end > first_row + 1))) return;
#pragma unroll
  for (int g = 0; g < groups<T>; ++g)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first_row + row_of(lane, i), other = first + g * 16 + column_of(lane, h, i);
        if (other >= others || (causal && (of_keys ? other < row : other > row))) s[g][h][i] = -INFINITY;
      }
}

/// s = x y^T for a warp's 16 rows of x and a tile y.
template <class T, int E>
__device__ void scores(Sums (&s)[groups<T>], const T* x, const T* y, int lane) {
  for (auto& group : s)
    for (auto& half : group)
      for (float& sum : half) sum = 0;
#pragma unroll
  for (int e = 0; e < E; e += 16) {
    const auto a = Factors<T>::left(x + e, E + gap, lane);
#pragma unroll
    for (int g = 0; g < groups<T>; ++g)
      Factors<T>::multiply(s[g], a, Factors<T>::transposed_right(y + g * 16 * (E + gap) + e, E + gap, lane));
  }
}

/// sum = factor * sum + s y for a tile y, with a factor for each of a lane's two rows.
template <class T, int E>
__device__ void add_product(Sums (&sum)[E / 16], const float (&factor)[2], const Sums (&s)[groups<T>],
                            const T* y, int lane) {
#pragma unroll
  for (int e = 0; e < E / 16; ++e) {
    Sums part = {};
#pragma unroll
    for (int g = 0; g < groups<T>; ++g)
      Factors<T>::multiply(part, Factors<T>::left(s[g]),
                           Factors<T>::right(y + g * 16 * (E + gap) + e * 16, E + gap, lane));
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[e][h][i] = factor[i / 2] * sum[e][h][i] + part[h][i];
  }
}

/// Rows of the block's result: factor * sum, of those rows that exist.
template <int E, class T>
__device__ void store(T* to, const Sums (&sum)[E / 16], const float (&factor)[2], int64_t first, int64_t n,
                      int lane) {
#pragma unroll
  for (int e = 0; e < E / 16; ++e)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first + row_of(lane, i);
        if (row < n) to[row * E + e * 16 + column_of(lane, h, i)] = T(factor[i / 2] * sum[e][h][i]);
      }
}

/// A block's shared memory: its own rows of two matrices, and two tiles of each of two others.
template <class T, int E>
struct Shared {
  T x[2][own * (E + gap)];
  T y[2][2][width<T> * (E + gap)];   // [stage][matrix]
  float statistics[2][2][width<T>];  // [stage]: log_sums and delta of a tile of queries
};

template <class T, int E>
__global__ void __launch_bounds__(threads)
    forward_kernel(const T* q, const T* k, const T* v, Sizes sizes, T* y, float* log_sums) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<T, E>*>(memory);
  const int64_t blocks = (sizes.rows + own - 1) / own, head = blockIdx.x / blocks;
  const int64_t row0 = blockIdx.x % blocks * own, rows = sizes.rows, columns = sizes.columns;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  k += head * columns * E, v += head * columns * E;
  const auto load = [&](int64_t tile) {
    copy_rows<E, width<T>>(shared.y[tile % 2][0], k, tile * width<T>, columns);
    copy_rows<E, width<T>>(shared.y[tile % 2][1], v, tile * width<T>, columns);
  };
  copy_rows<E, own>(shared.x[0], q + head * rows * E, row0, rows);
  load(0);

  Sums sum[E / 16] = {};
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {};  // of the lane's rows; total: of its own columns
  const int64_t end = sizes.causal ? min(columns, row0 + own) : columns;
  const int64_t first_row = row0 + warp * 16;
  for (int64_t tile = 0; tile * width<T> < end; ++tile) {
    ptx::cp_async_wait_all();
    __syncthreads();
    if ((tile + 1) * width<T> < end) load(tile + 1);
    Sums s[groups<T>];
    scores<T, E>(s, shared.x[0] + warp * 16 * (E + gap), shared.y[tile % 2][0], lane);
    hide<false, T>(s, first_row, tile * width<T>, columns, sizes.causal, lane);
    float scaled[2], factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float m = most[r];
      for (const auto& group : s)
        for (const auto& half : group) m = fmaxf(m, fmaxf(half[2 * r], half[2 * r + 1]));
      for (int other = 1; other < 4; other *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, other));
      factor[r] = flushed_exp2((most[r] - m) * sizes.power);
      most[r] = m, scaled[r] = m * sizes.power;
      total[r] *= factor[r];
    }
    for (auto& group : s)
      for (auto& half : group)
        for (int i = 0; i < 4; ++i) {
          half[i] = flushed_exp2(fmaf(half[i], sizes.power, -scaled[i / 2]));
          total[i / 2] += half[i];
        }
    add_product<T, E>(sum, factor, s, shared.y[tile % 2][1], lane);
  }
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    for (int other = 1; other < 4; other *= 2) total[r] += __shfl_xor_sync(~0u, total[r], other);
    inverse[r] = 1 / total[r];
    const int64_t row = first_row + row_of(lane, 2 * r);
    if (lane % 4 == 0 && row < rows) log_sums[head * rows + row] = most[r] * sizes.power + log2f(total[r]);
  }
  store<E>(y + head * rows * E, sum, inverse, first_row, rows, lane);
}

/// The pointers of backward_kernel, by its sides: x belongs to the block's own rows, y to the tiles.
template <class T>
struct Sides {
  const T *x0, *x1, *y0, *y1;  // of_keys: k, v; q, g. Else: q, g; k, v
  int64_t own_rows, others;
  T *grad0, *grad1;  // of_keys: dk, dv. Else: dq, null
};

template <class T, int E, bool of_keys>
__global__ void __launch_bounds__(threads)
    backward_kernel(Sides<T> sides, Sizes sizes, const float* log_sums, const float* delta) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<T, E>*>(memory);
  const int64_t n = sides.own_rows, others = sides.others;
  const int64_t blocks = (n + own - 1) / own, head = blockIdx.x / blocks, row0 = blockIdx.x % blocks * own;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first_row = row0 + warp * 16, at_others = head * others * E;
  log_sums += head * sizes.rows, delta += head * sizes.rows;
  const auto load = [&](int64_t tile) {
    copy_rows<E, width<T>>(shared.y[tile % 2][0], sides.y0 + at_others, tile * width<T>, others);
    copy_rows<E, width<T>>(shared.y[tile % 2][1], sides.y1 + at_others, tile * width<T>, others);
    if (of_keys && threadIdx.x < 2 * width<T>) {
      const int which = threadIdx.x / width<T>, i = threadIdx.x % width<T>;
      const int64_t other = tile * width<T> + i;
      ptx::cp_async_4_or_zeros(ptx::shared_address_of(&shared.statistics[tile % 2][which][i]),
                               (which ? delta : log_sums) + (other < others ? other : 0), other < others);
    }
  };
  // Of causal scores, queries see the keys up to their own number.
  const int64_t begin = of_keys && sizes.causal ? row0 / width<T> : 0;
  const int64_t end = !of_keys && sizes.causal ? min(others, row0 + own) : others;
  copy_rows<E, own>(shared.x[0], sides.x0 + head * n * E, row0, n);
  copy_rows<E, own>(shared.x[1], sides.x1 + head * n * E, row0, n);
  if (begin * width<T> < end) load(begin);

  float own_log[2], own_delta[2];
  for (int r = 0; r < 2 && !of_keys; ++r) {
    const int64_t row = min(first_row + row_of(lane, 2 * r), n - 1);
    own_log[r] = log_sums[row], own_delta[r] = delta[row];
  }
  Sums sum0[E / 16] = {}, sum1[E / 16] = {};
  constexpr float one[2] = {1, 1};
  const T* const x = shared.x[0] + warp * 16 * (E + gap);
  for (int64_t tile = begin; tile * width<T> < end; ++tile) {
    ptx::cp_async_wait_all();
    __syncthreads();
    if ((tile + 1) * width<T> < end) load(tile + 1);
    const auto& y = shared.y[tile % 2];
    Sums p[groups<T>], d[groups<T>];
    scores<T, E>(p, x, y[0], lane);
    scores<T, E>(d, x + own * (E + gap), y[1], lane);
    hide<of_keys, T>(p, first_row, tile * width<T>, others, sizes.causal, lane);
#pragma unroll
    for (int g = 0; g < groups<T>; ++g)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int other = g * 16 + column_of(lane, h, i);
          const float log = of_keys ? shared.statistics[tile % 2][0][other] : own_log[i / 2],
                      mean = of_keys ? shared.statistics[tile % 2][1][other] : own_delta[i / 2];
          p[g][h][i] = flushed_exp2(fmaf(p[g][h][i], sizes.power, -log));
          d[g][h][i] = p[g][h][i] * (d[g][h][i] - mean);
        }
    if constexpr (of_keys) add_product<T, E>(sum1, one, p, y[1], lane);
    add_product<T, E>(sum0, one, d, y[0], lane);
  }
  const float scale[2] = {sizes.scale, sizes.scale};
  store<E>(sides.grad0 + head * n * E, sum0, scale, first_row, n, lane);
  if constexpr (of_keys) store<E>(sides.grad1 + head * n * E, sum1, one, first_row, n, lane);
}

Sizes sizes_of(const Tensor& q, const Tensor& k, const AttentionTerms& terms) {
  return {q.size(1), k.size(1), static_cast<float>(terms.scale),
          static_cast<float>(terms.scale * std::numbers::log2e), terms.is_causal};
}

/// Calls run.template operator()<T, E>() for the elements and the row length of q.
template <class Run>
void visit(const Tensor& q, Run run) {
  const auto of = [&]<class T>(T) {
    if (q.size(2) == 16) return run.template operator()<T, 16>();
    if (q.size(2) == 32) return run.template operator()<T, 32>();
    run.template operator()<T, 64>();
  };
  if (q.dtype() == f32) return of(float{});
  q.dtype() == bf16 ? of(bfloat16{}) : of(float16{});
}

template <auto* kernel, class T, int E, class... Arguments>
void launch_over(const Launch& launch, int64_t heads, int64_t rows, const Arguments&... arguments) {
  launch.allow_shared_memory<kernel>(sizeof(Shared<T, E>));
  kernel<<<static_cast<unsigned>(heads * ((rows + own - 1) / own)), threads, sizeof(Shared<T, E>),
           launch.stream()>>>(arguments...);
  launch.check();
}

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionTerms& terms, Tensor& y,
               Tensor& log_sums) {
  const Launch launch("scaled_dot_product_attention", y, {&q, &k, &v, &log_sums});
  visit(q, [&]<class T, int E>() {
    launch_over<&forward_kernel<T, E>, T, E>(launch, q.size(0), q.size(1), detail::ptr<T>(q),
                                             detail::ptr<T>(k), detail::ptr<T>(v), sizes_of(q, k, terms),
                                             detail::mutable_ptr<T>(y), detail::mutable_ptr<float>(log_sums));
  });
}

void attention_gradient(const Tensor& grad_y, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionTerms& terms, const Tensor& log_sums, const Tensor& delta,
                        Tensor& grad_q, Tensor& grad_k, Tensor& grad_v) {
  const Launch launch("scaled_dot_product_attention", log_sums,
                      {&grad_y, &q, &k, &v, &delta, &grad_q, &grad_k, &grad_v});
  visit(q, [&]<class T, int E>() {
    const T *of_q = detail::ptr<T>(q), *of_k = detail::ptr<T>(k), *of_v = detail::ptr<T>(v),
            *of_g = detail::ptr<T>(grad_y);
    const float *logs = detail::ptr<float>(log_sums), *deltas = detail::ptr<float>(delta);
    const Sizes sizes = sizes_of(q, k, terms);
    if (grad_q.defined())
      launch_over<&backward_kernel<T, E, false>, T, E>(
          launch, q.size(0), sizes.rows,
          Sides<T>{of_q, of_g, of_k, of_v, sizes.rows, sizes.columns, detail::mutable_ptr<T>(grad_q),
                   nullptr},
          sizes, logs, deltas);
    if (grad_k.defined())
      launch_over<&backward_kernel<T, E, true>, T, E>(
          launch, q.size(0), sizes.columns,
          Sides<T>{of_k, of_v, of_q, of_g, sizes.columns, sizes.rows, detail::mutable_ptr<T>(grad_k),
                   detail::mutable_ptr<T>(grad_v)},
          sizes, logs, deltas);
  });
}

}  // namespace vox::cuda
