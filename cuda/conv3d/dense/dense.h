#pragma once

#include <voxgrad/cuda/conv3d/call.h>

/// Hopper; any stride up to 8, in conv_transpose3d 4. The workspace is a copy of the input and one of the
/// weights, both padded.
namespace vox::cuda::conv::dense {

template <class Storage, class Operand>
bool takes(const Conv3dGeometry& g, bool transposed);
template <class Storage, class Operand>
void run(const Conv3dCall& call);

}  // namespace vox::cuda::conv::dense
