// A user's program that writes and reads a scan: it links voxgrad::image alone, which brings
// voxgrad::voxgrad.
#include <voxgrad/core/factories.h>
#include <voxgrad/image/image.h>

#include <cstdlib>

int main() {
  const vox::Image image{.data = vox::ones({2, 3, 4}), .spacing = {3, 1, 1}};
  vox::write_image("consumer.nii.gz", image);
  const vox::Image again = vox::read_image("consumer.nii.gz");
  return again.data.to_vector<float>() == image.data.to_vector<float>() && again.spacing == image.spacing
             ? EXIT_SUCCESS
             : EXIT_FAILURE;
}
