#include <voxgrad/core/dlpack_abi.h>

#include "tests/support/test.h"

namespace vox {
namespace {

// What DLPack 1.1 says; a struct that differs reads the fields of other libraries wrongly.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
              offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, deleter) == 16 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

constexpr DType all_dtypes[] = {f32, f64, bf16, f16, i64, u8, boolean, i16, u16, i32};

DEVICE_SUITE(DlpackTest);

TEST_P(DlpackTest, EveryDtypeAndLayoutGoesThereAndBack) {
  for (const DType dtype : all_dtypes) {
    const Tensor values = arange(2 * 3 * 4).reshape({2, 3, 4}).to(dtype).to(device());
    for (const auto& [layout, t, dense, memory, writable] : layouts(values)) {
      SCOPED_TRACE(str(dtype, ", ", layout));
      const Tensor there = t.detach();
      for (const Tensor& back : {from_dlpack(to_dlpack(there)), from_dlpack(to_dlpack_versioned(there))}) {
        EXPECT_EQ(back.impl()->data(), t.impl()->data());
        EXPECT_EQ(back.shape(), t.shape());
        EXPECT_EQ(back.strides(), t.strides());
        EXPECT_EQ(back.dtype(), dtype);
        EXPECT_EQ(back.device(), t.device());
        EXPECT_EQ(back.to(f64).to_vector<double>(), dense.to(f64).to_vector<double>());
      }
    }
  }
}

TEST_P(DlpackTest, EmptyTensorsScalarsAndWrites) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{1, 1, 1, 1, 1, 1, 1, 1}}) {
    const Tensor t = full(shape, 7, on(i64));
    const Tensor back = from_dlpack(to_dlpack(t));
    EXPECT_EQ(back.shape(), shape);
    EXPECT_EQ(back.to_vector<int64_t>(), t.to_vector<int64_t>());
  }
  Tensor lent = zeros({4}, on(f32));
  Tensor borrowed = from_dlpack(to_dlpack(lent));
  borrowed.slice(0, 1, 3).fill_(2);
  EXPECT_EQ(lent.to_vector<float>(), (Floats{0, 2, 2, 0}));
  lent.fill_(3);
  EXPECT_EQ(borrowed.to_vector<float>(), (Floats{3, 3, 3, 3}));
}

TEST(Dlpack, TheLentMemoryLivesUntilTheDeleterRan) {
  int deleted = 0;
  Floats memory{1, 2, 3};
  for (const bool lender_first : {true, false}) {
    deleted = 0;
    Tensor t = from_blob(memory.data(), {3}, {1}, Device::cpu(), [&](void*) { ++deleted; });
    DLManagedTensor* managed = to_dlpack(t.slice(0, 1, 3));
    EXPECT_EQ(*static_cast<float*>(managed->dl_tensor.data), 2);
    if (lender_first) {
      t = {};
      EXPECT_EQ(deleted, 0);
      managed->deleter(managed);
    } else {
      managed->deleter(managed);
      EXPECT_EQ(deleted, 0);
      EXPECT_EQ(t.to_vector<float>(), memory);
      t = {};
    }
    EXPECT_EQ(deleted, 1);
  }
}

/// A tensor as another library lends it, on memory of its own.
struct Foreign {
  Floats memory{0, 1, 2, 3, 4, 5, 6, 7};
  Ints shape{2, 3}, strides{4, 1};
  int deleted = 0;
  DLManagedTensorVersioned versioned{};
  DLManagedTensor managed{};

  Foreign() {
    managed.dl_tensor = {memory.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), strides.data(), 4};
    managed.manager_ctx = versioned.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    versioned.version = {1, 3};
    versioned.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
    versioned.dl_tensor = managed.dl_tensor;
  }
  DLTensor& tensor() { return managed.dl_tensor; }
};

TEST(Dlpack, TheDeleterRunsWithTheLastTensor) {
  Foreign foreign;
  Tensor t = from_dlpack(&foreign.managed);
  EXPECT_EQ(t.to_vector<float>(), (Floats{1, 2, 3, 5, 6, 7}));
  Tensor column = t.select(1, 2), lent_on = from_dlpack(to_dlpack(t));
  t = {};
  EXPECT_EQ(column.to_vector<float>(), (Floats{3, 7}));
  column = {};
  EXPECT_EQ(foreign.deleted, 0);
  lent_on = {};
  EXPECT_EQ(foreign.deleted, 1);

  Foreign without;
  without.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&without.managed).numel(), 6);
}

TEST(Dlpack, MissingStridesMeanDense) {
  Foreign foreign;
  foreign.tensor().strides = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
}

TEST(Dlpack, StridesOfSingleElementsSayNothing) {
  Foreign foreign;
  foreign.shape = {1, 3};
  foreign.strides = {INT64_MIN, 2};
  const Tensor t = from_dlpack(&foreign.managed);
  EXPECT_EQ(t.to_vector<float>(), (Floats{1, 3, 5}));
  EXPECT_GE(t.strides()[0], 0);
  foreign.shape = {0, 3};
  foreign.strides = {-1, INT64_MAX};
  EXPECT_EQ(from_dlpack(&foreign.managed).numel(), 0);
}

TEST(Dlpack, HostMemoryOfCudaIsHostMemory) {
  Foreign foreign;
  foreign.tensor().device = {kDLCUDAHost, 1};
  EXPECT_EQ(from_dlpack(&foreign.managed).device(), Device::cpu());
}

TEST(Dlpack, ReadOnlyMemoryStaysUnwritten) {
  Foreign foreign;
  foreign.versioned.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  Tensor t = from_dlpack(&foreign.versioned);
  EXPECT_REFUSED(ValueError, t.fill_(0), "fill_: the memory of the target is read-only");
  EXPECT_REFUSED(ValueError, t.select(0, 0).add_(1), "add_: the memory of the target");
  EXPECT_REFUSED(ValueError, t.detach().mutable_data<float>(), "mutable_data: ");
  EXPECT_REFUSED(ValueError, t.copy_(zeros({2, 3})), "copy_: ");
  EXPECT_REFUSED(ValueError, to_dlpack(t), "to_dlpack: the memory is read-only");
  EXPECT_EQ(t.clone().fill_(2).sum().item(), 12);

  DLManagedTensorVersioned* lent_on = to_dlpack_versioned(t.select(0, 1));
  EXPECT_EQ(lent_on->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  lent_on->deleter(lent_on);

  // Nor does the engine accumulate there.
  Tensor x = ones({2, 3}).set_requires_grad();
  x.set_grad(from_dlpack(&foreign.versioned));
  x.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{2, 3, 4, 6, 7, 8}));
  EXPECT_EQ(foreign.memory, (Floats{0, 1, 2, 3, 4, 5, 6, 7}));
  DLManagedTensorVersioned* writable = to_dlpack_versioned(x.detach());
  EXPECT_EQ(writable->flags, 0u);
  writable->deleter(writable);
}

TEST(Dlpack, RefusesToLend) {
  EXPECT_REFUSED(ValueError, to_dlpack(Tensor()), "to_dlpack: argument 't' is an undefined tensor");
  EXPECT_REFUSED(ValueError, to_dlpack_versioned(Tensor()), "to_dlpack_versioned: argument 't'");
  EXPECT_REFUSED(GradError, to_dlpack(ones({1}).set_requires_grad()), "to_dlpack: the tensor requires grad");
  EXPECT_REFUSED(GradError, to_dlpack_versioned(ones({1}).set_requires_grad()), "lend detach()");
}

/// A tensor that `change` has made wrong, which remains the caller's.
template <class Change>
void refused(const std::string& reason, Change change) {
  Foreign foreign;
  change(foreign);
  foreign.tensor().shape = foreign.tensor().shape ? foreign.shape.data() : nullptr;
  foreign.tensor().strides = foreign.strides.data();
  foreign.versioned.dl_tensor = foreign.tensor();
  for (const std::string& message : {message_of([&] { from_dlpack(&foreign.managed); }),
                                     message_of([&] { from_dlpack(&foreign.versioned); })}) {
    EXPECT_TRUE(has_parts(message, {reason})) << reason;
    EXPECT_EQ(message.rfind("from_dlpack: ", 0), 0u) << message;
  }
  EXPECT_EQ(foreign.deleted, 0) << reason;
}

TEST(Dlpack, RefusesToBorrow) {
  EXPECT_REFUSED(ValueError, from_dlpack(static_cast<DLManagedTensor*>(nullptr)), "from_dlpack: the pointer");
  EXPECT_REFUSED(ValueError, from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)), "is null");

  const std::pair<DLDataType, const char*> dtypes[] = {{{kDLInt, 8, 1}, "int8; allowed are float32,"},
                                                       {{kDLUInt, 32, 1}, "uint32"},
                                                       {{kDLComplex, 64, 1}, "complex64"},
                                                       {{kDLOpaqueHandle, 64, 1}, "opaque64"},
                                                       {{kDLFloat, 32, 4}, "float32 in vectors of 4"},
                                                       {{kDLFloat, 32, 0}, "float32 in vectors of 0"},
                                                       {{10, 8, 1}, "code 10 of 8 bits"}};
  for (const auto& [dtype, name] : dtypes)
    refused(str("no dtype ", name), [&](auto& f) { f.tensor().dtype = dtype; });
  const std::pair<int, const char*> devices[] = {
      {8, "metal; allowed are"}, {13, "cuda_managed"}, {5, "type 5"}, {-1, "type -1"}};
  for (const auto& [type, name] : devices)
    refused(str("no device ", name), [&](auto& f) { f.tensor().device.device_type = type; });
  for (const int rank : {-1, 9})
    refused(str("0 to 8 dimensions, got ", rank), [&](auto& f) { f.tensor().ndim = rank; });
  refused("the pointer to the sizes is null", [](auto& f) { f.tensor().shape = nullptr; });
  refused("the pointer is null", [](auto& f) { f.tensor().data = nullptr; });
  refused("not aligned to the 4 bytes of f32", [](auto& f) { f.tensor().byte_offset = 2; });
  const auto lies = [](const Ints& shape, const Ints& strides) {
    return [=](Foreign& f) {
      f.shape = shape, f.strides = strides, f.tensor().ndim = static_cast<int>(shape.size());
    };
  };
  refused("a size must be >= 0, got (2,-3)", lies({2, -3}, {4, 1}));
  refused("at most 2^63 - 1 elements", lies({INT64_MAX, 3}, {4, 1}));
  refused("at most 2^63 - 1 elements", lies({INT64_MAX, 0, 3}, {4, 1, 1}));
  refused("overflows 64 bits", lies({int64_t{1} << 40, 3}, {INT64_MAX, 1}));
  refused("overflows 64 bits", lies({INT64_MAX}, {1}));
  refused("strides must be >= 0, got (-4,1)", lies({2, 3}, {-4, 1}));

  Foreign newer;
  newer.versioned.version = {2, 0};
  EXPECT_REFUSED(ValueError, from_dlpack(&newer.versioned), "reads DLPack 1.x, got version 2.0");
  EXPECT_EQ(newer.deleted, 0);
}

TEST(Dlpack, RefusesDevicesThatDoNotExist) {
  Foreign foreign;
  foreign.tensor().device = {kDLCUDA, 63};
  EXPECT_REFUSED(DeviceError, from_dlpack(&foreign.managed), "from_dlpack: ");
  foreign.tensor().device = {kDLCUDA, -1};
  EXPECT_REFUSED(DeviceError, from_dlpack(&foreign.managed), "from_dlpack: ");
  EXPECT_EQ(foreign.deleted, 0);
}

}  // namespace
}  // namespace vox
