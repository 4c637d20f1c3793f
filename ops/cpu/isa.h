#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Note [Instruction sets]
//
// The files of ops/cpu/simd are compiled several times: for the portable baseline of the build and, on
// x86-64, for the levels v3 (AVX2, FMA) and v4 (AVX-512) of the psABI. Each build has its own namespace
// (vox::cpu::simd::v4, the macro VOXGRAD_ISA). cpuid, or the environment variable VOXGRAD_CPU_ISA, selects
// one of them, once.
//
// The linker keeps one copy of an inline function or template that several objects contain. If a file built
// for v4 contained a std::vector<float>, its copy could become the whole program's, which would then crash on
// an older processor. So these files may include only <cstddef>, <cstdint>, <cstring>, <type_traits>,
// <utility> (for its types), intrinsics and headers of plain structs. tests/isa_symbols.cmake checks the
// symbols of their objects.
//
// Within one instruction set the bits of a result depend only on the operands. Between two sets they may
// differ: v3 and v4 have a fused a * b + c. Kernels request it by name (simd/math.h). In the files that
// cmake/isa.cmake lists, those of the convolutions, the compiler may use it everywhere.

namespace vox::cpu {

enum class Isa { baseline, v3, v4 };

/// The instruction set in use: VOXGRAD_CPU_ISA (baseline, v3 or v4) if that environment variable is set, else
/// the best that this processor and this build have. Throws ValueError if the variable has any other value,
/// or names a set that is not available.
Isa isa();

/// Whether this processor and this build have `isa`.
bool has_isa(Isa isa);

/// Selects another one, for tests; no kernel may be running. Throws ValueError if it is not available.
void set_isa(Isa isa);

const char* to_string(Isa isa);

/// The initial value of isa(), which calls this once.
Isa isa_from_environment();

/// The kernels of f32 and f64, which are templates of a plain struct of function pointers.
template <template <class> class Kernels>
struct OfReals {
  Kernels<float> f32;
  Kernels<double> f64;
};

/// One table of kernels (a plain struct of function pointers) per instruction set. Null pointers if the build
/// has only the baseline.
template <class Table>
struct ByIsa {
  const Table *baseline, *v3, *v4;

  constexpr ByIsa(const Table* base, const Table* level3, const Table* level4)
      : baseline(base), v3(level3), v4(level4) {}
  constexpr ByIsa(const Table* base, std::nullptr_t, std::nullptr_t)
      : baseline(base), v3(nullptr), v4(nullptr) {}

  /// The table of the instruction set in use.
  const Table& here() const {
    const Isa chosen = isa();
    return *(chosen == Isa::v4 ? v4 : chosen == Isa::v3 ? v3 : baseline);
  }

  /// The part of the table in use for the type T.
  template <class T>
  const auto& of() const {
    if constexpr (std::is_same_v<T, float>)
      return here().f32;
    else if constexpr (std::is_same_v<T, double>)
      return here().f64;
    else if constexpr (std::is_same_v<T, int64_t>)
      return here().i64;
    else {
      static_assert(std::is_same_v<T, uint8_t>);
      return here().u8;
    }
  }
};

/// The ByIsa of the table of that name in ops/cpu/simd:
///
///     constexpr ByIsa kernels = VOX_BY_ISA(pool3d_kernels);
///     kernels.of<float>().max(...);
#if VOXGRAD_X86_ISAS
#define VOX_BY_ISA(table) (::vox::cpu::ByIsa{&simd::baseline::table, &simd::v3::table, &simd::v4::table})
#else
#define VOX_BY_ISA(table) (::vox::cpu::ByIsa{&simd::baseline::table, nullptr, nullptr})
#endif

/// Declares the table of each instruction set, in the header that defines its type:
///
///     VOX_DECLARE_BY_ISA(OfReals<Pool3dOf>, pool3d_kernels);
#define VOX_DECLARE_BY_ISA(Table, table) \
  namespace baseline {                   \
  extern const Table table;              \
  }                                      \
  namespace v3 {                         \
  extern const Table table;              \
  }                                      \
  namespace v4 {                         \
  extern const Table table;              \
  }                                      \
  static_assert(true)  // takes the semicolon

}  // namespace vox::cpu
