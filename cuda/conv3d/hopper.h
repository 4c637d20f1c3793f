#pragma once

namespace vox::cuda {

/// Whether kernels of wgmma can run here: every GPU of the machine has compute capability 9.0, and this build
/// has machine code for it (architecture 90a; its PTX for other GPUs leaves their bodies empty).
bool has_wgmma();

}  // namespace vox::cuda
