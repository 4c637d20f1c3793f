#include <voxgrad/core/print.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <string>
#include <vector>

namespace vox {

namespace {

constexpr int64_t threshold = 1000;  // tensors with more elements are abbreviated
constexpr int64_t edge_items = 3;    // elements shown at each end of an abbreviated dimension
constexpr size_t line_width = 80;
constexpr int decimals = 4;

/// The format of all floating numbers of one tensor, so that columns can be compared.
struct FloatFormat {
  bool whole = true;        // 3. rather than 3.0000
  bool scientific = false;  // for magnitudes that fixed decimals would blur

  template <class T>
  explicit FloatFormat(const std::vector<T>& values) {
    double largest = 0, smallest = HUGE_VAL;
    for (const T value : values) {
      const double magnitude = std::abs(static_cast<double>(value));
      if (!std::isfinite(magnitude) || magnitude == 0) continue;
      whole = whole && std::trunc(magnitude) == magnitude;
      largest = std::max(largest, magnitude);
      smallest = std::min(smallest, magnitude);
    }
    scientific = largest >= 1e8 || (!whole && (smallest < 1e-4 || largest / smallest > 1000));
  }

  std::string operator()(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    TextStream text;
    if (scientific)
      text << std::scientific << std::setprecision(decimals) << value;
    else
      text << std::fixed << std::setprecision(whole ? 0 : decimals) << value << (whole ? "." : "");
    return text.str();
  }
};

template <class T>
std::vector<std::string> format(const std::vector<T>& values) {
  std::vector<std::string> cells;
  cells.reserve(values.size());
  if constexpr (is_floating_v<T>) {
    const FloatFormat as_text(values);
    for (const T value : values) cells.push_back(as_text(static_cast<double>(value)));
  } else if constexpr (std::is_same_v<T, bool>) {
    for (const bool value : values) cells.push_back(value ? "true" : "false");
  } else {
    for (const T value : values) cells.push_back(std::to_string(value));
  }
  return cells;
}

/// Writes the elements of a CPU tensor with rank >= 1 as nested brackets.
class Brackets {
 public:
  Brackets(const Tensor& t, std::ostream& out)
      : t_(t), out_(out), rank_(t.rank()), summarized_(t.numel() > threshold) {
    visit_storage(t.dtype(), [&]<class T>(T) {
      std::vector<T> values;
      collect(detail::ptr<T>(t), 0, values);
      cells_ = format(values);
    });
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
  }

  /// The sub-tensor that starts at dimension `dim`; its brackets open at column `indent`.
  void write(int64_t dim, size_t indent) {
    out_ << '[';
    if (dim == rank_ - 1)
      write_row(indent + 1);
    else
      write_blocks(dim, indent + 1);
    out_ << ']';
  }

 private:
  bool has_gap(int64_t dim) const { return summarized_ && t_.size(dim) > 2 * edge_items; }

  /// Calls f(i, gap_before) for the indices of `dim` that are shown.
  template <class F>
  void for_shown(int64_t dim, F f) const {
    const int64_t size = t_.size(dim);
    const bool gap = has_gap(dim);
    for (int64_t i = 0; i < size; ++i) {
      const bool jump = gap && i == edge_items;
      if (jump) i = size - edge_items;
      f(i, jump);
    }
  }

  template <class T>
  void collect(const T* first, int64_t dim, std::vector<T>& values) const {
    for_shown(dim, [&](int64_t i, bool) {
      const T* at = first + i * t_.strides()[dim];
      if (dim == rank_ - 1)
        values.push_back(*at);
      else
        collect(at, dim + 1, values);
    });
  }

  void write_row(size_t indent) {
    size_t column = indent;
    const auto put = [&](int64_t i, const std::string& text, size_t width) {
      const bool last = i + 1 == t_.size(rank_ - 1);
      width += last ? 0 : 1;  // the comma
      if (column > indent) {
        const bool fits = column + 1 + width <= line_width;
        out_ << (fits ? " " : "\n" + std::string(indent, ' '));
        column = fits ? column + 1 : indent;
      }
      out_ << std::setw(static_cast<int>(width)) << (last ? text : text + ',');
      column += width;
    };
    for_shown(rank_ - 1, [&](int64_t i, bool gap_before) {
      if (gap_before) put(0, "...", 3);
      put(i, cells_[next_cell_++], width_);
    });
  }

  void write_blocks(int64_t dim, size_t indent) {
    // One line break between rows, one more for every further dimension that ends there.
    const std::string separator =
        "," + std::string(static_cast<size_t>(rank_ - 1 - dim), '\n') + std::string(indent, ' ');
    for_shown(dim, [&](int64_t i, bool gap_before) {
      if (i > 0) out_ << separator;
      if (gap_before) out_ << "..." << separator;
      write(dim + 1, indent);
    });
  }

  const Tensor& t_;
  std::ostream& out_;
  const int64_t rank_;
  const bool summarized_;
  std::vector<std::string> cells_;  // shown elements in logical order
  size_t next_cell_ = 0;
  size_t width_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "tensor(undefined)";
  const Tensor host = tensor.detach().to(Device::cpu());
  TextStream text;  // so that the formatting flags of `out` do not apply
  text << "tensor(";
  if (host.numel() == 0)
    text << "[]";
  else if (host.rank() == 0)
    visit_storage(host.dtype(),
                  [&]<class T>(T) { text << format(std::vector<T>{*detail::ptr<T>(host)})[0]; });
  else
    Brackets(host, text).write(0, std::string("tensor(").size());

  if (host.numel() == 0 || host.numel() > threshold) text << ", shape=" << host.shape();
  if (host.dtype() != f32) text << ", dtype=" << host.dtype();
  if (tensor.device().is_cuda()) text << ", device=" << tensor.device();
  if (tensor.requires_grad()) text << ", requires_grad=true";
  text << ')';
  return out << text.str();
}

}  // namespace vox
