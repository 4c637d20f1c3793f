#include <sys/stat.h>

#include "tests/support/test.h"

namespace vox {
namespace {

class NpyTest : public DeviceTest {
 protected:
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, NpyTest, devices(), device_name);

/// In little-endian order.
std::string number(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

struct ArchiveOptions {
  std::string comment = {};
  bool zip64 = false;    ///< all sizes and places in fields of 64 bits
  bool overlap = false;  ///< the directory names the first member's place for all
  bool deflated = false;
};

/// A deflate stream of blocks that are not compressed.
std::string in_blocks(const std::string& bytes) {
  std::string stream;
  for (size_t at = 0, most = 60000; at < bytes.size(); at += most) {
    const std::string block = bytes.substr(at, most);
    stream +=
        number(at + most >= bytes.size(), 1) + number(block.size(), 2) + number(~block.size(), 2) + block;
  }
  return stream;
}

/// A zip archive of stored members, each a name and its bytes.
std::string archive(const std::vector<std::pair<std::string, std::string>>& members,
                    const ArchiveOptions& options = {}) {
  const auto crc = [](const std::string& bytes) {
    uint32_t state = ~0u;
    for (const char c : bytes) {
      state ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ (state & 1 ? 0xedb88320u : 0);
    }
    return ~state;
  };
  const uint64_t in_zip64 = 0xffffffff;
  std::string all, directory;
  for (const auto& [name, bytes] : members) {
    const uint64_t begin = options.overlap ? 0 : all.size(), size = bytes.size();
    const std::string extra =
        options.zip64 ? number(1, 2) + number(24, 2) + number(size, 8) + number(size, 8) + number(begin, 8)
                      : "";
    const std::string data = options.deflated ? in_blocks(bytes) : bytes;
    const uint64_t short_size = options.zip64 ? in_zip64 : size,
                   packed = options.zip64 ? in_zip64 : data.size();
    // Version, flags, method, time and date; checksum, sizes, length of the name.
    const std::string common = number(20, 2) + number(0, 2) + number(options.deflated ? 8 : 0, 2) +
                               number(0, 4) + number(crc(bytes), 4) + number(packed, 4) +
                               number(short_size, 4) + number(name.size(), 2);
    all += "PK\x03\x04" + common + number(0, 2) + name + data;
    directory += "PK\x01\x02" + number(20, 2) + common + number(extra.size(), 2) + number(0, 2) +
                 number(0, 8) + number(options.zip64 ? in_zip64 : begin, 4) + name + extra;
  }
  const uint64_t begin = all.size();
  all += directory;
  if (options.zip64) {
    const uint64_t end64 = all.size();
    all += "PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) +
           number(members.size(), 8) + number(members.size(), 8) + number(directory.size(), 8) +
           number(begin, 8);
    all += "PK\x06\x07" + number(0, 4) + number(end64, 8) + number(1, 4);
  }
  all += "PK\x05\x06" + number(0, 4) + number(members.size(), 2) + number(members.size(), 2) +
         number(directory.size(), 4) + number(begin, 4) + number(options.comment.size(), 2) + options.comment;
  return all;
}

/// A file of version 1 with this header.
std::string file(const std::string& header, const std::string& data = "") {
  return std::string("\x93NUMPY\x01\x00", 8) + number(header.size(), 2) + header + data;
}

std::string array(const std::string& descr, const std::string& shape, const std::string& data,
                  const std::string& order = "False") {
  return file("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n", data);
}

template <class T>
std::string bytes_of(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Written by numpy.save (NumPy 1.24.2) from numpy.array([[1.5, -2.0]], '<f4').
const std::string golden = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }" +
                           std::string(58, ' ') + "\n" + std::string("\0\0\xc0?\0\0\0\xc0", 8);

TEST_P(NpyTest, EveryDtypeAndLayoutComesBack) {
  for (const DType dtype : {f32, f64, bf16, f16, i64, u8, boolean, i16, u16, i32}) {
    const Tensor values = arange(2 * 3 * 4).reshape({2, 3, 4}).to(dtype).to(device());
    for (const auto& [layout, t, dense, memory, writable] : layouts(values)) {
      SCOPED_TRACE(str(dtype, ", ", layout));
      save_npy(folder_ / "t.npy", t);
      const Tensor back = load_npy(folder_ / "t.npy", device());
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), t.shape());
      EXPECT_EQ(back.device(), device());
      EXPECT_EQ(back.to(f64).to_vector<double>(), dense.to(f64).to_vector<double>());
    }
  }
}

TEST_P(NpyTest, EmptyTensorsScalarsAndLeaves) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{0}, Shape{3, 0, 2}, Shape{1, 1, 1, 1, 1, 1, 1, 2}}) {
    Tensor t = full(shape, 2.5, on(f32));
    save_npy(folder_ / "t.npy", t.set_requires_grad());
    const Tensor back = load_npy(folder_ / "t.npy");
    EXPECT_EQ(back.shape(), shape);
    EXPECT_EQ(back.to_vector<float>(), t.detach().to_vector<float>());
    EXPECT_FALSE(back.requires_grad());
  }
}

// Files that NumPy 1.24.2 wrote, and NumPy 2.4.6 with ml_dtypes 0.6.0 the bfloat16: 0 to 5 in two rows, in
// every dtype. (The fuzzer starts from them too.)
const auto of_numpy = std::filesystem::path(testing::data_dir).parent_path() / "fuzz/corpus/npy";

TEST(Npy, FilesOfNumpyAreReadAndWrittenAlike) {
  const TemporaryFolder folder;
  const std::pair<const char*, DType> files[] = {
      {"little_f4.npy", f32}, {"little_f8.npy", f64}, {"little_f2.npy", f16},    {"little_i8.npy", i64},
      {"bytes_u1.npy", u8},   {"big_f4.npy", f32},    {"bytes_b1.npy", boolean}, {"little_V2.npy", bf16},
      {"fortran.npy", i64},   {"version2.npy", i64}};
  for (const auto& [name, dtype] : files) {
    SCOPED_TRACE(name);
    const Tensor t = load_npy(of_numpy / name);
    EXPECT_EQ(t.dtype(), dtype);
    EXPECT_EQ(t.shape(), (Shape{2, 3}));
    EXPECT_EQ(t.strides(), std::string(name) == "fortran.npy" ? Shape({1, 2}) : Shape({3, 1}));
    const Doubles truth{0, 1, 1, 1, 1, 1}, numbers{0, 1, 2, 3, 4, 5};
    EXPECT_EQ(t.to(f64).to_vector<double>(), dtype == boolean ? truth : numbers);
    const std::string plain(name);
    if (!plain.starts_with("little") && !plain.starts_with("bytes")) continue;
    save_npy(folder / "t.npy", t);
    EXPECT_EQ(read_bytes(folder / "t.npy"), read_bytes(of_numpy / name));
  }
  EXPECT_EQ(load_npy(of_numpy / "scalar.npy").item(), 1);
  EXPECT_EQ(load_npy(of_numpy / "empty.npy").shape(), (Shape{3, 0, 2}));
}

TEST(Npz, ArchivesOfNumpy) {
  const auto stored = load_npz(of_numpy / "stored.npz"), described = load_npz(of_numpy / "described.npz");
  EXPECT_EQ(stored.at("a").to_vector<float>(), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(stored.at("b").to_vector<bool>(), (Bools{true, true, true}));
  EXPECT_EQ(described.at("a").to_vector<int64_t>(), (Ints{0, 1, 2, 3, 4, 5}));
  try {
    const auto deflated = load_npz(of_numpy / "deflated.npz");
    EXPECT_EQ(deflated.at("a").to_vector<float>(), Floats(100, 0));
    EXPECT_EQ(deflated.at("b").to_vector<int64_t>(), (Ints{0, 1, 2, 3, 4, 5}));
    const TemporaryFolder folder;
    const std::string numbers(100'000, '\1');  // more than is read at once
    write_bytes(folder / "t.npz",
                archive({{"a.npy", array("'|u1'", "(100000,)", numbers)}}, {.deflated = true}));
    EXPECT_EQ(load_npz(folder / "t.npz").at("a").sum().item<int64_t>(), 100'000);
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("this build of voxgrad has no zlib"), std::string::npos)
        << error.what();
  }
}

TEST(Npy, BigEndianNumbersAreConverted) {
  const TemporaryFolder folder;
  const auto load = [&](const std::string& descr, const std::string& data) {
    write_bytes(folder / "t.npy", array(descr, "(2,)", data));
    return load_npy(folder / "t.npy").to(f64).to_vector<double>();
  };
  const Doubles expected{1.5, -2};
  EXPECT_EQ(load("'>f4'", std::string("\x3f\xc0\0\0\xc0\0\0\0", 8)), expected);
  EXPECT_EQ(load("'>f8'", std::string("\x3f\xf8\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0", 16)), expected);
  EXPECT_EQ(load("'>f2'", std::string("\x3e\0\xc0\0", 4)), expected);
  EXPECT_EQ(load("'>i8'", std::string("\0\0\0\0\0\0\x01\x02\xff\xff\xff\xff\xff\xff\xff\xfe", 16)),
            (Doubles{258, -2}));
}

TEST(Npy, AllSpellingsOfTheHeader) {
  const TemporaryFolder folder;
  const std::string data = bytes_of<float>({1, 2});
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  const std::string versions[] = {
      std::string("\x93NUMPY\x02\x00", 8) + number(header.size(), 4) + header + data,
      std::string("\x93NUMPY\x03\x00", 8) + number(header.size(), 4) + header + data,
      file(R"({"shape":(2,),"fortran_order":False,"descr":"<f4"})", data),
      file("  { 'fortran_order' :False,\n'descr': '<f4'\t, 'shape': ( 2 , ) }   \n", data),
  };
  for (const std::string& bytes : versions) {
    write_bytes(folder / "t.npy", bytes);
    EXPECT_EQ(load_npy(folder / "t.npy").to_vector<float>(), (Floats{1, 2})) << bytes;
  }
}

struct Case {
  std::string bytes, reason;
};

/// Expects that load(path) refuses each of the files with its reason.
template <class Load>
void expect_refusals(const char* function, Load load, const std::vector<Case>& cases) {
  const TemporaryFolder folder;
  const std::string path = folder / "t";
  for (const auto& [bytes, reason] : cases) {
    const std::string message = refusal_of_file<IoError>(load, path, bytes);
    EXPECT_TRUE(has_parts(message, {reason})) << bytes << "\n" << message << "\n" << reason;
    EXPECT_EQ(message.rfind(str(function, ": ", path, ": "), 0), 0u) << message;
  }
}

TEST(Npy, CorruptFilesAreRefusedWithAReason) {
  const std::string two = bytes_of<float>({1, 2}), start = golden.substr(0, 8);
  const std::string valid = "'descr': '<f4', 'fortran_order': False, 'shape': (2,)";
  std::vector<Case> cases = {
      {"", "the header must end within the file, got 0 bytes where 8"},
      {"\x93NUMPY", "the header must end within the file"},
      {"PK\x03\x04 and so on", "starts with \\x93NUMPY"},
      {std::string("\x93NUMPY\x00\x00", 8) + golden.substr(8),
       "versions 1.0, 2.0 and 3.0 are known, got 0.0"},
      {std::string("\x93NUMPY\x04\x00", 8) + golden.substr(8), "got 4.0"},
      {std::string("\x93NUMPY\x01\x01", 8) + golden.substr(8), "got 1.1"},
      {std::string("\x93NUMPY\xff\xff", 8) + golden.substr(8), "got 255.255"},
      {start + "\xff\xff{", "the header must end within the file, got 1 bytes where 65535"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12) + two, "at most 65535 bytes, got 4294967295"},
      {file(""), "the header is a dictionary"},
      {file("[]"), "the header is a dictionary, got '[]'"},
      {file("{"), "a key of the header is a text"},
      {file("{}"), "the header has descr, fortran_order and shape, got '0 of them'"},
      {file("{,}"), "a key of the header is a text, got ',}'"},
      {file("{" + valid, two), "a ',' or '}' follows each value"},
      {file("{" + valid + "} x", two), "only blanks follow the dictionary, got 'x'"},
      {file("{" + valid + "}" + std::string(1, '\0'), two), "only blanks follow"},
      {file("{" + valid + ", 'more': 1}", two), "the keys of the header are descr, fortran_order and shape"},
      {file("{" + valid + ", 'descr': '<f8'}", two), "no key of the header comes twice, got 'descr'"},
      {file("{'descr' '<f4'}"), "a ':' follows each key"},
      {file("{'descr: 1}"), "a key of the header is a text"},
      {file("{descr: 1}"), "a key of the header is a text, got 'descr"},
      {file("{'descr': '<f4', 'shape': (2,)}", two), "got '2 of them'"},
      {array("[('x', '<f4')]", "(2,)", two), "records of several dtypes are not supported"},
      {array("''", "(2,)", two), "descr is <f4, <f8,"},
      {array("'f4'", "(2,)", two), "descr is <f4, <f8"},
      {array("'=f4'", "(2,)", two), "got '=f4'"},
      {array("'|f4'", "(2,)", two), "got '|f4'"},
      {array("'<u4'", "(2,)", two), "with >, got '<u4'"},
      {array("'<u8'", "(1,)", two), "got '<u8'"},
      {array("'<c8'", "(1,)", two), "got '<c8'"},
      {array("'|O'", "(1,)", two), "got '|O'"},
      {array("'<U2'", "(1,)", two), "got '<U2'"},
      {array("'>V2'", "(4,)", two), "got '>V2'"},
      {array("'<f4'", "(2,)", two, "0"), "fortran_order is True or False"},
      {array("'<f4'", "2", two), "shape is a tuple, got '2, }"},
      {array("'<f4'", "[2]", two), "shape is a tuple"},
      {array("'<f4'", "(2)", two), "shape is a tuple, got 'a number in parentheses'"},
      {array("'<f4'", "(,)", two), "sizes are whole numbers"},
      {array("'<f4'", "(2 1)", two), "a ',' or ')' follows each size"},
      {array("'<f4'", "(2,", two), "sizes are whole numbers"},
      {array("'<f4'", "(-2,)", two), "sizes are whole numbers from 0 to 2^63 - 1, got '-2"},
      {array("'<f4'", "(+2,)", two), "sizes are whole numbers"},
      {array("'<f4'", "(2.0,)", two), "a ',' or ')' follows each size, got '.0"},
      {array("'<f4'", "(2L,)", two), "a ',' or ')' follows each size"},
      {array("'<f4'", "(True,)", two), "sizes are whole numbers"},
      {array("'<f4'", "(9223372036854775808,)", two), "sizes are whole numbers from 0 to 2^63 - 1"},
      {array("'<f4'", "(9223372036854775807,)", two), "overflow 64 bits"},
      {array("'<f4'", "(4294967296, 4294967296)", two), "overflow 64 bits"},
      {array("'<f4'", "(4294967296, 4294967296, 0)", ""), "overflow 64 bits"},
      {array("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 1, 2)", two), "at most 8 dimensions"},
      {array("'<f4'", "(1099511627776,)", two), "are 4398046511104 bytes, got 8"},
      {array("'<f4'", "(3,)", two), "the elements of shape (3,) of f32 are 12 bytes, got 8"},
      {array("'<f4'", "(1,)", two), "are 4 bytes, got 8"},
      {array("'|b1'", "(2,)", "\x01\x02"), "elements of |b1 are 0 or 1, got 2"},
  };
  for (size_t size = 0; size < golden.size(); ++size) cases.push_back({golden.substr(0, size), "got "});
  expect_refusals(
      "load_npy", [](const auto& path) { load_npy(path); }, cases);
}

TEST(Npy, WhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_ERRORS(IoError, load_npy(folder / "missing.npy"), load_npy(folder.path()), load_npz(folder.path()));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(load_npy(folder / "pipe"), IoError);  // and does not wait for a writer
  EXPECT_THROW(save_npy(folder / "pipe", ones({1})), IoError);
  EXPECT_REFUSED(IoError, save_npy(folder.path(), ones({1})), "save_npy: ");
  EXPECT_THROW(save_npy(folder / "missing/t.npy", ones({1})), IoError);
  EXPECT_THROW(save_npy(folder / "t.npy", Tensor()), ValueError);
  EXPECT_FALSE(std::filesystem::exists(folder / "t.npy"));
}

TEST_P(NpyTest, ArchivesOfStoredMembers) {
  const std::string ints = array("'<i8'", "()", bytes_of<int64_t>({7}));
  write_bytes(folder_ / "t.npz", archive({{"a.npy", golden}, {"layer/b.npy", ints}}));
  const auto arrays = load_npz(folder_ / "t.npz", device());
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays.at("a").to_vector<float>(), (Floats{1.5, -2}));
  EXPECT_EQ(arrays.at("layer/b").item<int64_t>(), 7);
  EXPECT_EQ(arrays.at("a").device(), device());
  write_bytes(folder_ / "t.npz", archive({}));
  EXPECT_TRUE(load_npz(folder_ / "t.npz").empty());
  write_bytes(folder_ / "t.npz", archive({{"a.npy", golden}}, {.comment = std::string(60000, 'c')}));
  EXPECT_EQ(load_npz(folder_ / "t.npz").size(), 1u);
  write_bytes(folder_ / "t.npz", archive({{"a.npy", golden}, {"b.npy", ints}}, {.zip64 = true}));
  EXPECT_EQ(load_npz(folder_ / "t.npz").at("b").item<int64_t>(), 7);
}

TEST(Npz, CorruptArchivesAreRefusedWithAReason) {
  const std::string good = archive({{"a.npy", golden}}),
                    zip64 = archive({{"a.npy", golden}}, {.zip64 = true});
  const auto changed = [](std::string bytes, size_t at, const std::string& to) {
    return bytes.replace(at, to.size(), to);
  };
  const size_t entry = good.find("PK\x01\x02"), end = good.find("PK\x05\x06"),
               end64 = zip64.find("PK\x06\x06"), entry64 = zip64.find("PK\x01\x02");
  const auto named = [&](const std::string& name) { return archive({{name, golden}}); };
  std::vector<Case> cases = {
      {"", "a zip archive ends with its directory"},
      {golden, "a zip archive ends with its directory"},
      {good + "x", "a zip archive ends with its directory"},
      {changed(good, end + 16, "\xff\xff\xff\x7f"), "every record lies within the archive"},
      {changed(good, end + 12, "\xff\xff\xff\x7f"), "every record lies within the archive"},
      {changed(good, end + 10, "\x02"), "an entry for every member, got 1 entries for 2 members"},
      {changed(good, end + 10, "\xff\xff"), "an entry for every member"},
      {changed(good, end + 4, "\x01"), "an archive is one file"},
      {changed(good, entry, "PK\x01\x03"), "the directory has an entry for every member"},
      {changed(good, entry + 8, "\x01"), "members are not encrypted, got 'a.npy'"},
      {changed(good, entry + 10, "\x0c"), "stored or deflated (methods 0 and 8), got method 12 for 'a.npy'"},
      {changed(good, entry + 16, "????"), "the checksum is wrong"},
      {changed(good, entry + 20, "\xff\xff\xff\x7f"), "every member lies within the archive"},
      {changed(good, entry + 24, "\x01\x01"), "the sizes of a member fit each other"},
      {changed(good, entry + 28, "\xff\xff"), "entries lie within the directory"},
      {changed(good, entry + 42, "\x01"), "the directory leads to members"},
      {changed(good, entry + 42, "\xff\xff\xff\x7f"), "every record lies within the archive"},
      {changed(good, 26, "\xff\xff\xff\xff"), "every member lies within the archive"},
      {changed(good, 30 + 5, "x"), "starts with \\x93NUMPY"},
      {changed(good, entry - 1, "x"), "the checksum is wrong"},
      {archive({{"a.npy", golden + "x"}}), "are 8 bytes, got 9"},
      {archive({{"a.npy", golden}, {"a.npy", golden}}), "no name of a member comes twice, got 'a.npy'"},
      {archive({{"a.npy", golden}, {"b.npy", golden}}, {.overlap = true}), "members do not overlap"},
      {named(""), "names of members are relative"},
      {named("/etc/a.npy"), "names of members are relative and without '..' or '\\', got '/etc/a.npy'"},
      {named("../a.npy"), "got '../a.npy'"},
      {named("a/../../b.npy"), "without '..'"},
      {named("..\\a.npy"), "without '..' or '\\'"},
      {named(std::string("a\0.npy", 6)), "names of members are relative"},
      {named("a.txt"), "member 'a.txt': an .npz file holds .npy files only"},
      {changed(zip64, end64, "PK\x06\x08"), "a zip64 locator leads to a zip64 end"},
      {changed(zip64, end64 + 48, std::string(8, '\xff')), "every record lies within the archive"},
      {changed(zip64, end64 + 32, std::string(8, '\xff')), "an entry for every member"},
      {changed(zip64, entry64 + 46 + 5 + 2, "\x07"), "has the numbers that its record lacks"},
      {changed(zip64, entry64 + 46 + 5 + 2, "\xff"), "extra fields lie within their record"},
      {changed(zip64, entry64 + 46 + 5 + 4, std::string(8, '\xff')), "the sizes of a member fit each other"},
      {changed(zip64, entry64 + 46 + 5 + 12, std::string(8, '\xff')), "every member lies within the archive"},
      {changed(zip64, entry64 + 46 + 5 + 20, std::string(8, '\xff')), "every record lies within the archive"},
  };
  for (size_t size = 0; size < good.size(); ++size) cases.push_back({good.substr(0, size), ""});
  expect_refusals(
      "load_npz", [](const auto& path) { load_npz(path); }, cases);
}

}  // namespace
}  // namespace vox
