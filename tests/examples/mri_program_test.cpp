// The command line, the files written and the report.
#include <nlohmann/json.hpp>

#include "metrics.h"
#include "mri_images.h"
#include "options.h"
#include "pictures.h"
#include "tests/support/test.h"
#include "training.h"

namespace mri {
namespace {

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "mri");
  Options options;
  parse_options(static_cast<int>(arguments.size()), arguments.data(), options);
  return options;
}

TEST(MriOptions, ReadsBothSpellings) {
  const Options options = parse({"--device", "cuda", "--seed=7", "--steps", "30", "--minutes=0.5",
                                 "--phantom", "--out", "somewhere", "--threads=2", "--resume"});
  EXPECT_EQ(options.device, "cuda");
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.steps, 30);
  EXPECT_EQ(options.minutes, 0.5);
  EXPECT_TRUE(options.phantom);
  EXPECT_TRUE(options.resume);
  EXPECT_EQ(options.out, "somewhere");
  EXPECT_EQ(options.threads, 2);
}

TEST(MriOptions, RefusesWhatItDoesNotKnow) {
  EXPECT_ERRORS(UsageError, parse({"--sed", "7"}), parse({"file.nii"}), parse({"--seed"}), parse({"--seed="}),
                parse({"--seed", "-1"}), parse({"--seed", "1x"}), parse({"--seed", "18446744073709551616"}),
                parse({"--steps", "0"}), parse({"--steps", "1e3"}), parse({"--threads", "0"}),
                parse({"--minutes", "nan"}), parse({"--phantom", "--volume", "file.nii"}));
  const auto message = [](const char* option, const char* value) {
    return vox::testing::message_of<UsageError>([&] { parse({option, value}); });
  };
  EXPECT_EQ(message("--minutes", "0"), "--minutes: '0' is not a number from 0.01 to 100000");
  EXPECT_EQ(message("--threads", "9999"), "--threads: '9999' is not a number from 1 to 1024");
  EXPECT_ERRORS(UsageError, parse({"--minutes", "-2"}), parse({"--device", "gpu"}));
}

TEST(MriFiles, LeaveNothingBehindOnFailure) {
  const vox::testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "result.json";
  write_text(path, "old");
  const auto fails = [](const std::filesystem::path& temporary) {
    EXPECT_EQ(temporary.extension(), ".json");
    std::ofstream(temporary) << "half a fi";
    throw std::runtime_error("disk full");
  };
  EXPECT_THROW(write_atomically(path, fails), std::runtime_error);
  EXPECT_EQ(vox::testing::read_bytes(path), "old");
  EXPECT_EQ(folder.entries(), 1);
  EXPECT_THROW(write_text(folder / "no/such", "x"), std::runtime_error);
}

TEST(MriReport, HasTheAgreedKeys) {
  Comparison c;
  c.truth = noise({8, 10, 12}, 1);
  c.low = downsample(c.truth);
  c.trilinear = upsample_trilinear(c.low);
  c.ours = c.truth;
  Report report;
  report.device = "cpu";
  report.threads = 2;
  report.seconds = 1.5;
  report.steps = 3;
  report.seed = 4;
  report.parameters = 5;
  report.scores = score(c);
  report.unseen = score(planes(c, 0, 8));
  const auto json = nlohmann::json::parse(to_json(report));
  for (const auto* part : {&json, &json.at("unseen")}) {
    for (const char* key : {"psnr_trilinear", "psnr_ours", "ssim_trilinear", "ssim_ours"}) {
      EXPECT_TRUE(part->at(key).contains("foreground")) << key;
      EXPECT_TRUE(part->at(key).contains("whole")) << key;
    }
    EXPECT_EQ(part->at("psnr_trilinear").at("whole"), psnr(c.truth, c.trilinear));
    EXPECT_TRUE(part->at("psnr_ours").at("whole").is_null());  // infinite
    EXPECT_EQ(part->at("ssim_ours").at("whole"), 1.0);
  }
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("threads"), 2);
  EXPECT_EQ(json.at("seconds"), 1.5);
  EXPECT_EQ(json.at("steps"), 3);
  EXPECT_EQ(json.at("seed"), 4);
  EXPECT_EQ(json.at("parameters"), 5);
}

TEST(MriComparison, PlanesCutBothResolutions) {
  Comparison c;
  c.truth = noise({12, 4, 6}, 1);
  c.low = downsample(c.truth);
  c.trilinear = c.ours = c.truth;
  const Comparison slab = planes(c, 4, 6);
  EXPECT_EQ(slab.truth.size, (Size{6, 4, 6}));
  EXPECT_EQ(slab.low.size, (Size{3, 2, 3}));
  EXPECT_EQ(slab.truth.at(0, 1, 2), c.truth.at(4, 1, 2));
  EXPECT_EQ(slab.low.at(0, 1, 2), c.low.at(2, 1, 2));
}

}  // namespace
}  // namespace mri
