#include "report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace mri {
namespace {

using Json = nlohmann::ordered_json;

void add_scores(Json& json, const ComparisonScores& scores) {
  const auto pair = [](double foreground, double whole) {
    return Json{{"foreground", foreground}, {"whole", whole}};
  };
  const RegionScores& t = scores.trilinear;
  const RegionScores& o = scores.ours;
  json["psnr_trilinear"] = pair(t.foreground.psnr, t.whole.psnr);
  json["psnr_ours"] = pair(o.foreground.psnr, o.whole.psnr);
  json["ssim_trilinear"] = pair(t.foreground.ssim, t.whole.ssim);
  json["ssim_ours"] = pair(o.foreground.ssim, o.whole.ssim);
}

}  // namespace

std::string to_json(const Report& report) {
  Json json{{"device", report.device}, {"threads", report.threads}, {"seconds", report.seconds},
            {"steps", report.steps},   {"seed", report.seed},       {"parameters", report.parameters},
            {"volume", report.volume}};
  add_scores(json, report.scores);
  if (report.unseen) {
    json["unseen"]["volume"] = report.unseen_volume;
    add_scores(json["unseen"], *report.unseen);
  }
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

std::string to_table(const ComparisonScores& scores) {
  const auto line = [](const char* name, const RegionScores& s) {
    char text[120];
    std::snprintf(text, sizeof text, "  %-10s %8.2f dB %8.4f %12.2f dB %8.4f\n", name, s.foreground.psnr,
                  s.foreground.ssim, s.whole.psnr, s.whole.ssim);
    return std::string(text);
  };
  return "             foreground: PSNR, SSIM      whole: PSNR, SSIM\n" +
         line("trilinear", scores.trilinear) + line("ours", scores.ours);
}

}  // namespace mri
