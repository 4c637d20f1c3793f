// 07: watching a backward. You learn to find out why the gradient of one leaf is NaN, of another zero, and
// why a third has none.
//
// The program writes out/07_watch.html (or the file that you name), a page that steps through the run.

#include <filesystem>
#include <iostream>

#include <voxgrad/voxgrad.h>
#include <voxgrad/watch/watch.h>

int main(int argc, char** argv) {
  const vox::Watch watch;  // from here on, this thread's tape is recorded

  const auto leaf = [](std::vector<float> values, const char* name) {
    return vox::from_vector(values, {3}).set_requires_grad(true).set_name(name);
  };
  const vox::Tensor x = leaf({0, 1, 4}, "x"), w = leaf({-1, -2, -3}, "w"), b = leaf({1, 1, 1}, "b");

  vox::Tensor root = vox::sqrt(x * x);  // the derivative of sqrt at 0 is infinite, and infinity * 0 is NaN
  vox::Tensor gate = vox::relu(w);      // w is negative everywhere: the derivative is zero
  vox::Tensor scale = vox::exp(b);
  vox::Tensor loss = (root * scale.detach() + gate).sum();  // detach() hides b from the tape
  root.set_name("root");
  gate.set_name("gate");
  loss.set_name("loss");
  loss.backward();

  std::cout << watch.recording() << "\n";
  for (const vox::Tensor& t : {x, w, b}) std::cout << watch.recording().why(t) << "\n\n";

  const std::filesystem::path page = argc > 1 ? argv[1] : "out/07_watch.html";
  if (page.has_parent_path()) std::filesystem::create_directories(page.parent_path());
  vox::write_html(watch.recording(), page);
  std::cout << "Open " << page.string() << " in a browser; the arrow keys step.\n";
  return b.grad().defined() ? 1 : 0;
}
