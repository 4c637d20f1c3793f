// Sorts rows with CUB's radix sort, which is stable: first all elements of all rows by their keys, then the
// places so ordered by their row. Then each row is in order.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/sort_key.h>
#include <voxgrad/cuda/for_each_index.cuh>

#include <bit>
#include <cub/device/device_radix_sort.cuh>

namespace vox::cuda {

namespace {

template <class T>
struct KeyOfElement {
  const T* x;
  bool descending;
  uint64_t* keys;
  int64_t* places;
  __device__ void operator()(int64_t i) const {
    keys[i] = detail::sort_key(x[i], descending);
    places[i] = i;
  }
};

struct RowOfPlace {
  const int64_t* places;
  int64_t n;
  uint64_t* keys;
  __device__ void operator()(int64_t i) const { keys[i] = static_cast<uint64_t>(places[i] / n); }
};

struct IndexInRow {
  const int64_t* places;
  int64_t n;
  int64_t* indices;
  __device__ void operator()(int64_t i) const { indices[i] = places[i] % n; }
};

/// Keys and places, each with room for the sorted ones.
class Pairs {
 public:
  Pairs(const Launch& launch, int64_t count)
      : launch_(launch), count_(count), memory_(launch, 4 * count * static_cast<int64_t>(sizeof(int64_t))) {
    keys_ = {memory_.as<uint64_t>(), memory_.as<uint64_t>() + count};
    places_ = {memory_.as<int64_t>() + 2 * count, memory_.as<int64_t>() + 3 * count};
  }
  uint64_t* keys() { return keys_.Current(); }
  int64_t* places() { return places_.Current(); }

  /// Sorts the places by the low `bits` of their keys.
  void sort(int bits) {
    size_t bytes = 0;
    const auto sort = [&](void* storage) {
      launch_.check(
          cub::DeviceRadixSort::SortPairs(storage, bytes, keys_, places_, count_, 0, bits, launch_.stream()));
    };
    sort(nullptr);  // asks for the size of the storage
    const Workspace storage(launch_, static_cast<int64_t>(bytes));
    sort(storage.as<char>());
  }

 private:
  const Launch& launch_;
  int64_t count_;
  Workspace memory_;
  cub::DoubleBuffer<uint64_t> keys_;
  cub::DoubleBuffer<int64_t> places_;
};

}  // namespace

void argsort(const Tensor& x, bool descending, Tensor& indices) {
  const Launch launch("argsort", indices, {&x});
  const int64_t count = x.numel(), n = x.size(-1), rows = count / n;
  Pairs pairs(launch, count);
  visit_dtype(x.dtype(), [&]<class T>(T) {
    for_each_index(launch, count,
                   KeyOfElement<T>{detail::ptr<T>(x), descending, pairs.keys(), pairs.places()});
    pairs.sort(detail::sort_key_bits<T>);
  });
  if (rows > 1) {
    for_each_index(launch, count, RowOfPlace{pairs.places(), n, pairs.keys()});
    pairs.sort(std::bit_width(static_cast<uint64_t>(rows - 1)));
  }
  for_each_index(launch, count, IndexInRow{pairs.places(), n, detail::mutable_ptr<int64_t>(indices)});
}

}  // namespace vox::cuda
