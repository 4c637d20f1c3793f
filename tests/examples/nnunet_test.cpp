// voxgrad_nnunet against nnU-Net itself: tests/data/nnunet has small models that nnU-Net trained, a scan for
// each, and what nnU-Net computed from it, stage by stage (tests/nnunet/reference.py made them).
#include <voxgrad/image/image.h>

#include "plans.h"
#include "predict.h"
#include "preprocess.h"
#include "tests/support/test.h"

namespace nnunet {
namespace {

using std::filesystem::path;

path folder_of(const std::string& name) { return path(vox::testing::data_dir) / "nnunet" / name; }

class Nnunet : public testing::TestWithParam<const char*> {
 protected:
  Nnunet()
      : model(read_model(folder_of(GetParam()))), record(load(folder_of(GetParam()) / "record.safetensors")) {
    const std::vector<double> s = record.at("spacing").to_vector<double>();
    spacing = {s[0], s[1], s[2]};
  }
  static vox::nn::StateDict load(const path& file) { return vox::nn::load(file).tensors; }

  Model model;
  vox::nn::StateDict record;
  Spacing spacing;
};

double largest_difference(const vox::Tensor& a, const vox::Tensor& b) { return vox::abs(a - b).max().item(); }
double same_voxels(const vox::Tensor& a, const vox::Tensor& b) {
  return vox::eq(a.to(vox::f32), b.to(vox::f32)).to(vox::f64).mean().item();
}

TEST_P(Nnunet, CropsNormalisesAndResamplesAsNnunetDoes) {
  const Case scan = preprocess(model, record.at("image"), spacing);
  const std::vector<int64_t> box = record.at("box").to_vector<int64_t>();  // begin and end of each axis
  for (size_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(scan.box.begin[axis], box[2 * axis]);
    EXPECT_EQ(scan.box.end[axis], box[2 * axis + 1]);
  }
  ASSERT_EQ(scan.input.shape(), record.at("input").shape());
  const double largest = std::max(1.0, vox::abs(scan.input).max().item());
  EXPECT_LT(largest_difference(scan.input, record.at("input")), 1e-6 * largest);
}

TEST_P(Nnunet, LogitsOfWindowsFlipsAndFoldsAreNnunets) {
  const vox::Tensor logits = predict_logits(model, record.at("input"), {});
  ASSERT_EQ(logits.shape(), record.at("logits").shape());
  EXPECT_LT(largest_difference(logits, record.at("logits")), 1e-4);
  EXPECT_GT(record.at("logits").max().item() - record.at("logits").min().item(), 1);
}

TEST_P(Nnunet, LogitsBecomeNnunetsMask) {
  Case scan = preprocess(model, record.at("image"), spacing);
  const vox::Tensor mask = mask_of(model, scan, record.at("logits")), expected = record.at("mask");
  ASSERT_EQ(mask.shape(), expected.shape());
  EXPECT_GE(same_voxels(mask, expected), 0.9999);
  EXPECT_GT(expected.to(vox::f32).max().item(), 0) << "a mask without labels shows nothing";
}

TEST_P(Nnunet, MaskOfAFileIsNnunetsInTheScansGeometry) {
  const vox::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "scans");
  vox::Image scan{.data = {},
                  .spacing = spacing,
                  .origin = {-10, 4.5, 7},
                  .direction = {{{0, 0, 1}, {-1, 0, 0}, {0, 1, 0}}}};
  for (int64_t c = 0; c < record.at("image").size(0); ++c) {
    scan.data = record.at("image")[c].contiguous();
    vox::write_image(folder / "scans" / vox::str("case_000", c, ".nii.gz"), scan);
  }
  int reports = 0;
  predict_folder(model, folder / "scans", folder / "masks", {}, {}, [&](const std::string&) { ++reports; });
  EXPECT_EQ(reports, 1);
  const vox::Image mask = vox::read_image(folder / "masks/case.nii.gz");
  EXPECT_EQ(mask.direction, scan.direction);
  for (size_t axis = 0; axis < 3; ++axis) {
    EXPECT_NEAR(mask.spacing[axis], spacing[axis], 1e-6);
    EXPECT_NEAR(mask.origin[axis], scan.origin[axis], 1e-6);
  }
  EXPECT_GE(same_voxels(mask.data, record.at("mask")), 0.9999);
}

INSTANTIATE_TEST_SUITE_P(Models, Nnunet, testing::Values("iso", "aniso", "flat"),
                         [](const auto& info) { return std::string(info.param); });

TEST(NnunetCrop, HolesInsideCountAndHolesAtTheBorderDoNot) {
  vox::Tensor image = vox::zeros({1, 5, 5, 5});
  image[0].slice(0, 1, 4).slice(1, 1, 4).slice(2, 1, 4).fill_(7);
  image[0][2][2].select(0, 2).fill_(0);  // enclosed
  image[0][1][1].select(0, 1).fill_(0);  // open to the outside
  const vox::Tensor mask = nonzero_mask(image);
  EXPECT_EQ(mask.to(vox::f32).sum().item(), 26);
  EXPECT_EQ(mask[2][2].select(0, 2).item<int>(), 1);
  EXPECT_EQ(mask[1][1].select(0, 1).item<int>(), 0);
  const Box box = bounding_box(mask);
  EXPECT_EQ(box.begin, (std::array<int64_t, 3>{1, 1, 1}));
  EXPECT_EQ(box.end, (std::array<int64_t, 3>{4, 4, 4}));
  EXPECT_EQ(bounding_box(vox::zeros({2, 3, 4}, {vox::u8})).end, (std::array<int64_t, 3>{2, 3, 4}));
}

TEST(NnunetNormalise, SchemesOfHandCases) {
  const vox::Tensor x = vox::from_vector<float>({0, 2, 4, 6}, {1, 1, 4});
  const vox::Tensor mask = vox::from_vector<uint8_t>({0, 1, 1, 0}, {1, 1, 4});
  const auto run = [&](Channel channel) { return normalise(x, mask, channel).to_vector<float>(); };
  using enum Channel::Scheme;
  EXPECT_EQ(run({.scheme = none}), (std::vector<float>{0, 2, 4, 6}));
  EXPECT_EQ(run({.scheme = rescale_to_01}), (std::vector<float>{0, 2.0f / 6, 4.0f / 6, 1}));
  EXPECT_EQ(run({.scheme = ct, .mean = 3, .deviation = 2, .low = 1, .high = 5}),
            (std::vector<float>{-1, -.5, .5, 1}));
  EXPECT_EQ(run({.scheme = z_score, .use_mask = true}), (std::vector<float>{0, -1, 1, 6}));
  const float edge = 3 / std::sqrt(5.0f);
  EXPECT_FLOAT_EQ(run({.scheme = z_score})[0], -edge);
}

TEST(NnunetLabels, EachLabelIsResampledAsAMaskOfItsOwn) {
  const vox::Tensor x = vox::from_vector<int64_t>({0, 3}, {1, 1, 2});
  const auto fine = resample_labels(x, {1, 1, 4}, {1, 1, 1}, {1, 1, 0.5}, {1, 0, false}).to_vector<int64_t>();
  EXPECT_EQ(fine, (std::vector<int64_t>{0, 0, 3, 3}));
}

class NnunetErrors : public testing::Test {
 protected:
  NnunetErrors() {
    std::filesystem::copy(folder_of("iso"), folder / "model", std::filesystem::copy_options::recursive);
  }
  // Replaces `from` by `to` in plans.json, everywhere.
  void edit(const std::string& from, const std::string& to) {
    std::string text = vox::testing::read_bytes(folder / "model/plans.json");
    ASSERT_NE(text.find(from), text.npos);
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
      text.replace(at, from.size(), to);
    vox::testing::write_bytes(folder / "model/plans.json", text);
  }
  Model read(std::vector<std::string> folds = {}) { return read_model(folder / "model", folds); }
  vox::testing::TemporaryFolder folder;
};

TEST_F(NnunetErrors, AModelFolderThatIsIncomplete) {
  EXPECT_REFUSED(ModelError, read({"7"}), "fold 7 is missing");
  EXPECT_REFUSED(ModelError, read({"0", "0"}), "fold 0 is named twice");
  const path dataset = folder / "model/dataset.json";
  const std::string text = vox::testing::read_bytes(dataset);
  vox::testing::write_bytes(dataset, std::string(text).replace(text.find("\"box\": 2"), 8, "\"box\": 3"));
  EXPECT_REFUSED(ModelError, read(), "without a gap");
  vox::testing::write_bytes(dataset, text);
  for (const char* fold : {"model/fold_0", "model/fold_1"}) std::filesystem::remove_all(folder / fold);
  EXPECT_REFUSED(ModelError, read(), "convert.py");
  std::filesystem::remove(folder / "model/plans.json");
  EXPECT_REFUSED(ModelError, read(), "plans.json");
  EXPECT_REFUSED(ModelError, read_model("/no/such/folder"), "does not exist");
}

TEST_F(NnunetErrors, APlanThatIsNotOurs) {
  for (const auto& [name, wrong, says] : std::vector<std::array<std::string, 3>>{
           {"network_class_name", "\"SwinUNETR\"",
            "SwinUNETR; allowed are PlainConvUNet and ResidualEncoderUNet"},
           {"image_reader_writer", "\"NibabelIOWithReorient\"", "allowed are SimpleITKIO and NibabelIO"},
           {"n_conv_per_stage_decoder", "[1], \"attention\": true", "has the argument attention = true"},
           {"eps", "1, \"track_running_stats\": true", "norm_op_kwargs has the argument track_running_stats"},
           {"inplace", "true, \"slope\": 1", "nonlin_kwargs has the argument slope"},
           {"n_stages", "1", "n_stages must be at least 2"},
           {"patch_size", "[]", "patch_size has 0 numbers"},
           {"spacing", "[1,1,1,1]", "spacing must have 3 positive numbers, got [1,1,1,1]"}}) {
    vox::testing::write_bytes(folder / "model/plans.json",
                              vox::testing::read_bytes(folder_of("iso") / "plans.json"));
    edit("\"" + name + "\":", "\"" + name + "\": " + wrong + ", \"old\":");
    EXPECT_REFUSED(ModelError, read(), says);
  }
  edit("{", "[");
  EXPECT_REFUSED(ModelError, read(), "not as nnU-Net v2 writes it");
}

TEST_F(NnunetErrors, ScansThatDoNotFit) {
  const Model model = read();
  const auto predict = [&] {
    predict_folder(model, folder / "scans", folder / "masks", {}, {}, [](auto&) {});
  };
  EXPECT_REFUSED(ModelError, predict(), "does not exist");
  std::filesystem::create_directories(folder / "scans");
  EXPECT_REFUSED(ModelError, predict(), "NAME_0000.nii.gz");
  vox::testing::write_bytes(folder / "scans/case_0001.nii.gz", "not a scan");
  EXPECT_REFUSED(ModelError, predict(), "case lacks channel 0000");
  std::filesystem::rename(folder / "scans/case_0001.nii.gz", folder / "scans/case_0000.nii.gz");
  EXPECT_REFUSED(std::exception, predict(), "case_0000.nii.gz");
  EXPECT_TRUE(!exists(folder / "masks") || std::filesystem::is_empty(folder / "masks"));
  EXPECT_REFUSED(ModelError, preprocess(model, vox::zeros({2, 4, 4, 4}), {1, 1, 1}),
                 "2 channels; the model needs 1");
  Model second = model;
  second.is_cascade = true;
  EXPECT_REFUSED(ModelError, preprocess(second, vox::ones({1, 4, 4, 4}), {1, 1, 1}, vox::zeros({4, 4, 3})),
                 "the mask of the previous stage has shape (4,4,3), the scan (4,4,4)");
}

TEST(NnunetScans, VoxelsThatAreNotFiniteAreZero) {
  const vox::testing::TemporaryFolder folder;
  const float inf = std::numeric_limits<float>::infinity();
  vox::Image image{.data = vox::from_vector<float>({1, NAN, inf, -inf}, {1, 2, 2}), .spacing = {1, 1, 1}};
  vox::write_image(folder / "scan_0000.nii.gz", image);
  EXPECT_EQ(read_scan({"scan", {folder / "scan_0000.nii.gz"}}).data.to_vector<float>(),
            (std::vector<float>{1, 0, 0, 0}));
}

}  // namespace
}  // namespace nnunet
