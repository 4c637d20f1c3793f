#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <ostream>

#include <voxgrad/core/arguments.h>

namespace vox {

/// Three numbers in D, H, W order; one number stands for three equal ones.
struct Triple {
  int64_t d = 0, h = 0, w = 0;

  constexpr Triple() = default;
  template <detail::Integer T>
  constexpr Triple(T all) : d(all), h(all), w(all) {}
  template <detail::Integer A, detail::Integer B, detail::Integer C>
  constexpr Triple(A depth, B height, C width) : d(depth), h(height), w(width) {}

  constexpr int64_t operator[](int64_t axis) const { return axis == 0 ? d : axis == 1 ? h : w; }
  constexpr int64_t& operator[](int64_t axis) { return axis == 0 ? d : axis == 1 ? h : w; }
  friend constexpr bool operator==(const Triple&, const Triple&) = default;
};

/// Two numbers in H, W order; one number stands for two equal ones.
struct Pair {
  int64_t h = 0, w = 0;
  constexpr Pair() = default;
  template <detail::Integer T>
  constexpr Pair(T both) : h(both), w(both) {}
  template <detail::Integer A, detail::Integer B>
  constexpr Pair(A height, B width) : h(height), w(width) {}
  friend constexpr bool operator==(const Pair&, const Pair&) = default;
};

/// A Triple that may be left out, written like one: `2`, `{1, 2, 2}`, or nothing.
struct OptionalTriple : std::optional<Triple> {
  using std::optional<Triple>::optional;
  template <class A, class B, class C>
  constexpr OptionalTriple(A depth, B height, C width)
      : std::optional<Triple>(Triple(depth, height, width)) {}
};

inline std::ostream& operator<<(std::ostream& out, const Pair& p) {
  return out << '(' << p.h << ',' << p.w << ')';
}
inline std::ostream& operator<<(std::ostream& out, const Triple& t) {
  return out << '(' << t.d << ',' << t.h << ',' << t.w << ')';
}

}  // namespace vox
