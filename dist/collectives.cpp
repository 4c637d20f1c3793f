// The collectives of dist.h with their gradients.
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/dist/engine.h>
#include <voxgrad/ops/elementwise.h>

namespace vox::dist {

using autograd::linear;

namespace {

using Kind = Collective::Kind;

const char* to_string(Reduce reduce) {
  constexpr const char* names[] = {"sum", "mean", "max", "min"};
  return names[static_cast<int>(reduce)];
}

/// Runs a collective and waits until it is done; on CUDA, only until it is enqueued in the current stream.
Tensor run(const char* function, Kind kind, const Tensor& x, Shape shape, Reduce reduce = Reduce::sum,
           int root = 0) {
  const Tensor input = x.detach().contiguous();
  if (size() == 1) return input.clone();
  const Tensor output = detail::empty_for(function, shape, x.options());
  // MPI and NCCL broadcast in place.
  if (kind == Kind::broadcast && rank() == root) Tensor(output).copy_(input);
  const Collective collective{kind, kind == Kind::broadcast ? output : input, output, reduce, root};
  wait(start(function, collective), collective.description());
  return output;
}

Shape with_first(Shape shape, int64_t size) {
  shape[0] = size;
  return shape;
}

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
  return linear("all_reduce", {x}, run("all_reduce", Kind::all_reduce, x, x.shape(), reduce),
                [](const Tensor& g) { return all_reduce(g); });
}

Tensor broadcast(const Tensor& x, int root) {
  detail::check_defined("broadcast", "x", x);
  check<ValueError>(root >= 0 && root < size(), "broadcast: root must be a rank, 0 to ", size() - 1, ", got ",
                    root);
  return linear("broadcast", {x}, run("broadcast", Kind::broadcast, x, x.shape(), Reduce::sum, root),
                [root](const Tensor& g) {
                  const Tensor sum = all_reduce(g);
                  return rank() == root ? sum : sum * 0;
                });
}

Tensor all_gather(const Tensor& x) {
  detail::check_defined("all_gather", "x", x);
  check<ShapeError>(x.rank() > 0, "all_gather: x needs a dimension along which the parts are concatenated");
  const Shape shape = with_first(x.shape(), x.size(0) * size());
  return linear("all_gather", {x}, run("all_gather", Kind::all_gather, x, shape),
                [](const Tensor& g) { return reduce_scatter(g); });
}

Tensor reduce_scatter(const Tensor& x) {
  detail::check_defined("reduce_scatter", "x", x);
  check<ShapeError>(x.rank() > 0 && x.size(0) % size() == 0,
                    "reduce_scatter: the first dimension must be divisible by ", size(),
                    ", the number of ranks; got ", x.shape());
  check<DTypeError>(x.dtype() != boolean && !is_only_stored(x.dtype()),
                    "reduce_scatter: needs a dtype that ops compute in, got ", x.dtype());
  const Shape shape = with_first(x.shape(), x.size(0) / size());
  return linear("reduce_scatter", {x}, run("reduce_scatter", Kind::reduce_scatter, x, shape),
                [](const Tensor& g) { return all_gather(g); });
}

}  // namespace vox::dist
