// voxgrad_nnunet train: the loss against nnU-Net's own (tests/nnunet/loss.py recorded it), and whole runs on
// small volumes, with the plans of tests/data/nnunet.
#include <voxgrad/image/image.h>

#include "architectures.h"
#include "predict.h"
#include "sample.h"
#include "supervision.h"
#include "tests/support/test.h"
#include "train.h"

namespace nnunet {
namespace {

using std::filesystem::path;
using vox::Tensor;

path recorded(const std::string& name) { return path(vox::testing::data_dir) / "nnunet" / name; }

TEST(NnunetLoss, IsNnunetsWithItsGradients) {
  vox::nn::StateDict record = vox::nn::load(recorded("loss.safetensors")).tensors;
  const Labels classes{.foreground = {1, 2}, .heads = 3},
      ignore{.foreground = {1, 2}, .ignore = 3, .heads = 3},
      regions{.foreground = {1, 2}, .region_order = {1, 2}, .regions = {{1, 2}, {2}}, .heads = 2};
  for (const auto& [name, labels] : {std::pair("classes", classes), {"regions", regions}, {"ignore", ignore}})
    for (const int batch_dice : {0, 1}) {
      const std::string key = vox::str(name, ".", batch_dice, ".");
      std::vector<Tensor> logits;
      for (int i = 0; i < 4; ++i) logits.push_back(record.at(vox::str(key, "logits", i)).set_requires_grad());
      const Tensor loss = deep_loss(labels, batch_dice == 1, logits, record.at(key + "label").to(vox::i64));
      EXPECT_NEAR(loss.item(), record.at(key + "loss").item(), 1e-6) << key;
      loss.backward();
      for (size_t i = 0; i < 3; ++i) {
        const Tensor expected = record.at(vox::str(key, "grad", i));
        EXPECT_LT(vox::abs(logits[i].grad() - expected).max().item(), 1e-6 * vox::abs(expected).max().item());
      }
      EXPECT_FALSE(logits[3].grad().defined()) << "the coarsest has weight 0";
    }
}

TEST(NnunetLoss, WithoutAnAnnotatedVoxelIsThatOfNothing) {
  const Labels ignore{.foreground = {1}, .ignore = 2, .heads = 2};
  const Tensor loss =
      segmentation_loss(ignore, false, vox::randn({1, 2, 2, 2, 2}), vox::full({1, 2, 2, 2}, 2).to(vox::i64));
  EXPECT_EQ(loss.item(), -1);  // Dice of nothing is 1
}

TEST(NnunetMemory, TheTapeKeepsTheInputsOfConvolutionsAndNormsAlone) {
  const Architecture a{
      .features = {8, 8}, .blocks = {2, 2}, .decoder_convs = {2}, .kernel_sizes = {3, 3}, .strides = {1, 2}};
  for (const char* precision : {"f32", "bf16"}) {
    const Precision guard(precision);
    UNet network(a, 1, 3);
    const Tensor x = vox::randn({1, 1, 32, 32, 32});
    network(x);  // casts the weights
    const int64_t before = vox::memory_stats().in_use;
    const Tensor logits = network(x);
    // In tensors of 8 channels at full size: encoder 4 + 4 / 8, cat 2, decoder 4, logits 3 / 8.
    const auto bytes = static_cast<double>(vox::size_of(logits.dtype()) * 8 * 32 * 32 * 32);
    const double cast = logits.dtype() == vox::bf16 ? 1. / 8 : 0;  // of x
    EXPECT_NEAR(static_cast<double>(vox::memory_stats().in_use - before) / bytes, 10.875 + cast, 0.01);
  }
}

Volume numbered(int64_t d, int64_t h, int64_t w) {
  Tensor label = vox::zeros({d, h, w}, {vox::i64});
  label[d - 1][0].select(0, 0).fill_(2);
  return make_volume(vox::arange(1, d * h * w + 1, 1).to(vox::f32).reshape({1, d, h, w}), label,
                     {.foreground = {1, 2}, .heads = 3});
}

TEST(NnunetBox, HasTheForegroundAndPadsWhatIsTooSmall) {
  const Volume volume = numbered(6, 5, 2);
  ASSERT_EQ(volume.voxels, (std::vector<std::vector<int64_t>>{{50}}));
  vox::Generator random(3);
  std::set<float> corners;
  for (int i = 0; i < 30; ++i) {
    const vox::data::Sample box = random_box(volume, {3, 3, 4}, 0, i % 2 == 1, random);
    ASSERT_EQ(box[0].shape(), (vox::Shape{1, 3, 3, 4}));
    ASSERT_EQ(box[1].shape(), (vox::Shape{3, 3, 4}));
    const Tensor inside = vox::ne(box[1], Volume::kOutside);
    EXPECT_EQ(inside.to(vox::f32).sum().item(), 3 * 3 * 2);
    EXPECT_TRUE(vox::eq(inside, vox::gt(box[0][0], 0)).to(vox::f32).min().item() == 1) << "zeros outside";
    if (i % 2 == 1)
      EXPECT_EQ(vox::eq(box[1], 2).to(vox::f32).sum().item(), 1);
    else
      corners.insert(box[0][0][0][0].select(0, 1).item<float>());
  }
  EXPECT_GT(corners.size(), 4u);
  const vox::data::Sample wide = random_box(volume, {6, 5, 2}, {2, 0, 0}, false, random);
  EXPECT_EQ(wide[1].shape(), (vox::Shape{6, 5, 2}));
}

TEST(NnunetAugmentation, KeepsShapesLabelsAndTheSeedDecides) {
  for (const char* name : {"iso", "aniso", "flat"}) {
    const Model model = read_plans(recorded(name) / "plans.json", recorded(name) / "dataset.json",
                                   std::string(name) == "flat" ? "2d" : "3d_fullres");
    const auto channels = static_cast<int64_t>(model.channels.size());
    Tensor label = vox::zeros({16, 30, 30}, {vox::i64});
    label.slice(0, 4, 10).slice(1, 8, 20).slice(2, 8, 20).fill_(1);
    label[0].fill_(-1);
    const Volume volume = make_volume(vox::randn({channels, 16, 30, 30}), label, model.labels);
    const Augmentation augmentation(model);
    const vox::Shape patch{model.patch.d, model.patch.h, model.patch.w};
    for (uint64_t seed = 0; seed < 40; ++seed) {
      vox::Generator random(seed), again(seed);
      const vox::data::Sample sample = augmentation.patch(volume, true, random);
      ASSERT_EQ(sample[1].shape(), patch);
      ASSERT_EQ(sample[0].shape(), (vox::Shape{channels, patch[0], patch[1], patch[2]}));
      EXPECT_LE(sample[1].to(vox::f32).max().item(), 1);
      EXPECT_TRUE(std::isfinite(sample[0].sum().item()));
      EXPECT_EQ(sample[0].to_vector<float>(), augmentation.patch(volume, true, again)[0].to_vector<float>());
    }
  }
}

class NnunetTrain : public testing::TestWithParam<const char*> {
 protected:
  // A data set of bright balls with a brighter box inside, 6 cases.
  explicit NnunetTrain(const std::string& name = GetParam()) {
    for (const char* part : {"imagesTr", "labelsTr"}) std::filesystem::create_directories(folder / part);
    std::filesystem::copy(recorded(name) / "dataset.json", folder / "dataset.json");
    const int64_t channels = name == "aniso" ? 2 : 1;
    vox::manual_seed(5);
    for (int i = 0; i < 6; ++i) {
      Tensor label = vox::zeros({16, 30, 28}, {vox::u8});
      label.slice(0, 3 + i % 3, 12).slice(1, 6, 20 + i).slice(2, 8, 22).fill_(1);
      label.slice(0, 6, 10).slice(1, 10, 16).slice(2, 11 + i, 17 + i).fill_(2);
      vox::Image image{.data = label, .spacing = {name == "aniso" ? 3.3 : 1.0, 1, 1}};
      vox::write_image(folder / "labelsTr" / vox::str("case", i, ".nii.gz"), image);
      for (int64_t c = 0; c < channels; ++c) {
        image.data = 100 + 50 * label.to(vox::f32) + 8 * vox::randn(label.shape());
        vox::write_image(folder / "imagesTr" / vox::str("case", i, "_000", c, ".nii.gz"), image);
      }
    }
    options.data = folder, options.output = folder / "model", options.plans = recorded(name) / "plans.json";
    if (name == "flat") options.configuration = "2d";
    options.epochs = 3, options.iterations = 3, options.validation_iterations = 2;
  }
  TrainResult run() {
    return train(options, [](const std::string&) {});
  }

  vox::testing::TemporaryFolder temporary;
  path folder = temporary.path();
  TrainOptions options;
};

TEST_P(NnunetTrain, LowersTheLossAndPredictReadsTheModel) {
  options.iterations = 40;
  const TrainResult result = run();
  ASSERT_EQ(result.loss.size(), 3u);
  EXPECT_LT(result.loss[2], result.loss[0] - 0.05);
  EXPECT_GT(result.validation_dice, 0.1);
  const Model model = read_model(options.output);
  EXPECT_EQ(model.mirrored_axes.size(), model.is_2d() ? 2u : 3u);
  predict_folder(model, folder / "imagesTr", folder / "masks", {}, {}, [](auto&) {});
  for (const char* name : {"case0.nii.gz", "case5.nii.gz"}) {  // the validation cases
    const Tensor mask = vox::read_image(folder / "masks" / name).data;
    EXPECT_EQ(mask.to_vector<uint8_t>(),
              vox::read_image(options.output / "fold_0/validation" / name).data.to_vector<uint8_t>());
    EXPECT_GT(mask.to(vox::f32).max().item(), 0);
  }
  EXPECT_TRUE(exists(options.output / "fold_0/progress.csv"));
}

TEST_P(NnunetTrain, AResumedRunGivesTheSameBits) {
  const TrainResult whole = run();
  const auto file = [&] {
    return vox::nn::load(options.output / "fold_0/checkpoint_final.safetensors").tensors;
  };
  const vox::nn::StateDict unbroken = file();
  std::filesystem::remove_all(options.output);
  options.stop_after = 1, options.workers = 3;
  EXPECT_TRUE(std::isnan(run().validation_dice));
  EXPECT_FALSE(exists(options.output / "fold_0/checkpoint_final.safetensors"));
  options.stop_after = 0, options.resume = true;
  const TrainResult resumed = run();
  EXPECT_EQ(resumed.loss, whole.loss);
  EXPECT_EQ(resumed.dice, whole.dice);
  EXPECT_EQ(resumed.validation_dice, whole.validation_dice);
  const vox::nn::StateDict continued = file();
  ASSERT_EQ(continued.size(), unbroken.size());
  for (const auto& [name, tensor] : unbroken)
    EXPECT_EQ(continued.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
}

INSTANTIATE_TEST_SUITE_P(Plans, NnunetTrain, testing::Values("iso", "aniso", "flat"),
                         [](const auto& info) { return std::string(info.param); });

class NnunetTrainErrors : public NnunetTrain {
 protected:
  NnunetTrainErrors() : NnunetTrain("iso") {}
};

// What the run says; it leaves no model folder.
#define EXPECT_SAYS(part)                      \
  EXPECT_REFUSED(std::exception, run(), part); \
  EXPECT_FALSE(exists(options.output))

TEST_F(NnunetTrainErrors, NameWhatIsMissingOrDoesNotFit) {
  const path label = folder / "labelsTr/case3.nii.gz", scan = folder / "imagesTr/case3_0000.nii.gz";
  const vox::Image good = vox::read_image(label);
  std::filesystem::remove(label);
  EXPECT_SAYS("case case3 has no labels");
  vox::testing::write_bytes(label, "not a scan");
  EXPECT_SAYS("case3.nii.gz");
  vox::Image other = good;
  for (const auto& [value, says] : {std::pair(7.0, "label 7; dataset.json allows 0, 1, 2"),
                                    std::pair(-1.0, "label -1;"), std::pair(0.5, "label 0.5;")}) {
    other.data = good.data.to(vox::f32);
    other.data[8][8].select(0, 8).fill_(value);
    vox::write_image(label, other);
    EXPECT_SAYS("case3.nii.gz: a voxel has " + std::string(says));
  }
  const auto refused = [&](auto change) {
    other = good;
    change(other);
    vox::write_image(label, other);
    EXPECT_SAYS("case3.nii.gz: the labels have another spacing, origin or direction");
  };
  refused([](vox::Image& image) { image.spacing[0] = 2; });
  refused([](vox::Image& image) { image.origin[1] = 5; });
  refused([](vox::Image& image) { std::swap(image.direction[0], image.direction[2]); });
  other = good;
  other.data = good.data.slice(0, 1).contiguous();
  vox::write_image(label, other);
  EXPECT_SAYS("case3.nii.gz: the labels have shape");
  vox::write_image(label, good);
  std::filesystem::copy(scan, folder / "imagesTr/case3_0001.nii.gz");
  EXPECT_SAYS("case3 has 2 channels; the model needs 1");
}

TEST_F(NnunetTrainErrors, AFoldWithACheckpointIsNotOverwritten) {
  options.epochs = options.iterations = options.validation_iterations = options.stop_after = 1;
  run();
  EXPECT_REFUSED(ModelError, run(), "fold_0 has a trained model: --resume goes on, --overwrite begins anew");
  options.overwrite = true;
  EXPECT_EQ(run().loss.size(), 1u);
}

TEST_F(NnunetTrainErrors, NameTheOptionOrThePlan) {
  options.resume = true;
  EXPECT_SAYS("to resume from");
  options.resume = false, options.fold = "7";
  EXPECT_SAYS("from 0 to 4");
  options.fold = "x";
  EXPECT_SAYS("'all'");
  vox::testing::write_bytes(folder / "splits_final.json", R"([{"train": ["case1"], "val": ["nobody"]}])");
  options.fold = "0";
  EXPECT_SAYS("names case nobody");
  options.configuration = "3d_lowres";
  EXPECT_SAYS("3d_lowres");
  options.configuration = "3d_fullres";
  vox::testing::write_bytes(folder / "dataset.json",
                            R"({"channel_names": {"0": "CT"}, "file_ending": ".nii.gz",
      "labels": {"background": 0, "both": [1, 2], "ignore": 300}, "regions_class_order": [1]})");
  EXPECT_SAYS("label 300; labels for training are below 255");
  options.plans = folder / "plans.json";
  EXPECT_SAYS("cannot read");
  std::filesystem::remove_all(folder / "labelsTr");
  EXPECT_SAYS("labelsTr");
}

}  // namespace
}  // namespace nnunet
