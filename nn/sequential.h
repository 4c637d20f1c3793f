#pragma once

#include <concepts>
#include <functional>
#include <memory>

#include <voxgrad/nn/module.h>

namespace vox::nn {

namespace detail {
template <class M>
concept OneTensorModule = std::derived_from<M, Module> && requires(M& module, const Tensor& x) {
  { module.forward(x) } -> std::convertible_to<Tensor>;
};
}  // namespace detail

/// A function of one tensor as a module, where one is expected.
struct Lambda final : Module {
  explicit Lambda(std::function<Tensor(const Tensor&)> f) : f(std::move(f)) {
    vox::detail::check_callable("nn::Lambda", "f", this->f);
  }
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return f(input); }
  std::function<Tensor(const Tensor&)> f;
};

/// Layers applied one after the other: `Sequential net{Conv3d({...}), ReLU(), ConvTranspose3d({...})};` The
/// children are named "0", "1", ... Use braces: C++ reads `Sequential net(ReLU(), ReLU());` as the
/// declaration of a function. A Sequential made of one Sequential alone is that one, moved; push_back() makes
/// it a child. Children may have names of their own: `Sequential net{{"conv", Conv3d({...})}, {"act",
/// ReLU()}};`
class Sequential final : public Module {
  struct Layer {
    std::string name;
    std::shared_ptr<Module> module;
    Tensor (*call)(Module&, const Tensor&);
  };

 public:
  /// A layer with its name. The layer is moved, or shared, as by push_back().
  class Named {
   public:
    template <class Child>
    Named(std::string name, Child&& layer) : layer_(make(std::move(name), std::forward<Child>(layer))) {}

   private:
    friend class Sequential;
    Layer layer_;
  };

  Sequential(std::initializer_list<Named> layers) {
    for (const Named& named : layers) append(named.layer_);
  }
  template <class... Layers>
  requires(!(std::same_as<std::remove_cvref_t<Layers>, Sequential> || ...) ||
           sizeof...(Layers) > 1) explicit Sequential(Layers&&... layers) {
    (push_back(std::forward<Layers>(layers)), ...);
  }
  Sequential(Sequential&&) = default;
  Sequential& operator=(Sequential&&) = default;

  /// Appends a layer: a module whose forward takes a Tensor and returns one, which is moved; a
  /// std::shared_ptr to one, which is shared with the caller, or a std::unique_ptr; or a function of a
  /// Tensor.
  template <class Child>
  void push_back(Child&& layer) {
    push_back(std::to_string(size()), std::forward<Child>(layer));
  }
  /// The same under a name of its own, instead of the number of layers before it.
  template <class Child>
  void push_back(std::string name, Child&& layer) {
    append(make(std::move(name), std::forward<Child>(layer)));
  }

  size_t size() const { return layers_.size(); }
  Module& operator[](size_t i) const {
    check<ValueError>(i < layers_.size(), "Sequential: layer ", i, " of ", layers_.size());
    return *layers_[i].module;
  }

  /// Sees the output of the layer of this name.
  using Tap = std::function<void(const std::string& name, const Tensor& output)>;

  void list_children(Children& children) override {
    for (const Layer& layer : layers_) children.add(layer.name, *layer.module);
  }
  Tensor operator()(const Tensor& input) { return call_with_hooks(*this, input); }
  Tensor operator()(const Tensor& input, const Tap& tap) { return call_with_hooks(*this, input, tap); }
  /// A norm and a ReLU or LeakyReLU that follows it are one pass over memory. The result is that of both
  /// layers, except that LeakyReLU rounds 16-bit elements once instead of twice. Forward hooks on one of them
  /// keep them apart; `tap` does not. It sees the output of each layer in turn, but not that of a norm whose
  /// activation is applied in the same pass.
  Tensor forward(const Tensor& input, const Tap& tap = {});

 private:
  template <class Child>
  static Layer make(std::string name, Child&& layer) {
    using M = std::remove_cvref_t<Child>;
    if constexpr (std::derived_from<M, Module>) {
      static_assert(!std::is_lvalue_reference_v<Child>,
                    "a layer is moved into its Sequential: push_back(std::move(layer))");
      if constexpr (!std::is_lvalue_reference_v<Child>)
        return of(std::move(name), std::make_shared<M>(std::move(layer)));
    } else if constexpr (requires { typename M::element_type; }) {
      return of(std::move(name), std::shared_ptr<typename M::element_type>(std::forward<Child>(layer)));
    } else {
      static_assert(
          std::is_invocable_r_v<Tensor, M&, const Tensor&>,
          "a layer of a Sequential is a module, a std::shared_ptr to one, or a function that takes a "
          "Tensor and returns one");
      if constexpr (std::is_invocable_r_v<Tensor, M&, const Tensor&>)
        return of(std::move(name), std::make_shared<Lambda>(layer));
    }
  }
  template <class M>
  static Layer of(std::string name, std::shared_ptr<M> module) {
    constexpr bool fits = detail::OneTensorModule<M>;
    detail::refuse_hidden_forward<M>();
    static_assert(fits,
                  "a layer of a Sequential needs a public forward() that takes a Tensor and returns one");
    if constexpr (fits)
      return {std::move(name), std::move(module),
              [](Module& m, const Tensor& x) -> Tensor { return static_cast<M&>(m)(x); }};
  }
  void append(Layer layer);

  std::vector<Layer> layers_;
};

/// A module of any class that maps a Tensor to a Tensor, with its parameters: what a function returns that
/// builds one of several networks. `nn::Net net = deep ? nn::Net(ResNet()) : nn::Net(UNet());` is called by
/// net(x); `net->parameters()` and others are the module's, and so are the names in a state dict.
class Net {
 public:
  template <detail::OneTensorModule M>
  Net(M network)
      : module_(std::make_unique<M>(std::move(network))),
        call_([](Module& m, const Tensor& x) -> Tensor { return static_cast<M&>(m)(x); }) {
    detail::refuse_hidden_forward<M>();
  }
  /// All but operator bool throw ValueError after a move from this.
  Tensor operator()(const Tensor& input) { return call_(module(), input); }
  Module& operator*() const { return module(); }
  Module* operator->() const { return &module(); }
  explicit operator bool() const { return module_ != nullptr; }  ///< false after a move

 private:
  Module& module() const;

  std::unique_ptr<Module> module_;
  Tensor (*call_)(Module&, const Tensor&);
};

/// input + f(input), where f is a Sequential of the layers given: `Residual{Conv3d({...}), ReLU(),
/// Conv3d({...})}`, whose children are named "body.0", "body.1", ...
struct Residual final : Module {
  template <class... Layers>
  requires(!(std::same_as<std::remove_cvref_t<Layers>, Residual> || ...) ||
           sizeof...(Layers) > 1) explicit Residual(Layers&&... layers)
      : body(std::forward<Layers>(layers)...) {}
  Sequential body;
  VOXGRAD_MODULE(body)
  /// Throws ShapeError unless f keeps the shape.
  Tensor forward(const Tensor& input);
};

}  // namespace vox::nn
