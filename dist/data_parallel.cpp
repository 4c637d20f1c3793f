#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/engine.h>
#include <voxgrad/dist/server.h>
#include <voxgrad/ops/elementwise.h>

#include <algorithm>
#include <map>
#include <numeric>

// Note [Buckets]
//
// Reducing each gradient by its own call would cost mostly latency. Reducing all of them by one call could
// not start before the backward has ended. So neighbouring gradients share a bucket, a dense tensor, which is
// reduced as soon as it is full, while the backward goes on with earlier layers:
//
//     backward    | head | up0 | up1 | down2 | down1 | down0 |
//     bucket 0                 [== all_reduce ==]
//     bucket 1                               [== all_reduce ==]
//     bucket 2                                               [== all_reduce ==]
//
// A hook on each parameter runs when its gradient has arrived. The engine adds the gradient to grad() just
// after the hook, so it is copied into its bucket when the next hook runs, or at the end. All ranks reduce
// the buckets in the same order: a full bucket waits for those before it. In the first backward, buckets take
// the parameters from the last to the first; from then on, in the order in which rank 0's gradients arrived.
//
// At the end, the gradients that did not arrive count as zeros, and one more call of agree() tells every rank
// which parameters have a gradient on any rank. Their grad() becomes a view of the reduced bucket.

namespace vox::dist {

namespace {

constexpr int64_t kAlignment = 64;  // in elements: kernels can read each gradient by wide loads

std::string describe(const std::string& kind, const std::string& name, const Tensor& t) {
  return str(kind, " \"", name, "\" of ", t.dtype(), " ", t.shape(),
             t.requires_grad() ? "" : " without gradient");
}

}  // namespace

DataParallel::DataParallel(std::vector<Named> parameters, std::vector<Named> buffers,
                           const DataParallelOptions& options)
    : options_(options) {
  check<ValueError>(options.bucket_bytes > 0, "DataParallel: bucket_bytes must be positive, got ",
                    options.bucket_bytes);
  check<DTypeError>(!options.gradient_dtype || is_floating(*options.gradient_dtype),
                    "DataParallel: gradient_dtype must be floating");
  std::string models;
  for (const auto& [name, tensor] : parameters) models += describe("parameter", name, tensor) + '\n';
  for (const auto& [name, tensor] : buffers) models += describe("buffer", name, tensor) + '\n';
  const std::vector<std::string> each = agree("DataParallel", "DataParallel", models);
  for (size_t rank = 1; rank < each.size(); ++rank) {
    const auto [a, b] = std::mismatch(each[0].begin(), each[0].end(), each[rank].begin(), each[rank].end());
    if (a == each[0].end() && b == each[rank].end()) continue;
    const auto line = [](const std::string& text, auto place) {
      const auto begin = std::find(std::make_reverse_iterator(place), text.rend(), '\n').base();
      const std::string found(begin, std::find(place, text.end(), '\n'));
      return found.empty() ? "nothing" : found;
    };
    throw ValueError(str("DataParallel: the networks differ: rank 0 has ", line(each[0], a), ", where rank ",
                         rank, " has ", line(each[rank], b)));
  }

  const auto guard = no_grad();
  for (auto& [name, tensor] : parameters) {
    tensor.copy_(broadcast(tensor));
    if (tensor.requires_grad()) parameters_.push_back({name, tensor});
  }
  for (auto& [name, tensor] : buffers) buffers_.push_back(tensor);
  broadcast_buffers();
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  fill_buckets(order);
  for (size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].hook = parameters_[i].tensor.register_hook([this, i](const Tensor&) { arrived(i); });
}

DataParallel::~DataParallel() {
  for (Parameter& p : parameters_) {
    if (p.tensor.requires_grad()) p.tensor.remove_hook(p.hook);
  }
}

void DataParallel::broadcast_buffers() {
  const auto guard = no_grad();
  for (Tensor& buffer : buffers_) buffer.copy_(broadcast(buffer));
}

void DataParallel::fill_buckets(const std::vector<size_t>& order) {
  buckets_.clear();
  std::map<std::pair<DType, int>, size_t> open;  // by dtype and GPU; -1 for the CPU
  for (const size_t i : order) {
    Parameter& p = parameters_[i];
    const DType dtype = options_.gradient_dtype.value_or(p.tensor.dtype());
    const Device device = p.tensor.device();
    auto [place, fresh] = open.try_emplace({dtype, device.is_cuda() ? device.index : -1}, buckets_.size());
    if (!fresh && buckets_[place->second].numel * size_of(dtype) >= options_.bucket_bytes) {
      place->second = buckets_.size();
      fresh = true;
    }
    if (fresh) buckets_.emplace_back();
    Bucket& bucket = buckets_[place->second];
    bucket.dtype = dtype;
    bucket.device = device;
    p.bucket = place->second;
    p.offset = bucket.numel;
    bucket.parameters.push_back(i);
    bucket.numel += (p.tensor.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
}

void DataParallel::backward(const Tensor& loss, const BackwardOptions& options) {
  check<GradError>(mode_ == Mode::idle, "DataParallel::backward: called during a backward");
  check<GradError>(!loss.defined() || loss.numel() == 1,
                   "DataParallel::backward: the loss must have one element");
  const double share = options.share.value_or(1.0 / size());
  check<ValueError>(share >= 0 && share <= 1, "DataParallel::backward: share must be in [0, 1], got ", share);
  check<ValueError>(loss.defined() || !options.share || share == 0,
                    "DataParallel::backward: an undefined loss has a share of 0, got ", share);
  struct Idle {
    DataParallel& self;
    ~Idle() {
      self.mode_ = Mode::idle;
      for (Bucket& bucket : self.buckets_) bucket.done = {};
    }
  } idle{*this};
  mode_ = options.accumulate ? Mode::accumulate : Mode::reduce;
  if (!options.accumulate) begin();
  // finish() divides the ranks' sum by size(). So gradients of earlier calls, which are equal on all ranks,
  // keep their values, and this loss is scaled by share * size() instead of share.
  const double seed = options.share ? share * size() : 1;
  if (loss.defined()) Tensor(loss).backward(full(loss.shape(), seed, loss.options()));
  if (!options.accumulate) finish();
}

void DataParallel::begin() {
  next_bucket_ = 0;
  last_.reset();
  arrivals_.clear();
  for (Parameter& p : parameters_) p.copied = false;
  for (Bucket& bucket : buckets_) {
    bucket.gradients = zeros({bucket.numel}, {.dtype = bucket.dtype, .device = bucket.device});
    bucket.missing = bucket.parameters.size();
    for (const size_t i : bucket.parameters)
      check<GradError>(parameters_[i].tensor.device() == bucket.device, "DataParallel: the parameter \"",
                       parameters_[i].name, "\" was moved from ", bucket.device, " to ",
                       parameters_[i].tensor.device(), "; make the DataParallel after Module::to()");
  }
}

/// The hook of parameter i.
void DataParallel::arrived(size_t i) {
  check<GradError>(mode_ != Mode::idle, "backward: the parameter \"", parameters_[i].name,
                   "\" belongs to a DataParallel, whose ranks would get different gradients; call "
                   "parallel.backward(loss) instead of loss.backward()");
  if (mode_ != Mode::reduce) return;
  copy_last();
  check<GradError>(next_bucket_ <= parameters_[i].bucket, "DataParallel: a second gradient of parameter \"",
                   parameters_[i].name, "\" has arrived in one backward, after the first was sent");
  last_ = i;
}

void DataParallel::copy_last() {
  if (!last_) return;
  const size_t i = *std::exchange(last_, std::nullopt);
  if (!parameters_[i].copied) arrivals_.push_back(i);
  copy(i);
  start_full_buckets();
}

void DataParallel::copy(size_t i) {
  Parameter& p = parameters_[i];
  Bucket& bucket = buckets_[p.bucket];
  if (!p.copied) --bucket.missing;
  p.copied = true;
  const Tensor gradient = p.tensor.grad();
  if (!gradient.defined()) return;
  const auto guard = no_grad();
  const int64_t n = p.tensor.numel();
  bucket.gradients.slice(0, p.offset, p.offset + n).copy_(gradient.reshape({n}));
}

void DataParallel::start_full_buckets() {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0; ++next_bucket_) {
    Bucket& bucket = buckets_[next_bucket_];
    if (size() == 1) continue;
    std::optional<cuda::StreamGuard> guard;
    if (bucket.device.is_cuda()) {
      if (!stream_) stream_.emplace(bucket.device);
      stream_->wait(cuda::current_stream(bucket.device));
      guard.emplace(*stream_);
    }
    bucket.done =
        start("DataParallel", {Collective::Kind::all_reduce, bucket.gradients, bucket.gradients},
              str("gradients ", next_bucket_, ", ", parameters_[bucket.parameters[0]].name, "...: "));
  }
  // MPI makes progress only inside its calls.
  for (Bucket& bucket : buckets_) {
    if (bucket.done) bucket.done();
  }
}

void DataParallel::finish() {
  copy_last();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].copied) copy(i);
  }
  start_full_buckets();

  // Tells all ranks which parameters have a gradient here and, until the order is fixed, the order of
  // arrival.
  std::string used;
  for (const Parameter& p : parameters_) used += p.tensor.grad().defined() ? '1' : '0';
  std::string order;
  if (!ordered_) {
    for (const size_t i : arrivals_) put(order, static_cast<uint32_t>(i));
  }
  const std::vector<std::string> each =
      agree("DataParallel", "the end of DataParallel::backward", used + order);

  for (Bucket& bucket : buckets_) {
    if (bucket.done) wait(bucket.done, "DataParallel: a reduction of gradients");
  }
  if (stream_) cuda::current_stream(stream_->device()).wait(*stream_);

  const auto guard = no_grad();
  for (Bucket& bucket : buckets_) {
    const Tensor mean = std::exchange(bucket.gradients, Tensor()) / size();
    for (const size_t i : bucket.parameters) {
      Parameter& p = parameters_[i];
      if (std::none_of(each.begin(), each.end(), [&](const std::string& flags) { return flags[i] == '1'; }))
        continue;
      p.tensor.set_grad(mean.slice(0, p.offset, p.offset + p.tensor.numel())
                            .reshape(p.tensor.shape())
                            .to(p.tensor.dtype()));
    }
  }

  if (ordered_) return;
  std::string from_0 = each[0].substr(parameters_.size());
  if (from_0.empty()) return;  // rank 0 had no loss
  std::vector<size_t> arrivals;
  while (!from_0.empty()) arrivals.push_back(take<uint32_t>(from_0));
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (std::find(arrivals.begin(), arrivals.end(), i) == arrivals.end()) arrivals.push_back(i);
  }
  for (Bucket& bucket : buckets_) bucket.done = {};
  fill_buckets(arrivals);
  ordered_ = true;
}

}  // namespace vox::dist
