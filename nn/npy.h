#pragma once

#include <filesystem>
#include <istream>
#include <map>
#include <string>

#include <voxgrad/core/tensor.h>

namespace vox {

/// Reads an array that numpy.save wrote, in version 1 to 3 of the format
/// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). NumPy's '<f4', '<f8', '<f2',
/// '<i8', '<i4', '<i2', '<u2', '|u1' and '|b1' become f32, f64, f16, i64, i32, i16, u16, u8 and bool. '<V2',
/// as which the package ml_dtypes saves bfloat16, becomes bf16. Big-endian numbers are converted. An array in
/// Fortran order becomes a tensor with strides in that order.
///
/// Throws IoError, with the file, the rule and what was found, for other dtypes and for everything that the
/// format does not allow; sizes are checked against the file before memory is allocated.
Tensor load_npy(const std::filesystem::path& path, Device device = Device::cpu());

/// Writes `t` (any device, strides and dtype) so that numpy.load reads it: in row-major order, little-endian,
/// bf16 as '<V2'. The file appears complete or not at all, as with nn::save.
/// Throws ValueError for an undefined tensor; IoError if the file cannot be written.
void save_npy(const std::filesystem::path& path, const Tensor& t);

/// Reads the arrays of a file that numpy.savez wrote, or numpy.savez_compressed if voxgrad was built with
/// zlib, by their names. Throws IoError as load_npy does, and for damaged archives (nn/zip.h has the rules).
std::map<std::string, Tensor> load_npz(const std::filesystem::path& path, Device device = Device::cpu());

namespace nn::detail {
/// load_npy and load_npz of any stream of `bytes`. Messages start with `where`.
Tensor read_npy(std::istream& in, int64_t bytes, const std::string& where);
std::map<std::string, Tensor> read_npz(std::istream& in, int64_t bytes, const std::string& where);
}  // namespace nn::detail

}  // namespace vox
