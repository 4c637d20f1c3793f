// The conv3d family by its definition: one of Eigen's products for each phase (Note [Lattices]) and tap.
//
//   conv3d, conv_transpose3d   sums(out, position) += weight(out, in) * input(in, cell of the position)
//   conv3d_weight_grad         sums(small, big) += small(small, position) * big(big, cell of the position)^T
//
// A product has only the positions whose cell lies inside the input, not the zeros of a padding: infinite and
// NaN operands give what the definition gives. A task owns the sums of a box of positions, or of a tap. The
// shapes alone determine tasks and the order of sums, so the number of threads changes no bit.

#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>
#include <voxgrad/ops/cpu/tasks.h>

#include <Eigen/Core>

namespace vox::cpu {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Along each axis of a grid, `count` cells from `first` on, `step` apart.
struct Axis {
  int64_t grid, first, step, count;
};
using Cells = std::array<Axis, 3>;

int64_t cells_of(const Cells& c) { return c[0].grid * c[1].grid * c[2].grid; }

/// The outputs that positions of a phase are.
Axis outputs_of(const Lattice& l, int64_t first, int64_t count) {
  return {l.output, l.out_first + first * l.out_step, l.out_step, count};
}

/// Calls f(i, k) for each cell: its number in the grid, and among the cells.
template <class F>
void for_each(const Cells& cells, const F& f) {
  const auto& [d, h, w] = cells;
  int64_t k = 0;
  for (int64_t j = 0; j < d.count; ++j)
    for (int64_t r = 0; r < h.count; ++r, k += w.count) {
      const int64_t row = (d.first + j * d.step) * h.grid + h.first + r * h.step;
      for (int64_t n = 0; n < w.count; ++n) f(row * w.grid + w.first + n * w.step, k + n);
    }
}

/// The panel (channel, cell) of the channels from x on.
template <class T, class S>
Matrix<T> panel_of(const S* x, int64_t channels, const Cells& cells) {
  Matrix<T> panel(channels, cells[0].count * cells[1].count * cells[2].count);
  for (int64_t c = 0; c < channels; ++c, x += cells_of(cells))
    for_each(cells, [x, to = panel.row(c).data()](int64_t i, int64_t k) { to[k] = static_cast<T>(x[i]); });
  return panel;
}

/// Boxes of positions of a phase, of whole rows and planes where so many fit the second-level cache.
TileLayout boxes_of(const Lattices& l, int64_t bytes_per_position) {
  TileLayout boxes;
  int64_t most = std::max<int64_t>(64, 256 * 1024 / bytes_per_position);
  for (int64_t a = 2; a >= 0; most /= boxes.tile[a--]) {
    const int64_t outputs = boxes.axes[static_cast<size_t>(a)].outputs = l[static_cast<size_t>(a)].outputs;
    boxes.tile[a] = std::clamp<int64_t>(most, 1, outputs);
  }
  return boxes;
}

/// The positions of a box whose cell for a tap of a phase lies inside the input.
struct Touched {
  Cells inputs{}, outputs{}, place{};  // the cells, and the positions in the output and in the box
  int64_t tap = 0;                     // its number in the kernel

  Touched(const Lattices& l, const TileLayout::Box& box, int64_t tap_of_phase, const Triple& kernel) {
    int64_t step = 1;
    for (size_t a = 3; a-- > 0; step *= kernel[static_cast<int64_t>(a)]) {
      const int64_t m = tap_of_phase % l[a].taps;
      tap_of_phase /= l[a].taps;
      tap += (l[a].tap_first + m * l[a].tap_step) * step;
      const RowCells in(l[a].input, l[a].input_cell(box.first[a], m), l[a].in_step, box.count[a]);
      const int64_t count = in.end - in.begin;
      if (count == 0) continue;  // their cells may be beyond 64 bits
      inputs[a] = {l[a].input, in.first + in.begin * in.step, in.step, count};
      outputs[a] = outputs_of(l[a], box.first[a] + in.begin, count);
      place[a] = {box.count[a], in.begin, 1, count};
    }
  }
};

/// Computes the outputs of one image and group in a box of positions. They hold the bias before.
template <class S, class T>
void compute(const Correlation<S, T>& c, const Lattices& l, const TileLayout::Box& box, int64_t image) {
  Cells outputs;
  for (size_t a = 0; a < 3; ++a) outputs[a] = outputs_of(l[a], box.first[a], box.count[a]);
  S* y = c.output + image * c.out_channels * cells_of(outputs);
  Matrix<T> sums = panel_of<T>(y, c.out_channels, outputs);
  for (int64_t tap = 0; tap < l[0].taps * l[1].taps * l[2].taps; ++tap) {
    const Touched touched(l, box, tap, c.kernel);
    const S* x = c.input + image * c.in_channels * cells_of(touched.inputs);
    const Matrix<T> panel = panel_of<T>(x, c.in_channels, touched.inputs);
    if (panel.cols() == 0) continue;
    const S* from = c.weight + image % c.groups * c.weight_per_group + touched.tap;
    Matrix<T> weight(c.out_channels, c.in_channels), part(c.out_channels, panel.cols());
    for (int64_t out = 0; out < c.out_channels; ++out)
      for (int64_t in = 0; in < c.in_channels; ++in)
        weight(out, in) = static_cast<T>(from[out * c.weight_per_out + in * c.weight_per_in]);
    part.noalias() = weight * panel;
    for (int64_t out = 0; out < c.out_channels; ++out)
      for_each(touched.place, [p = &part(out, 0), s = &sums(out, 0)](int64_t i, int64_t k) { s[i] += p[k]; });
  }
  for (int64_t out = 0; out < c.out_channels; ++out, y += cells_of(outputs))
    for_each(outputs, [y, s = &sums(out, 0)](int64_t i, int64_t k) { y[i] = static_cast<S>(s[k]); });
}

}  // namespace

template <class S, class T>
void Correlation<S, T>::by_definition() const {
  fill_with_bias();
  const int64_t bytes = (in_channels + 2 * out_channels) * static_cast<int64_t>(sizeof(T));  // per position
  for (const Lattice& d : phases[0])
    for (const Lattice& h : phases[1])
      for (const Lattice& w : phases[2]) {
        const TileLayout boxes = boxes_of({d, h, w}, bytes);
        for_tasks(batch * groups * boxes.tiles(), 1, [&](int64_t t) {
          compute(*this, {d, h, w}, boxes.box(t % boxes.tiles()), t / boxes.tiles());
        });
      }
}

template <class S, class T>
void WeightGrad<S, T>::by_definition() const {
  const Lattices l = conv3d_lattices(g);
  const int64_t rows = g.small_per_group(), columns = g.big_per_group();
  const TileLayout boxes = boxes_of(l, (rows + columns) * static_cast<int64_t>(sizeof(T)));
  for_tasks(g.groups * g.taps(), 1, [&](int64_t t) {
    const int64_t group = t / g.taps(), tap = t % g.taps();
    Matrix<T> sums = Matrix<T>::Zero(rows, columns);
    for (int64_t i = 0; i < g.batch * boxes.tiles(); ++i) {
      const Touched touched(l, boxes.box(i % boxes.tiles()), tap, g.kernel);
      const int64_t image = i / boxes.tiles() * g.groups + group;
      const S *x = big + image * columns * g.big_cells(), *y = small + image * rows * g.small_cells();
      sums.noalias() +=
          panel_of<T>(y, rows, touched.outputs) * panel_of<T>(x, columns, touched.inputs).transpose();
    }
    for (int64_t r = 0; r < rows * columns; ++r)
      dweight[(group * rows * columns + r) * g.taps() + tap] = static_cast<S>(sums.data()[r]);
  });
}

#define VOX_INSTANTIATE(S, T)                             \
  template void Correlation<S, T>::by_definition() const; \
  template void WeightGrad<S, T>::by_definition() const
VOX_INSTANTIATE(float, float);
VOX_INSTANTIATE(double, double);
VOX_INSTANTIATE(bfloat16, float);
VOX_INSTANTIATE(float16, float);

}  // namespace vox::cpu
