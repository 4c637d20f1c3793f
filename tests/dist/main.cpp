// Runs the tests of voxgrad::dist on as many ranks as it is started with:
//     mpirun --oversubscribe --bind-to none -n 3 build/cpu-release/tests/test_dist
#include <gtest/gtest.h>

#include <voxgrad/dist/dist.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  vox::dist::init();
  return RUN_ALL_TESTS();
}
