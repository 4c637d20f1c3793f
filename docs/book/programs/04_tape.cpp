// 04: the tape. Numbers replace a sort of the graph, and nothing recurses.

#include <cmath>
#include <iostream>

#include <voxgrad/voxgrad.h>
#include <voxgrad/watch/watch.h>

int main(int argc, char**) {
  vox::Tensor x = vox::full({2}, 1).set_requires_grad(true).set_name("x");
  vox::Tensor loss;
  {
    const vox::Watch watch;
    const vox::Tensor y = x * 3, growth = vox::exp(y), square = y * y;
    loss = (square + growth).sum();
    std::cout << vox::tape(loss) << "\n";
    if (argc > 1) std::cerr << vox::tape_dot(loss);  // for Graphviz: dot -Tsvg
    loss.backward();
    std::cout << "the engine ran";
    for (const vox::Recording::Event& event : watch.recording().events) {
      if (event.kind == vox::Recording::Kind::step) std::cout << "  " << watch.recording().label(event.node);
    }
    std::cout << "\n\n";
  }

  // 30 nodes with 2^30 paths from the last to the first. The engine runs each node once.
  vox::Tensor one = vox::full({}, 1).set_requires_grad(true), sum = one;
  for (int i = 0; i < 30; ++i) sum = sum + sum;
  sum.backward();
  std::cout << "2^30 paths: gradient 2^" << std::log2(one.grad().item()) << "\n";

  // A chain of 200,000 nodes. A recursive walk would need a stack frame for each of them.
  vox::Tensor start = vox::full({}, 0).set_requires_grad(true), end = start;
  for (int i = 0; i < 200000; ++i) end = end + 1;
  end.backward();
  std::cout << "200,000 nodes: value " << end.item() << ", gradient " << start.grad().item() << "\n";
}
