#include <voxgrad/core/check.h>
#include <voxgrad/ops/cpu/isa.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace vox::cpu {
namespace {

constexpr Isa all[] = {Isa::baseline, Isa::v3, Isa::v4};

Isa best() {
  Isa best = Isa::baseline;
  for (const Isa isa : all)
    if (has_isa(isa)) best = isa;
  return best;
}

std::atomic<int> chosen{-1};  // an Isa; -1: not determined yet

}  // namespace

bool has_isa(Isa isa) {
#if VOXGRAD_X86_ISAS
  // These check all instructions of the level, and that the operating system saves its registers.
  if (isa == Isa::v3) return __builtin_cpu_supports("x86-64-v3");
  if (isa == Isa::v4) return __builtin_cpu_supports("x86-64-v4");
#endif
  return isa == Isa::baseline;
}

Isa isa_from_environment() {
  const char* text = std::getenv("VOXGRAD_CPU_ISA");
  if (!text) return best();
  std::optional<Isa> named;
  for (const Isa isa : all)
    if (std::string_view(text) == to_string(isa)) named = isa;
  check<ValueError>(named.has_value(),
                    "isa: the environment variable VOXGRAD_CPU_ISA must be baseline, v3 or ", "v4, got \"",
                    text, "\" (correct or unset it)");
  check<ValueError>(has_isa(*named), "isa: the environment variable VOXGRAD_CPU_ISA asks for ", text,
                    ", which this processor or this build does not have; the best here is ",
                    to_string(best()));
  return *named;
}

Isa isa() {
  const int known = chosen.load(std::memory_order_relaxed);
  if (known >= 0) return static_cast<Isa>(known);
  const Isa isa = isa_from_environment();
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
  return isa;
}

void set_isa(Isa isa) {
  check<ValueError>(has_isa(isa), "set_isa: this processor or this build does not have ", to_string(isa),
                    "; the best here is ", to_string(best()));
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

const char* to_string(Isa isa) {
  constexpr const char* names[] = {"baseline", "v3", "v4"};
  return names[static_cast<int>(isa)];
}

}  // namespace vox::cpu
