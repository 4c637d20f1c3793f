#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace vox::nn {

/// Tensors by name, as saved in a file: "0.weight", "0.bias", "1.running_mean", ...
using StateDict = std::map<std::string, Tensor>;

/// A layer or a whole network: a function of one tensor, with parameters (trained), buffers (not trained) and
/// children. Names and shapes are PyTorch's, so weight files can be exchanged.
///
/// A Module can be moved, not copied: two modules never share parameters by accident.
class Module {
 public:
  using Named = std::pair<std::string, Tensor>;

  Module() = default;
  virtual ~Module() = default;
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;

  virtual Tensor forward(const Tensor& input) = 0;
  Tensor operator()(const Tensor& input) { return forward(input); }

  /// Parameters (buffers) of this module and all its children, with dotted names, in order of registration. A
  /// tensor that is reached twice, as in a shared child, is listed only under its first name.
  std::vector<Named> named_parameters() const;
  std::vector<Named> named_buffers() const;
  std::vector<Tensor> parameters() const;

  /// Training mode (the default) or evaluation mode, for this module and all its children.
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  bool is_training() const { return training_; }

  /// Moves, or casts, all parameters and buffers. Handles on them stay valid, so an optimiser made before
  /// still trains them. Gradients are dropped. The dtype must be floating; integer buffers are not cast.
  Module& to(Device device);
  Module& to(DType dtype);

  void zero_grad();

  /// Gives every parameter its name in named_parameters(), for tapes, recordings and errors
  /// (Tensor::set_name).
  void name_parameters();

  /// Handles on all parameters and buffers, under all their names.
  StateDict state_dict() const;

  struct LoadResult {
    std::vector<std::string> missing;     ///< names in this module but not in the dict
    std::vector<std::string> unexpected;  ///< names in the dict but not in this module
  };
  /// Copies the dict's elements into this module's parameters and buffers, whichever devices they are on.
  /// With `strict`, throws ValueError that lists missing and unexpected names. Shapes and dtypes must always
  /// match. Checks everything before it writes anything.
  LoadResult load_state_dict(const StateDict& state, bool strict = true);

 protected:
  /// Registers `value`, and returns the handle to keep as a member. An undefined tensor (a missing bias) is
  /// returned and not registered.
  Tensor register_parameter(std::string name, Tensor value);
  Tensor register_buffer(std::string name, Tensor value);

  /// Takes over a child: `conv_ = register_module("conv", Conv3d({...}))`.
  template <class M>
  std::shared_ptr<M> register_module(std::string name, M&& module) {
    static_assert(!std::is_lvalue_reference_v<M>, "a module is moved into its parent");
    return register_module(std::move(name), std::make_shared<M>(std::move(module)));
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    add_child(std::move(name), module);
    return module;
  }

 private:
  enum class Kind { parameter, buffer };
  void collect(Kind kind, const std::string& prefix, std::vector<Named>& all) const;
  void add_child(std::string name, std::shared_ptr<Module> module);
  void check_name(const std::string& name) const;
  bool contains(const Module& other) const;
  template <class F>
  void replace_all(F f);

  std::vector<Named> parameters_;
  std::vector<Named> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  bool training_ = true;
};

}  // namespace vox::nn
