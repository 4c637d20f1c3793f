#include "show.h"

#include <cstdio>
#include <exception>

#include "files.h"

namespace mri {
namespace {

// A picture less is no reason to lose the numbers.
template <class Draw>
void try_to_draw(const std::filesystem::path& png, Draw draw) {
  try {
    draw(png);
    std::printf("wrote %s\n", png.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s was not drawn: %s\n", png.c_str(), error.what());
  }
}

// The planes that cross in the middle of the scored ones, and beside the cleft between the hemispheres.
Size view_point(const Size& size, int64_t begin, int64_t end) {
  return {(begin + end) / 2, size[1] / 2, size[2] * 45 / 100};
}

}  // namespace

void show(const Results& results, const std::filesystem::path& folder) {
  const Report& report = results.report;
  std::printf("%s, planes not trained on:\n%s", report.volume.c_str(), to_table(report.scores).c_str());
  if (report.unseen) {
    std::printf("%s, unseen:\n%s", report.unseen_volume.c_str(), to_table(*report.unseen).c_str());
  }
  write_text(folder / "metrics.json", to_json(report));

  try_to_draw(folder / "slices.png", [&](const std::filesystem::path& png) {
    const int64_t begin = 2 * results.split.slab.begin, end = 2 * results.split.slab.end;
    const SliceFigure figure{"Twice the resolution, on planes that were not trained on",
                             view_point(results.head.truth.size, begin, end), begin, end, report.scores};
    draw_slices(results.head, figure, png);
  });
  if (results.unseen) {
    try_to_draw(folder / "unseen.png", [&](const std::filesystem::path& png) {
      const Size size = results.unseen->truth.size;
      const SliceFigure figure{"Twice the resolution, of a head that was not trained on",
                               view_point(size, 0, size[0]), 0, size[0], *report.unseen};
      draw_slices(*results.unseen, figure, png);
    });
  }
  try_to_draw(folder / "curves.png", [&](const std::filesystem::path& png) {
    draw_curves(results.history, report.scores.trilinear.foreground.psnr, png);
  });
}

}  // namespace mri
