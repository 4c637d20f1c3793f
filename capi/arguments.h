#pragma once

#include <cstdint>
#include <vector>

#include "value.h"

extern "C" {

enum VoxgradKind : int {
  voxgrad_none,
  voxgrad_tensor,
  voxgrad_integer,
  voxgrad_real,
  voxgrad_text,
  voxgrad_integers,
  voxgrad_reals,
  voxgrad_tensors,
  voxgrad_result  ///< in a program: results of earlier steps, by their place among all
};

struct VoxgradArgument {
  VoxgradKind kind;
  int64_t count;  ///< of the elements of a list; 0 for one result
  int64_t integer;
  double real;
  const void* data;  ///< a handle, characters, or an array of int64_t, double or handles
};
}

namespace vox::capi {

inline std::vector<Tensor> tensors_of(const Tensor* const* handles, int64_t count) {
  std::vector<Tensor> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(*handles[i]);
  return list;
}

template <class T>
std::vector<T> array_of(const VoxgradArgument& a) {
  return {static_cast<const T*>(a.data), static_cast<const T*>(a.data) + a.count};
}

/// `results` are those that voxgrad_result counts.
inline Value value_of(const VoxgradArgument& a, const std::vector<Tensor>& results = {}) {
  switch (a.kind) {
    case voxgrad_none:
      return {};
    case voxgrad_tensor:
      return *static_cast<const Tensor*>(a.data);
    case voxgrad_integer:
      return a.integer;
    case voxgrad_real:
      return a.real;
    case voxgrad_text:
      return static_cast<const char*>(a.data);
    case voxgrad_integers:
      return array_of<int64_t>(a);
    case voxgrad_reals:
      return array_of<double>(a);
    case voxgrad_tensors:
      return tensors_of(static_cast<const Tensor* const*>(a.data), a.count);
    case voxgrad_result: {
      if (a.count == 0) return results.at(static_cast<size_t>(a.integer));
      std::vector<Tensor> list;
      for (const int64_t place : array_of<int64_t>(a)) list.push_back(results.at(static_cast<size_t>(place)));
      return list;
    }
  }
  throw Inexpressible("an argument has an unknown kind");
}

}  // namespace vox::capi
