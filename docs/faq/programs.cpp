#include <filesystem>
#include <thread>

#include "docs/faq/answers.h"

namespace faq {

ANSWER(20, item_waits) {
  const vox::Tensor w = leaf({1, 2, 3});
  vox::Tensor total = vox::zeros({});
  for (int step = 0; step < 4; ++step) {
    const vox::Tensor loss = (w * w).mean();
    total.add_(loss.detach());  // stays on the device, so nothing waits
  }
  std::cout << "mean loss " << total.item() / 4 << "\n";  // waits once
}

int64_t nodes(const vox::Tensor& t) {
  return static_cast<int64_t>(vox::autograd::nodes_of(vox::autograd::gradient_edge(t)).size());
}

ANSWER(21, memory) {
  const vox::Tensor x = leaf({1, 2, 3});
  vox::Tensor kept = vox::zeros({}), detached = vox::zeros({});
  for (int step = 0; step < 3; ++step) {
    const vox::Tensor loss = vox::exp(x * x).sum();
    kept = kept + loss;                   // its tape leads to the tapes of all losses
    detached = detached + loss.detach();  // a number
    std::cout << "kept: " << nodes(kept) << " nodes, detached: requires grad " << std::boolalpha
              << detached.requires_grad() << "\n";
  }
  std::cout << "\none step:\n" << vox::tape(vox::exp(x * x).sum());
}

ANSWER(22, train_and_eval) {
  vox::nn::Sequential net{vox::nn::Dropout({.p = 0.5})};
  const vox::Tensor x = leaf({1, 2, 3, 4});
  net.train();
  std::cout << "train: " << net(x).detach() << "\n";
  net.eval();
  std::cout << "eval:  " << net(x).detach() << ", on the tape: " << std::boolalpha << net(x).requires_grad()
            << "\n";
}

ANSWER(23, save_and_load) {
  const auto make = [] {
    return vox::nn::Sequential{vox::nn::Conv3d({.in_channels = 1, .out_channels = 2, .kernel_size = 3}),
                               vox::nn::ReLU()};
  };
  const auto path = std::filesystem::temp_directory_path() / "voxgrad_faq.safetensors";
  const vox::nn::Sequential trained = make();
  vox::nn::save(path, trained.state_dict());

  vox::nn::Sequential restored = make();
  restored.load_state_dict(vox::nn::load(path).tensors);
  for (const auto& [name, tensor] : restored.named_parameters())
    std::cout << name << " " << tensor.shape() << "\n";
  const vox::Tensor difference = trained.parameters()[0] - restored.parameters()[0];
  std::cout << "largest difference " << vox::abs(difference).max().item() << "\n";
  std::filesystem::remove(path);
}

ANSWER(24, threads) {
  const vox::Tensor w = leaf({1, 2, 3});
  const auto work = [&w](float factor) { (factor * w).sum().backward(); };  // a tape of its own
  std::thread a(work, 2.0f), b(work, 5.0f);
  a.join();
  b.join();
  std::cout << "w.grad() = " << w.grad() << "\n";
}

ANSWER(26, fine_tuning) {
  const auto make = [](int64_t classes) {
    return vox::nn::Sequential{{"body", vox::nn::Linear({.in_features = 3, .out_features = 4})},
                               {"head", vox::nn::Linear({.in_features = 4, .out_features = classes})}};
  };
  const vox::nn::StateDict trained = make(10).state_dict();
  vox::nn::Sequential net = make(2);

  vox::nn::StateDict fitting;  // weights of the same name and shape
  for (const auto& [name, own] : net.state_dict()) {
    const auto found = trained.find(name);
    if (found != trained.end() && found->second.shape() == own.shape()) fitting.insert(*found);
  }
  for (const std::string& name : net.load_state_dict(fitting, false).missing)
    std::cout << "new: " << name << "\n";

  for (auto& [name, parameter] : net.named_parameters()) {
    if (name.starts_with("body.")) parameter.set_requires_grad(false);  // frozen
  }
  vox::optim::SGD sgd(net.parameters(), {.lr = 0.1});  // skips what is frozen
  net(vox::ones({5, 3})).sum().backward();
  sgd.step();
  const vox::nn::StateDict now = net.state_dict();
  std::cout << std::boolalpha
            << "the body is as before: " << vox::equal(now.at("body.weight"), trained.at("body.weight"))
            << "\n";

  const auto guard = vox::no_grad();
  vox::Tensor bias = now.at("head.bias");  // a handle: writing changes the network
  bias.fill_(1);
  bias.slice(0, 0, 1).fill_(-1);  // a part of it
  std::cout << "head.bias = " << bias.detach() << "\n";
}

}  // namespace faq
