#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/core/print.h>
#include <voxgrad/nn/sliding_window.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <cmath>

namespace vox::nn {

std::vector<int64_t> window_starts(Int size, Int window, Real step) {
  check<ValueError>(window >= 1 && window <= size, "window_starts: needs 1 <= window <= size, got window ",
                    window, " and size ", size);
  check<ValueError>(step >= 0.01 && step <= 1, "window_starts: step must be in [0.01, 1], got ", step);
  const auto last = static_cast<double>(size - window);
  const double gaps = std::ceil(last / (static_cast<double>(window) * step));
  std::vector<int64_t> starts{0};
  for (double i = 1; i <= gaps; ++i) starts.push_back(std::llrint(last / gaps * i));
  return starts;
}

std::vector<Shape> plan_windows(const Shape& size, const Shape& window, Real step) {
  check<ShapeError>(size.rank() == window.rank(), "plan_windows: size and window must have one rank, got ",
                    size, " and ", window);
  std::vector<Shape> places(1);
  for (int64_t axis = 0; axis < size.rank(); ++axis) {
    std::vector<Shape> longer;
    for (const Shape& place : places) {
      for (const int64_t start : window_starts(size[axis], window[axis], step)) {
        longer.push_back(place);
        longer.back().push_back(start);
      }
    }
    places = std::move(longer);
  }
  return places;
}

Tensor gaussian_window(const Shape& window) {
  Tensor weights = full({}, 10, {f64});
  for (int64_t axis = 0; axis < window.rank(); ++axis) {
    const int64_t size = window[axis];
    check<ValueError>(size >= 1, "gaussian_window: sizes must be positive, got ", window);
    std::vector<double> values;
    for (int64_t i = 0; i < size; ++i) {
      const double deviations = static_cast<double>(8 * (i - size / 2)) / static_cast<double>(size);
      values.push_back(std::exp(-deviations * deviations / 2));
    }
    weights = weights.unsqueeze(-1) * from_vector(values, {size});
  }
  std::vector<float> rounded = weights.to(f16).to(f32).to_vector<float>();
  float smallest = 10;
  for (const float w : rounded) smallest = w > 0 ? std::min(smallest, w) : smallest;
  for (float& w : rounded) w = std::max(w, smallest);
  return from_vector(rounded, window);
}

namespace {

/// The part of x, whose last dimensions are those of a volume, that starts at `start`.
Tensor part(Tensor x, const Shape& start, const Shape& size) {
  for (int64_t axis = 0; axis < size.rank(); ++axis)
    x = x.slice(axis - size.rank(), start[axis], start[axis] + size[axis]);
  return x;
}

void check_arguments(const Tensor& volume, const SlidingWindowOptions& o) {
  const int64_t rank = o.window.rank();
  vox::detail::check_defined("sliding_window", "volume", volume);
  check<ValueError>(rank == 2 || rank == 3, "sliding_window: window has 2 or 3 sizes, got ", o.window);
  check<ShapeError>(volume.rank() == rank + 1, "sliding_window: a window of shape ", o.window,
                    " needs a volume of ", rank + 1, " dimensions, (C, ", rank == 3 ? "D, " : "",
                    "H, W), got ", volume.shape());
  check<ValueError>(volume.numel() > 0 && *std::min_element(o.window.begin(), o.window.end()) > 0,
                    "sliding_window: volume and window must not be empty, got ", volume.shape(), " and ",
                    o.window);
  check<ValueError>(o.batch_size >= 1, "sliding_window: batch_size must be positive, got ", o.batch_size);
  for (int64_t i = 0; i < o.mirror.rank(); ++i)
    check<ValueError>(o.mirror[i] >= 0 && o.mirror[i] < rank &&
                          std::count(o.mirror.begin(), o.mirror.end(), o.mirror[i]) == 1,
                      "sliding_window: mirror has axes from 0 to ", rank - 1, ", each once, got ", o.mirror);
}

/// The mean of the network's results for all flips of x along `axes`, flipped back.
std::vector<Tensor> mean_of_flips(const detail::WindowFunction& network, const Tensor& x, const Shape& axes) {
  std::vector<Tensor> mean = network(x);
  const int64_t flips = int64_t{1} << axes.rank();
  for (int64_t flipped = 1; flipped < flips; ++flipped) {
    Shape dims;
    for (int64_t i = 0; i < axes.rank(); ++i) {
      if (flipped >> i & 1) dims.push_back(2 + axes[i]);
    }
    const std::vector<Tensor> results = network(flip(x, dims));
    check<ShapeError>(results.size() == mean.size(), "sliding_window: the network returned ", results.size(),
                      " tensors, before ", mean.size());
    for (size_t k = 0; k < mean.size(); ++k) mean[k] = mean[k] + flip(results[k], dims);
  }
  for (Tensor& m : mean) m = flips > 1 ? m / flips : m;
  return mean;
}

/// Weighted sums of the windows' results, one for each tensor that the network returns.
class Sums {
 public:
  Sums(const Shape& size, const SlidingWindowOptions& o, Device device)
      : size_(size),
        window_(o.window),
        device_(device),
        weights_(o.gaussian ? gaussian_window(o.window) : ones(o.window)) {}

  void add(const std::vector<Tensor>& results, const Shape* starts, int64_t count) {
    if (sums_.empty()) begin(results);
    check<ShapeError>(results.size() == sums_.size(), "sliding_window: the network returned ", results.size(),
                      " tensors, before ", sums_.size());
    for (size_t k = 0; k < results.size(); ++k) {
      const Tensor& y = results[k];
      Shape expected{count, sums_[k].size(0)};
      for (const int64_t w : window_) expected.push_back(w);
      check<ShapeError>(y.shape() == expected, "sliding_window: the network must return ", expected, ", got ",
                        y.shape());
      const Tensor weighted = (y.to(sums_[k].dtype()) * weights_.to(sums_[k].dtype())).to(device_);
      for (int64_t n = 0; n < count; ++n) part(sums_[k], starts[n], window_).add_(weighted.select(0, n));
    }
    for (int64_t n = 0; n < count; ++n) part(total_, starts[n], window_).add_(weights_here_);
  }

  std::vector<Tensor> means() {
    for (Tensor& sum : sums_) sum.div_(total_.to(sum.dtype()));
    return sums_;
  }

 private:
  void begin(const std::vector<Tensor>& results) {
    check<ShapeError>(!results.empty(), "sliding_window: the network returned no tensor");
    const auto is_f64 = [](const Tensor& y) { return y.dtype() == f64; };
    total_ = zeros(size_, {std::any_of(results.begin(), results.end(), is_f64) ? f64 : f32, device_});
    weights_here_ = weights_.to(total_.dtype()).to(device_);
    weights_ = weights_.to(results[0].device());
    for (const Tensor& y : results) {
      check<ShapeError>(y.rank() == window_.rank() + 2,
                        "sliding_window: the network must return (N, K, ...) of ", window_.rank() + 2,
                        " dimensions, got ", y.shape());
      check<DTypeError>(is_floating(y.dtype()), "sliding_window: needs a floating dtype to average, got ",
                        y.dtype());
      Shape shape{y.size(1)};
      for (const int64_t s : size_) shape.push_back(s);
      sums_.push_back(zeros(shape, {opmath(y.dtype()), device_}));
    }
  }

  Shape size_, window_;
  Device device_;
  Tensor weights_, weights_here_, total_;  // where the network is, and where the sums are
  std::vector<Tensor> sums_;
};

}  // namespace

std::vector<Tensor> detail::sliding_window(const Tensor& volume, const WindowFunction& network,
                                           const SlidingWindowOptions& o) {
  check_arguments(volume, o);
  const auto guard = no_grad();
  Shape size, before;  // of the padded volume; cells in front of the volume
  std::vector<int64_t> padding;
  for (int64_t axis = 0; axis < o.window.rank(); ++axis) {
    const int64_t missing = std::max<int64_t>(o.window[axis] - volume.size(axis + 1), 0);
    size.push_back(volume.size(axis + 1) + missing);
    before.push_back(missing / 2);
    padding.insert(padding.begin(), {missing / 2, missing - missing / 2});
  }
  const bool padded = *std::max_element(padding.begin(), padding.end()) > 0;
  const Tensor x = padded ? pad(volume, padding) : volume;

  const std::vector<Shape> starts = plan_windows(size, o.window, o.step);
  Sums sums(size, o, volume.device());
  const auto count = static_cast<int64_t>(starts.size());
  for (int64_t first = 0; first < count; first += o.batch_size) {
    const int64_t last = std::min(first + o.batch_size, count);
    std::vector<Tensor> windows;
    for (int64_t i = first; i < last; ++i)
      windows.push_back(part(x, starts[static_cast<size_t>(i)], o.window));
    const Tensor batch = stack(windows).to(o.device.value_or(volume.device()));
    sums.add(mean_of_flips(network, batch, o.mirror), &starts[static_cast<size_t>(first)], last - first);
  }
  std::vector<Tensor> means = sums.means();
  const Shape cells(volume.shape().begin() + 1, volume.shape().end());
  for (Tensor& mean : means) mean = padded ? part(mean, before, cells).contiguous() : mean;
  return means;
}

}  // namespace vox::nn
