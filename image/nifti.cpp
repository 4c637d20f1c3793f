// NIfTI-1 and NIfTI-2 in a single file. Header, byte order and quaternions are libnifti2's.
#include <nifti2_io.h>

#include <voxgrad/core/print.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "voxels.h"

namespace vox::detail {

namespace {

/// Both versions of the header have these fields, of other types.
struct Header {
  int version = 1;
  bool swapped = false;
  int64_t dim[8] = {};
  double pixdim[8] = {};
  int datatype = 0, sform_code = 0, qform_code = 0, units = 0;
  double slope = 0, intercept = 0, voxel_offset = 0, quaternion[3] = {}, shift[3] = {};
  nifti_dmat44 sform{};
};

template <class Raw>
Header header_of(Raw raw, int version) {
  Header h;
  h.version = version;
  h.swapped = raw.sizeof_hdr != static_cast<int>(sizeof raw);
  if (h.swapped) swap_nifti_header(&raw, version);
  for (int i = 0; i < 8; ++i) h.dim[i] = raw.dim[i], h.pixdim[i] = raw.pixdim[i];
  h.datatype = raw.datatype;
  h.sform_code = raw.sform_code;
  h.qform_code = raw.qform_code;
  h.units = raw.xyzt_units;
  h.slope = raw.scl_slope;
  h.intercept = raw.scl_inter;
  h.voxel_offset = static_cast<double>(raw.vox_offset);
  for (int i = 0; i < 4; ++i) {
    h.sform.m[0][i] = raw.srow_x[i];
    h.sform.m[1][i] = raw.srow_y[i];
    h.sform.m[2][i] = raw.srow_z[i];
  }
  h.quaternion[0] = raw.quatern_b, h.quaternion[1] = raw.quatern_c, h.quaternion[2] = raw.quatern_d;
  h.shift[0] = raw.qoffset_x, h.shift[1] = raw.qoffset_y, h.shift[2] = raw.qoffset_z;
  return h;
}

Header read_header(ImageInput& in) {
  nifti_set_debug_level(0);  // errors are thrown from here; the library must not print them too
  const char* no_nifti = "not a single-file NIfTI image (magic number n+1 or n+2)";
  nifti_1_header first;
  in.read(&first, sizeof first);
  const int version = nifti_header_version(reinterpret_cast<const char*>(&first), sizeof first);
  if (version == 1 && NIFTI_ONEFILE(first)) return header_of(first, 1);
  in.require(version == 2, no_nifti);
  nifti_2_header second;
  std::memcpy(&second, &first, sizeof first);
  in.read(reinterpret_cast<char*>(&second) + sizeof first, sizeof second - sizeof first);
  in.require(NIFTI_ONEFILE(second), no_nifti);
  return header_of(second, 2);
}

constexpr std::pair<int, Stored> types[] = {
    {DT_INT8, Stored::i8},     {DT_UINT8, Stored::u8},   {DT_INT16, Stored::i16}, {DT_UINT16, Stored::u16},
    {DT_INT32, Stored::i32},   {DT_UINT32, Stored::u32}, {DT_INT64, Stored::i64}, {DT_UINT64, Stored::u64},
    {DT_FLOAT32, Stored::f32}, {DT_FLOAT64, Stored::f64}};

Stored stored_of(const ImageInput& in, int datatype) {
  for (const auto& [code, stored] : types) {
    if (code == datatype) return stored;
  }
  in.refuse(str("voxel type ", datatype, " (", nifti_datatype_string(datatype),
                ") is not read; 8- to 64-bit integers, float32 and float64 are"));
}

/// The map from (x, y, z) indices to mm, which NIfTI-1 knows to f32.
nifti_dmat44 affine_of(const Header& h, const double (&size)[3], double mm) {
  nifti_dmat44 m{};
  if (h.sform_code > 0) {
    m = h.sform;
  } else if (h.qform_code > 0) {
    m = nifti_quatern_to_dmat44(h.quaternion[0], h.quaternion[1], h.quaternion[2], h.shift[0], h.shift[1],
                                h.shift[2], size[0], size[1], size[2], h.pixdim[0] < 0 ? -1 : 1);
  } else {
    for (int i = 0; i < 3; ++i) m.m[i][i] = i < 2 ? -size[i] : size[i];
  }
  for (int row = 0; row < 3; ++row) {
    for (double& element : m.m[row])
      element = h.version == 1 ? static_cast<float>(element * mm) : element * mm;
  }
  return m;
}

void set_geometry(const ImageInput& in, const Header& h, Image& image) {
  double size[3];
  for (int i = 0; i < 3; ++i) {
    size[i] = std::abs(h.pixdim[i + 1]);
    if (!(size[i] > 0 && std::isfinite(size[i]))) size[i] = 1;  // as libnifti2, for axes that do not matter
  }
  const int units = XYZT_TO_SPACE(h.units);
  const double mm = units == NIFTI_UNITS_METER ? 1000 : units == NIFTI_UNITS_MICRON ? 1e-3 : 1;
  const nifti_dmat44 m = affine_of(h, size, mm);
  for (int row = 0; row < 3; ++row) image.origin[row] = row < 2 ? -m.m[row][3] : m.m[row][3];
  for (int axis = 0; axis < 3; ++axis) {
    const int column = 2 - axis;
    const double length = std::hypot(m.m[0][column], m.m[1][column], m.m[2][column]);
    in.require(length > 0 && std::isfinite(length), "the sform or qform is no coordinate system");
    // As in ITK, the voxel's size is the header's. Where they agree it is exact, and the column's length is
    // rounded.
    const double spacing = image.spacing[axis] =
        h.version == 1 ? static_cast<float>(size[column] * mm) : size[column] * mm;
    const double unit = std::abs(spacing / length - 1) < 5e-4 ? spacing : length;
    for (int row = 0; row < 3; ++row)
      image.direction[axis][row] = (row < 2 ? -m.m[row][column] : m.m[row][column]) / unit;
  }
}

template <class Raw>
Raw header_for(const Image& image, int64_t voxel_offset) {
  Raw raw{};
  raw.sizeof_hdr = sizeof raw;
  std::memcpy(raw.magic, sizeof raw == 348 ? "n+1" : "n+2\0\r\n\032\n", sizeof raw.magic);
  const Tensor& data = image.data;
  using Size = std::remove_reference_t<decltype(raw.dim[0])>;
  raw.dim[0] = static_cast<Size>(data.rank());
  for (int i = 1; i < 8; ++i)
    raw.dim[i] = i <= data.rank() ? static_cast<Size>(data.size(i == 4 ? 0 : -i)) : Size{1};
  const DType dtype = data.dtype();
  const auto* type = std::find_if(std::begin(types), std::end(types),
                                  [&](const auto& t) { return t.second == stored_as(dtype); });
  raw.datatype = static_cast<int16_t>(type->first);
  raw.bitpix = static_cast<int16_t>(8 * size_of(dtype));
  raw.vox_offset = static_cast<decltype(raw.vox_offset)>(voxel_offset);
  raw.scl_slope = 1;
  raw.xyzt_units = NIFTI_UNITS_MM;

  nifti_dmat44 m{};
  for (int row = 0; row < 3; ++row) {
    const double sign = row < 2 ? -1 : 1;
    m.m[row][3] = sign * image.origin[row];
    for (int axis = 0; axis < 3; ++axis)
      m.m[row][2 - axis] = sign * image.direction[axis][row] * image.spacing[axis];
  }
  using Number = std::remove_reference_t<decltype(raw.srow_x[0])>;
  for (int i = 0; i < 4; ++i) {
    raw.srow_x[i] = static_cast<Number>(m.m[0][i]);
    raw.srow_y[i] = static_cast<Number>(m.m[1][i]);
    raw.srow_z[i] = static_cast<Number>(m.m[2][i]);
  }
  raw.sform_code = raw.qform_code = NIFTI_XFORM_SCANNER_ANAT;
  double b, c, d, x, y, z, dx, dy, dz, qfac;  // the nearest map without skew
  nifti_dmat44_to_quatern(m, &b, &c, &d, &x, &y, &z, &dx, &dy, &dz, &qfac);
  raw.quatern_b = static_cast<Number>(b), raw.quatern_c = static_cast<Number>(c),
  raw.quatern_d = static_cast<Number>(d);
  raw.qoffset_x = static_cast<Number>(x), raw.qoffset_y = static_cast<Number>(y),
  raw.qoffset_z = static_cast<Number>(z);
  raw.pixdim[0] = static_cast<Number>(qfac);
  for (int axis = 0; axis < 3; ++axis) raw.pixdim[3 - axis] = static_cast<Number>(image.spacing[axis]);
  for (int i = 4; i < 8; ++i) raw.pixdim[i] = 1;
  return raw;
}

template <class Raw>
void write_header(ImageOutput& out, const Image& image) {
  const char no_extension[4] = {};
  const Raw raw = header_for<Raw>(image, sizeof(Raw) + sizeof no_extension);
  out.write(&raw, sizeof raw);
  out.write(no_extension, sizeof no_extension);
}

}  // namespace

Image read_nifti(const std::filesystem::path& path, bool compressed, bool keeps_dtype) {
  ImageInput in(path);
  if (compressed) in.decompress();
  const Header h = read_header(in);
  in.require(h.dim[0] >= 1 && h.dim[0] <= 7, str("dim[0] is ", h.dim[0], ", not 1 to 7"));
  int64_t size[4] = {1, 1, 1, 1};  // x, y, z, and everything else as channels
  for (int i = 1; i <= h.dim[0]; ++i) {
    in.require(h.dim[i] >= 1, str("dim[", i, "] is ", h.dim[i], ", sizes must be positive"));
    int64_t& axis = size[std::min(i, 4) - 1];
    in.require(!__builtin_mul_overflow(axis, h.dim[i], &axis), "its sizes are too large");
  }
  VoxelFormat format{stored_of(in, h.datatype), h.swapped, keeps_dtype};
  // Slope 0 means that no scaling was stored.
  if (h.slope != 0 && std::isfinite(h.slope) && std::isfinite(h.intercept))
    format.slope = h.slope, format.intercept = h.intercept;
  const int64_t header_bytes = h.version == 1 ? 348 : 540;
  in.require(h.voxel_offset >= static_cast<double>(header_bytes) && h.voxel_offset <= 1 << 30,
             "vox_offset is out of range");

  Image image;
  set_geometry(in, h, image);
  in.skip(static_cast<int64_t>(h.voxel_offset) - header_bytes);
  std::vector<int64_t> sizes{size[2], size[1], size[0]};
  if (size[3] > 1) sizes.insert(sizes.begin(), size[3]);
  image.data = read_voxels(in, sizes, format);
  return image;
}

void write_nifti(const std::filesystem::path& path, const Image& image, bool compressed) {
  ImageOutput out(path);
  if (compressed) out.compress();
  const Shape& shape = image.data.shape();
  if (*std::max_element(shape.begin(), shape.end()) <= 32767)
    write_header<nifti_1_header>(out, image);
  else
    write_header<nifti_2_header>(out, image);
  write_voxels(out, image.data);
  out.commit();
}

}  // namespace vox::detail
