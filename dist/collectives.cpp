// The collectives of dist.h with their gradients.
#include <voxgrad/autograd/function.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/dist/engine.h>
#include <voxgrad/ops/elementwise.h>

namespace vox::dist {

namespace {

using Kind = Collective::Kind;

const char* to_string(Reduce reduce) {
  switch (reduce) {
    case Reduce::sum:
      return "sum";
    case Reduce::mean:
      return "mean";
    case Reduce::max:
      return "max";
    case Reduce::min:
      return "min";
  }
  return "?";
}

/// Runs a collective and waits until it is done; on CUDA, only until it is enqueued in the current stream.
Tensor run(const char* function, Kind kind, const Tensor& x, Shape shape, Reduce reduce = Reduce::sum,
           int root = 0) {
  const Tensor input = x.contiguous();
  if (size() == 1) return input.clone();
  const Tensor output = detail::empty_for(function, shape, x.options());
  // MPI and NCCL broadcast in place.
  if (kind == Kind::broadcast && rank() == root) Tensor(output).copy_(input);
  const Collective collective{kind, kind == Kind::broadcast ? output : input, output, reduce, root};
  wait(start(function, collective), collective.description());
  return output;
}

struct AllReduce : Function<AllReduce> {
  static constexpr const char* name = "all_reduce";
  Reduce reduce;
  explicit AllReduce(Reduce r) : reduce(r) {}
  Tensor forward(FunctionContext&, const std::vector<Tensor>& x) {
    return run(name, Kind::all_reduce, x[0], x[0].shape(), reduce);
  }
  std::vector<Tensor> backward(FunctionContext&, const Tensor& g) { return {all_reduce(g)}; }
};

struct Broadcast : Function<Broadcast> {
  static constexpr const char* name = "broadcast";
  int root;
  explicit Broadcast(int r) : root(r) {}
  Tensor forward(FunctionContext&, const std::vector<Tensor>& x) {
    return run(name, Kind::broadcast, x[0], x[0].shape(), Reduce::sum, root);
  }
  std::vector<Tensor> backward(FunctionContext&, const Tensor& g) {
    const Tensor sum = all_reduce(g);
    return {rank() == root ? sum : sum * 0};
  }
};

Shape with_first(Shape shape, int64_t size) {
  shape[0] = size;
  return shape;
}

struct AllGather : Function<AllGather> {
  static constexpr const char* name = "all_gather";
  Tensor forward(FunctionContext&, const std::vector<Tensor>& x) {
    return run(name, Kind::all_gather, x[0], with_first(x[0].shape(), x[0].size(0) * size()));
  }
  std::vector<Tensor> backward(FunctionContext&, const Tensor& g) { return {reduce_scatter(g)}; }
};

struct ReduceScatter : Function<ReduceScatter> {
  static constexpr const char* name = "reduce_scatter";
  Tensor forward(FunctionContext&, const std::vector<Tensor>& x) {
    return run(name, Kind::reduce_scatter, x[0], with_first(x[0].shape(), x[0].size(0) / size()));
  }
  std::vector<Tensor> backward(FunctionContext&, const Tensor& g) { return {all_gather(g)}; }
};

}  // namespace

std::string Collective::description() const {
  const std::string how = kind == Kind::all_reduce   ? str("all_reduce(", to_string(reduce), ")")
                          : kind == Kind::broadcast  ? str("broadcast(root ", root, ")")
                          : kind == Kind::all_gather ? "all_gather"
                                                     : "reduce_scatter";
  return str(how, " of ", input.dtype(), " ", input.shape(),
             input.device().is_cuda() ? " on CUDA" : " on the CPU");
}

Tensor all_reduce(const Tensor& x, Reduce reduce) {
  detail::check_defined("all_reduce", "x", x);
  const bool differentiable = reduce == Reduce::sum || reduce == Reduce::mean;
  check<GradError>(differentiable || !grad_enabled() || !x.requires_grad(), "all_reduce: ", to_string(reduce),
                   " has no gradient, and x requires grad; pass x.detach()");
  check<DTypeError>(!is_only_stored(x.dtype()), "all_reduce: no op computes in dtype ", x.dtype());
  check<DTypeError>(reduce != Reduce::mean || is_floating(x.dtype()),
                    "all_reduce: mean needs a floating dtype, got ", x.dtype());
  check<DTypeError>(reduce != Reduce::sum || x.dtype() != boolean,
                    "all_reduce: sum needs numbers, got bool; max is 'any', min is 'all'");
  if (reduce == Reduce::mean) return all_reduce(x) / size();
  return AllReduce(reduce).apply({x});
}

Tensor broadcast(const Tensor& x, int root) {
  detail::check_defined("broadcast", "x", x);
  check<ValueError>(root >= 0 && root < size(), "broadcast: root must be a rank, 0 to ", size() - 1, ", got ",
                    root);
  return Broadcast(root).apply({x});
}

Tensor all_gather(const Tensor& x) {
  detail::check_defined("all_gather", "x", x);
  check<ShapeError>(x.rank() > 0, "all_gather: x needs a dimension along which the parts are concatenated");
  return AllGather{}.apply({x});
}

Tensor reduce_scatter(const Tensor& x) {
  detail::check_defined("reduce_scatter", "x", x);
  check<ShapeError>(x.rank() > 0 && x.size(0) % size() == 0,
                    "reduce_scatter: the first dimension must be divisible by ", size(),
                    ", the number of ranks; got ", x.shape());
  check<DTypeError>(x.dtype() != boolean && !is_only_stored(x.dtype()),
                    "reduce_scatter: needs a dtype that ops compute in, got ", x.dtype());
  return ReduceScatter{}.apply({x});
}

}  // namespace vox::dist
