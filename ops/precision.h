#pragma once

namespace vox {

/// How f32 convolutions are computed on CUDA. The tensors stay f32, other dtypes are not concerned, and the
/// CPU always computes in f32.
enum class Float32Precision {
  highest,  ///< as accurate as f32 arithmetic (the default)
  high,     ///< operands rounded to TF32 (10 bits of mantissa), sums in f32
  medium,   ///< operands may be rounded to bf16 (7 bits), sums in f32
};

/// Sets the precision of the whole process: of every thread that has no PrecisionGuard.
void set_float32_precision(Float32Precision precision);

/// The precision that an op called now, on this thread, computes with. What is recorded keeps it: its
/// backward has the precision of its forward, wherever and whenever it runs.
Float32Precision float32_precision();

/// Sets the precision for this thread while it lives, and restores what was there before. Guards nest.
class PrecisionGuard {
 public:
  explicit PrecisionGuard(Float32Precision precision);
  ~PrecisionGuard();
  PrecisionGuard(const PrecisionGuard&) = delete;
  PrecisionGuard& operator=(const PrecisionGuard&) = delete;

 private:
  int previous_;  // as the thread's setting is kept: -1 for none
};

}  // namespace vox
