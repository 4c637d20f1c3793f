#pragma once

namespace vox {

/// The arithmetic of f32 convolutions on CUDA. Tensors stay f32. Other dtypes are not affected, and the CPU
/// always computes in f32.
enum class Float32Precision {
  highest,  ///< as accurate as f32 arithmetic (the default)
  high,     ///< operands rounded to TF32 (11 significant bits), sums in f32
  medium,   ///< operands may be rounded to bf16 (8 significant bits), sums in f32
};

/// Sets the precision of the whole process: of every thread that has no PrecisionGuard.
void set_float32_precision(Float32Precision precision);

/// The precision that an op called now on this thread uses. A recorded op keeps it: its backward uses the
/// precision of its forward, whenever and on whichever thread it runs.
Float32Precision float32_precision();

/// Sets the precision for this thread while it lives, then restores the previous one. Guards nest.
class PrecisionGuard {
 public:
  explicit PrecisionGuard(Float32Precision precision);
  ~PrecisionGuard();
  PrecisionGuard(const PrecisionGuard&) = delete;
  PrecisionGuard& operator=(const PrecisionGuard&) = delete;

 private:
  int previous_;  // the thread's setting before; -1 for none
};

}  // namespace vox
