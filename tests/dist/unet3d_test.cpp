// The network and the loss of examples/05_unet3d, trained by one process and by several.
#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>

#include "loss.h"
#include "tests/support/test.h"
#include "unet.h"

namespace {

using namespace vox;
namespace dist = vox::dist;

// The whole batch has 3 patches, so the parts of two ranks differ. In f64, because training enlarges
// differences of rounding.
TEST(DistUNet3d, FiftyStepsHaveTheLossCurveOfTheWholeBatch) {
  if (dist::size() == 1) GTEST_SKIP() << "needs two ranks";
  const int64_t samples = 3, edge = 16, steps = 50;
  const auto losses = [&](int rank, int size) {
    manual_seed(5);
    unet::UNet network;
    network.to(f64);
    optim::SGD sgd(network.parameters(), {.lr = 0.05, .momentum = 0.9, .nesterov = true});
    std::optional<dist::DataParallel> parallel;
    if (size > 1) parallel.emplace(network);
    const int64_t first = samples * rank / size, last = samples * (rank + 1) / size;
    const double share = static_cast<double>(last - first) / samples;
    Generator generator(6);
    std::vector<double> curve;
    for (int64_t step = 0; step < steps; ++step) {
      const Tensor scan = rand({samples, 1, edge, edge, edge}, {.dtype = f64}, generator);
      const Tensor target = (scan.select(1, 0) * 1.4).to(i64);  // 1 above 0.71
      sgd.zero_grad();
      const Tensor scores = network(scan.slice(0, first, last));
      const Tensor t = target.slice(0, first, last);
      const Tensor p = softmax(scores, 1).select(1, 1), all = t.to(f64);
      if (size > 1) {
        const Tensor loss = cross_entropy(scores, t) + unet::dice_loss_of_all_ranks(p, all);
        parallel->backward(loss, {.share = share});
        curve.push_back(dist::all_reduce(loss.detach() * share).item<double>());
      } else {
        Tensor loss = cross_entropy(scores, t) + 1 - (2 * (p * all).sum() + 1) / (p.sum() + all.sum() + 1);
        loss.backward();
        curve.push_back(loss.item<double>());
      }
      sgd.step();
    }
    return curve;
  };
  const std::vector<double> together = losses(dist::rank(), dist::size());
  std::vector<double> alone = together;
  if (dist::rank() == 0) alone = losses(0, 1);
  ASSERT_EQ(together.size(), 50u);
  EXPECT_LT(together.back(), together.front());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-9) << "step " << i;
}

}  // namespace
