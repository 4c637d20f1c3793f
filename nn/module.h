#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace vox::nn {

/// Tensors by name, as saved in a file: "0.weight", "0.bias", "1.running_mean", ...
using StateDict = std::map<std::string, Tensor>;
/// A parameter or buffer with its name.
using NamedTensor = std::pair<std::string, Tensor>;

class Module;
struct Summary;

namespace detail {
Summary summarize(Module& network, const std::function<void()>& call);

/// A member of every module. It enters its own address, and so the module's, in the table of all modules.
class ModuleAddress {
 public:
  ModuleAddress();
  ModuleAddress(ModuleAddress&&) : ModuleAddress() {}
  ModuleAddress& operator=(ModuleAddress&&) { return *this; }
  ~ModuleAddress();

  /// Whether the parameters, or the mode, of the module or of one above it were asked for or set: whoever did
  /// so knows this module.
  mutable std::atomic<bool> is_known{false};
};

/// A call of a module, on top of the calls that led to it on this thread.
class Call {
 public:
  /// Throws ValueError if the module has parameters or buffers and is not known, but one that called it is.
  explicit Call(Module& module);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// Throws `error`, which is being handled, again. Its message begins with the path to the innermost module
  /// in whose call it was thrown: "in encoder.2.conv (Conv3d): ".
  [[noreturn]] void rethrow(const Error& error);

 private:
  std::string place() const;

  Module& module_;
  Call* const outer_;
  const bool is_known_;  // this module, or one that led to it
  std::string named_;    // what a call inside this one put in front of its error
};

/// A module below another one; `path` is its dotted name from there, which ends with `name`.
struct TreeNode {
  std::string path, name;
  size_t depth;
  Module* module;
};

template <class C, class Result, class... Arguments>
C class_of_member(Result (C::*)(Arguments...));

/// Refuses an M with a forward of its own which the VOXGRAD_MODULE of a class that it is derived from does
/// not call.
template <class M>
constexpr void refuse_hidden_forward() {
  if constexpr (requires { class_of_member(&M::forward), class_of_member(&M::list_children); })
    static_assert(
        !std::is_same_v<decltype(class_of_member(&M::forward)), M> ||
            std::is_same_v<decltype(class_of_member(&M::list_children)), M>,
        "this module's class has a forward() of its own, but no line VOXGRAD_MODULE: calls would run the "
        "forward() of the class that it is derived from");
}

/// f(), as a call of `module`.
template <class F>
decltype(auto) as_call_of(Module& module, F f) {
  Call call(module);
  try {
    return f();
  } catch (const Error& error) {
    call.rethrow(error);
  }
}
}  // namespace detail

/// The members of a module that are modules, by name (see Module::list_children).
class Children {
 public:
  /// `names` are those of `members`, with commas between them; an underscore at the end of a name is left
  /// out. A member is a module; a std::optional, std::unique_ptr or std::shared_ptr of one, which is skipped
  /// if it is empty; or a std::vector or nn::ModuleList of such, whose elements are named "name.0", "name.1",
  /// ..., and "name0", "name1", ... in an nn::NumberedList.
  template <class... Members>
  void add(std::string_view names, Members&... members) {
    (add_one(take_name(names), members), ...);
  }

  /// Says that all members of `module` that are modules have been added. Any other one found later is an
  /// error.
  template <class M>
  void are_all_of(const M& module) {
    begin_ = &module;
    size_ = sizeof(M);
  }

 private:
  friend class Module;
  static std::string take_name(std::string_view& names);

  template <class Member>
  void add_one(const std::string& name, Member& member) {
    if constexpr (std::is_convertible_v<Member*, Module*>) {
      detail::refuse_hidden_forward<Member>();
      list_.emplace_back(name, &member);
    } else if constexpr (!std::is_pointer_v<Member> && requires { *member, member ? 1 : 0; }) {
      if (member) add_one(name, *member);
    } else if constexpr (requires { member.begin(), member.end(); }) {
      constexpr bool numbered = requires { Member::is_numbered; };
      size_t i = 0;
      for (auto& element : member) add_one(name + (numbered ? "" : ".") + std::to_string(i++), element);
    } else {
      static_assert(!std::is_same_v<Member, Tensor>,
                    "VOXGRAD_MODULE lists modules. A Tensor is not listed: it is a parameter or a buffer by "
                    "`Tensor w = register_parameter(\"w\", ...)` or register_buffer");
      static_assert(std::is_same_v<Member, Tensor>,
                    "VOXGRAD_MODULE lists members that are modules (publicly derived from vox::nn::Module), "
                    "or std::optional, std::unique_ptr, std::shared_ptr, std::vector or nn::ModuleList of "
                    "them");
    }
  }

  std::vector<std::pair<std::string, Module*>> list_;
  const void* begin_ = nullptr;
  size_t size_ = 0;
};

/// A layer or a whole network: a function with parameters (trained), buffers (not trained) and children,
/// which are its members:
///
///     struct Block : nn::Module {
///       nn::Conv3d a{{.in_channels = 8, .out_channels = 4, .kernel_size = 3, .padding = 1}};
///       nn::BatchNorm3d n{{.num_features = 4}};
///       Tensor gain = register_parameter("gain", ones({1}));
///       VOXGRAD_MODULE(a, n)  // all members that are modules
///       Tensor forward(const Tensor& x, const Tensor& skip) { return gain * relu(n(a(cat({x, skip}, 1)))); }
///     };
///     Block block;
///     Tensor y = block(x, skip);
///     block.state_dict();  // "gain", "a.weight", "a.bias", "n.weight", ...
///
/// `forward` takes any arguments and returns a value; it overrides nothing (no `override`). Call the module
/// itself, which calls forward and then the forward hooks. Names and shapes are PyTorch's, so weight files
/// can be exchanged.
///
/// A module can be moved, not copied: two modules never share parameters by accident.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;

  /// A class without a line VOXGRAD_MODULE(...), and a Module& to an unknown class, cannot be called.
  template <class... Inputs>
  auto operator()(Inputs&&...) {  // auto: the assertion comes before errors about the result
    static_assert(sizeof...(Inputs) > sizeof...(Inputs),
                  "this module's class has no line VOXGRAD_MODULE(its members), which makes it callable; a "
                  "nn::Module&, as eval(), to(), a pointer to nn::Module and Sequential's [] give it, has "
                  "lost its class: keep the layer under its own type, or put it into a Sequential");
  }

  // ---- Parameters, buffers and children -------------------------------------------------------------
  /// Parameters (buffers) of this module and all below, with dotted names: first its own in order of
  /// registration, then those of its children in the order of the list. A tensor that is reached twice, as in
  /// a shared child, is listed only under its first name.
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  std::vector<Tensor> parameters() const;

  /// This module, with the name "", and all below, parents first; each once.
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// Calls f once for each of them, children first: `net.apply([](nn::Module& m) { ... })`.
  Module& apply(const std::function<void(Module&)>& f);

  /// Adds the members that are modules to `children`. By hand, VOXGRAD_MODULE(a, n) for a forward of one
  /// tensor is
  ///
  ///     void list_children(nn::Children& children) override { children.add("a, n", a, n); }
  ///     Tensor operator()(const Tensor& x) { return nn::call_with_hooks(*this, x); }
  ///
  /// A local class, in which C++ allows no templates, needs this form. A class that is derived from a module
  /// with members lists those too.
  virtual void list_children(Children&) {}

  /// Gives every parameter its name in named_parameters(), for tapes, recordings and errors
  /// (Tensor::set_name).
  void name_parameters();

  // ---- Mode, device and dtype -----------------------------------------------------------------------
  /// Training mode (the default) or evaluation mode, for this module and all below.
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  bool is_training() const { return training_; }

  /// Moves, or casts, all parameters and buffers. Handles on them stay valid, so an optimiser made before
  /// still trains them. Gradients are dropped. The dtype must be floating; integer buffers are not cast.
  Module& to(Device device);
  Module& to(DType dtype);

  void zero_grad();

  // ---- State ----------------------------------------------------------------------------------------
  /// Handles on all parameters and buffers, under all their names.
  StateDict state_dict() const;

  struct LoadResult {
    std::vector<std::string> missing;     ///< names in this module but not in the dict
    std::vector<std::string> unexpected;  ///< names in the dict but not in this module
  };
  /// Copies the dict's elements into this module's parameters and buffers, whichever devices and dtypes they
  /// have; Tensor::to(DType) says how they are cast. With `strict`, throws ValueError that lists missing and
  /// unexpected names. Shapes must always match. Checks everything before it writes anything.
  LoadResult load_state_dict(const StateDict& state, bool strict = true);

  // ---- Hooks ----------------------------------------------------------------------------------------
  /// Receives the tensors among a call's arguments and those of the result, which it may replace; also those
  /// inside pairs, tuples, ranges and optionals. Of a struct it sees what a member `auto tensors() { return
  /// std::tie(mean, variance); }` names. A call throws ValueError if it has hooks and returns another class.
  using ForwardHook =
      std::function<void(Module& module, std::span<const Tensor> inputs, std::span<Tensor> outputs)>;
  /// Calls `hook` after each call of this module; a call of `forward` itself runs no hooks. Returns a number
  /// for remove_forward_hook(). Throws ValueError for an empty function.
  int64_t register_forward_hook(ForwardHook hook);
  void remove_forward_hook(Int id);
  bool has_forward_hooks() const { return !hooks_.empty(); }
  /// Runs the hooks. The operator() of VOXGRAD_MODULE calls it.
  void run_forward_hooks(std::span<const Tensor> inputs, std::span<Tensor> outputs);

  // ---- Description ----------------------------------------------------------------------------------
  /// The class's name, and a layer's options: "Conv3d(8, 4, kernel_size=(3,3,3))".
  virtual std::string describe() const;
  /// Multiplications, each with an addition, of one call; 0 except for convolutions and Linear.
  virtual int64_t multiply_adds(const Tensor& /*input*/, const Tensor& /*output*/) const { return 0; }

 protected:
  template <class... Arguments>
  auto register_module(Arguments&&...) {
    static_assert(sizeof...(Arguments) > sizeof...(Arguments),
                  "a child is a plain member, which a line lists: `nn::Conv3d conv{{...}}; "
                  "VOXGRAD_MODULE(conv)`; register_module is not needed");
  }
  /// Registers `value`, and returns the handle to keep as a member. An undefined tensor (a missing bias) is
  /// returned and not registered. Later write into the member (`mean.copy_(...)` under no_grad()): if it is
  /// assigned another tensor, parameters(), state_dict() and the like throw ValueError, unless something else
  /// still holds the registered one. Two modules share a parameter if both register the same tensor.
  Tensor register_parameter(std::string name, Tensor value);
  Tensor register_buffer(std::string name, Tensor value);

 private:
  friend std::ostream& operator<<(std::ostream& out, const Module& module);
  friend Summary detail::summarize(Module& network, const std::function<void()>& call);
  friend class detail::Call;

  std::vector<detail::TreeNode> tree() const;
  std::vector<detail::TreeNode> known_tree() const;
  void collect(const std::string& path, const std::string& name, std::vector<const Module*>& parents,
               std::vector<detail::TreeNode>& nodes) const;
  void check_members(const Children& children, std::span<const detail::TreeNode> below) const;
  std::vector<NamedTensor> tensors(std::vector<NamedTensor> Module::*kind) const;
  Tensor register_in(std::vector<NamedTensor>& list, std::string name, Tensor value);
  void check_name_is_new(const std::string& name) const;
  template <class F>
  void replace_all(F f);

  std::vector<NamedTensor> parameters_, buffers_;
  std::map<int64_t, ForwardHook> hooks_;
  int64_t next_hook_ = 0;
  bool training_ = true;
  detail::ModuleAddress address_;
};

/// The module as a tree: a line each with options, shapes of parameters, and number of parameters.
std::ostream& operator<<(std::ostream& out, const Module& module);

namespace detail {

/// Calls f for every tensor in `value`: a tensor, what a member tensors() returns, or pairs, tuples, ranges
/// and optionals of these. An object of any other class goes to f.cannot_see, if f has that.
template <class F, class Value>
void for_each_tensor(const F& f, Value& value) {
  using Plain = std::remove_const_t<Value>;
  if constexpr (std::is_same_v<Plain, Tensor>) {
    f(value);
  } else if constexpr (requires { const_cast<Plain&>(value).tensors(); }) {
    auto tensors = const_cast<Plain&>(value).tensors();
    for_each_tensor(f, tensors);
  } else if constexpr (requires { std::tuple_size<Plain>::value; }) {
    std::apply([&](auto&... parts) { (for_each_tensor(f, parts), ...); }, value);
  } else if constexpr (requires { value.begin(), value.end(); }) {
    for (auto&& part : value) {
      if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(part)>, Plain>) for_each_tensor(f, part);
    }
  } else if constexpr (std::is_class_v<Plain> && requires { *value, value ? 1 : 0; }) {
    if (value) for_each_tensor(f, *value);
  } else if constexpr (std::is_class_v<Plain> && requires { f.cannot_see(value); }) {
    f.cannot_see(value);
  }
}

/// Collects the tensors of a result for the hooks of `module`.
struct Results {
  const Module& module;
  std::vector<Tensor>& all;
  void operator()(const Tensor& t) const { all.push_back(t); }
  template <class Value>
  void cannot_see(const Value&) const {
    cannot_see(typeid(Value));
  }
  [[noreturn]] void cannot_see(const std::type_info& type) const;
};

template <class... Inputs>
void refuse_const_call() {
  static_assert(sizeof...(Inputs) > sizeof...(Inputs),
                "a call may change a module (running statistics, hooks), so it needs one that is not const: "
                "take the network as Net&");
}

}  // namespace detail

/// m.forward(inputs...), then the forward hooks. An error names the path to m.
template <class M, class... Inputs>
decltype(auto) call_with_hooks(M& m, Inputs&&... inputs) {
  constexpr bool fits = requires { m.forward(std::forward<Inputs>(inputs)...); };
  static_assert(fits, "the module's forward() does not take these arguments, or it is not public");
  if constexpr (fits) {
    using Output = decltype(m.forward(std::forward<Inputs>(inputs)...));
    static_assert(!std::is_reference_v<Output>, "a module's forward() returns a value, not a reference");
    return detail::as_call_of(m, [&]() -> Output {
      if constexpr (!std::is_void_v<Output>) {
        if (m.has_forward_hooks()) {
          std::vector<Tensor> given, results;
          (detail::for_each_tensor([&](const Tensor& t) { given.push_back(t); }, inputs), ...);
          Output output = m.forward(std::forward<Inputs>(inputs)...);
          detail::for_each_tensor(detail::Results{m, results}, output);
          m.run_forward_hooks(given, results);
          size_t i = 0;
          detail::for_each_tensor([&](Tensor& t) { t = results[i++]; }, output);
          return output;
        }
      }
      return m.forward(std::forward<Inputs>(inputs)...);
    });
  }
}

/// A line that every module class needs: it lists the members that are modules (Children::add says which
/// types they may have) and makes the module callable. Members declared after it are public. If the list
/// lacks a member that is a module, parameters(), train() and all others that need the list throw ValueError.
/// They cannot see one in memory of its own, as in a std::vector or std::unique_ptr. That one throws
/// ValueError when it is called below a module on which they were called, if it has parameters or buffers.
/// Nothing notices that eval() does not reach a Dropout there, or that a module which is never called is not
/// saved. To leave a module out on purpose, call its own eval() or train() once.
#define VOXGRAD_MODULE(...)                                                    \
 public:                                                                       \
  template <class... Inputs>                                                   \
  decltype(auto) operator()(Inputs&&... inputs) {                              \
    return ::vox::nn::call_with_hooks(*this, std::forward<Inputs>(inputs)...); \
  }                                                                            \
  template <class... Inputs>                                                   \
  auto operator()(Inputs&&...) const {                                         \
    ::vox::nn::detail::refuse_const_call<Inputs...>();                         \
  }                                                                            \
  void list_children(::vox::nn::Children& children) override {                 \
    __VA_OPT__(children.add(#__VA_ARGS__, __VA_ARGS__);)                       \
    children.are_all_of(*this);                                                \
  }

/// A std::vector of modules that can be made from modules: `ModuleList<Conv3d> convs{Conv3d({...}), ...};`
template <class M>
struct ModuleList : std::vector<M> {
  template <class... Ms>
  requires(std::is_constructible_v<M, Ms>&&...) explicit ModuleList(Ms&&... modules) {
    this->reserve(sizeof...(Ms));
    (this->push_back(std::forward<Ms>(modules)), ...);
  }
};

/// A ModuleList whose elements are named "enc0", "enc1", ... instead of "enc.0", "enc.1", ..., as by
/// PyTorch's `setattr(self, f"enc{i}", ...)`.
template <class M>
struct NumberedList : ModuleList<M> {
  using ModuleList<M>::ModuleList;
  static constexpr bool is_numbered = true;
};

}  // namespace vox::nn
