// A user's program that watches a backward: it links voxgrad::watch alone, which brings voxgrad::voxgrad.
#include <voxgrad/voxgrad.h>
#include <voxgrad/watch/watch.h>

#include <iostream>

#if __has_include(<voxgrad/watch/node_sources.h>) && VOXGRAD_INSTALLED
#error "a private header was installed"
#endif

int main() {
  const vox::Watch watch;
  const vox::Tensor x = vox::from_vector<float>({-1, 1}, {2}).set_requires_grad().set_name("x");
  vox::log(x).sum().backward();
  std::cout << watch.recording() << watch.recording().why(x) << "\n";
  const auto problems = watch.recording().problems();
  return problems.size() == 1 && problems[0].text == "NaN first computed here" ? 0 : 1;
}
