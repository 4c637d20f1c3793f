// nnU-Net's networks, with the names of dynamic_network_architectures: PlainConvUNet and ResidualEncoderUNet.
#pragma once

#include <optional>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "plans.h"

namespace nnunet {

inline vox::Activation activation_of(const Architecture& a) { return vox::Activation::leaky_relu(a.slope); }

/// Convolution and instance norm, with an activation or without.
struct ConvNorm final : vox::nn::Module {
  vox::nn::Conv3d conv;
  vox::nn::InstanceNorm3d norm;
  VOXGRAD_MODULE(conv, norm)

  ConvNorm(int64_t in, int64_t out, vox::Triple kernel, vox::Triple stride, bool bias,
           vox::Activation activation, const Architecture& a)
      : conv({.in_channels = in,
              .out_channels = out,
              .kernel_size = kernel,
              .stride = stride,
              .padding = {(kernel.d - 1) / 2, (kernel.h - 1) / 2, (kernel.w - 1) / 2},
              .bias = bias}),
        norm({.num_features = out, .eps = a.eps, .affine = a.affine, .activation = activation}) {}
  vox::Tensor forward(const vox::Tensor& x) { return norm(conv(x)); }
};

/// StackedConvBlocks: convolutions of one size, the first with the stride.
struct Stack final : vox::nn::Module {
  std::vector<ConvNorm> convs;
  VOXGRAD_MODULE(convs)

  Stack(int64_t count, int64_t in, int64_t out, vox::Triple kernel, vox::Triple stride,
        const Architecture& a) {
    for (int64_t i = 0; i < count; ++i)
      convs.emplace_back(i ? out : in, out, kernel, i ? vox::Triple(1) : stride, a.conv_bias,
                         activation_of(a), a);
  }
  vox::Tensor forward(vox::Tensor x) {
    for (ConvNorm& conv : convs) x = conv(x);
    return x;
  }
};

/// BasicBlockD: two convolutions beside an average pool and a 1x1x1 convolution, where they are needed.
struct ResidualBlock final : vox::nn::Module {
  ConvNorm conv1, conv2;
  std::vector<std::optional<ConvNorm>> skip;  // entry 0 stays empty if there is a pool
  VOXGRAD_MODULE(conv1, conv2, skip)

  ResidualBlock(int64_t in, int64_t out, vox::Triple kernel, vox::Triple stride, const Architecture& a)
      : conv1(in, out, kernel, stride, a.conv_bias, activation_of(a), a),
        conv2(out, out, kernel, 1, a.conv_bias, {}, a),
        skip(stride == vox::Triple(1) ? 1 : 2),
        stride_(stride),
        slope_(a.slope) {
    if (in != out) skip.back().emplace(in, out, 1, 1, false, vox::Activation{}, a);
  }
  vox::Tensor forward(const vox::Tensor& x) {
    vox::Tensor beside = x;
    if (skip.size() == 2) beside = vox::avg_pool3d(beside, {.kernel_size = stride_, .stride = stride_});
    if (skip.back()) beside = (*skip.back())(beside);
    return vox::leaky_relu(conv2(conv1(x)) + beside, slope_);
  }

 private:
  vox::Triple stride_;
  double slope_;
};

/// A stage of the encoder: a Stack, named "0", or residual blocks, named "blocks.0", "blocks.1", ...
struct Stage final : vox::nn::Module {
  std::vector<Stack> stack;
  std::vector<ResidualBlock> blocks;

  Stage(const Architecture& a, size_t s, int64_t in) {
    if (!a.residual) stack.emplace_back(a.blocks[s], in, a.features[s], a.kernel_sizes[s], a.strides[s], a);
    for (int64_t i = 0; a.residual && i < a.blocks[s]; ++i)
      blocks.emplace_back(i ? a.features[s] : in, a.features[s], a.kernel_sizes[s],
                          i ? vox::Triple(1) : a.strides[s], a);
  }
  void list_children(vox::nn::Children& children) override {
    if (!stack.empty()) children.add("0", stack[0]);
    children.add("blocks", blocks);
  }
  vox::Tensor operator()(const vox::Tensor& x) { return vox::nn::call_with_hooks(*this, x); }
  vox::Tensor forward(vox::Tensor x) {
    if (!stack.empty()) return stack[0](x);
    for (ResidualBlock& block : blocks) x = block(x);
    return x;
  }
};

struct Encoder final : vox::nn::Module {
  std::optional<Stack> stem;
  std::vector<Stage> stages;
  VOXGRAD_MODULE(stem, stages)

  Encoder(const Architecture& a, int64_t in) {
    if (a.residual) {
      stem.emplace(1, in, a.features[0], a.kernel_sizes[0], 1, a);
      in = a.features[0];
    }
    for (size_t s = 0; s < a.features.size(); ++s) {
      stages.emplace_back(a, s, in);
      in = a.features[s];
    }
  }
  std::vector<vox::Tensor> forward(vox::Tensor x) {
    if (stem) x = (*stem)(x);
    std::vector<vox::Tensor> features;
    for (Stage& stage : stages) features.push_back(x = stage(x));
    return features;
  }
};

struct Decoder final : vox::nn::Module {
  std::vector<vox::nn::ConvTranspose3d> transpconvs;
  std::vector<Stack> stages;
  std::vector<vox::nn::Conv3d> seg_layers;
  VOXGRAD_MODULE(transpconvs, stages, seg_layers)

  Decoder(const Architecture& a, int64_t heads) {
    for (size_t s = a.features.size() - 1; s > 0; --s) {
      const int64_t skip = a.features[s - 1];
      transpconvs.push_back(vox::nn::ConvTranspose3d({.in_channels = a.features[s],
                                                      .out_channels = skip,
                                                      .kernel_size = a.strides[s],
                                                      .stride = a.strides[s],
                                                      .bias = a.conv_bias}));
      stages.emplace_back(a.decoder_convs[stages.size()], 2 * skip, skip, a.kernel_sizes[s - 1], 1, a);
      seg_layers.push_back(vox::nn::Conv3d({.in_channels = skip, .out_channels = heads, .kernel_size = 1}));
    }
  }
  /// The logits at full resolution, then those of the coarser stages if `deep_supervision`.
  std::vector<vox::Tensor> forward(const std::vector<vox::Tensor>& features, bool deep_supervision) {
    std::vector<vox::Tensor> logits;
    vox::Tensor x = features.back();
    for (size_t s = 0; s < stages.size(); ++s) {
      x = stages[s](vox::cat({transpconvs[s](x), features[features.size() - 2 - s]}, 1));
      if (deep_supervision || s + 1 == stages.size()) logits.insert(logits.begin(), seg_layers[s](x));
    }
    return logits;
  }
};

/// (N, in_channels, D, H, W) to logits (N, heads, D, H, W). D, H and W are multiples of the product of
/// strides.
struct UNet final : vox::nn::Module {
  Encoder encoder;
  Decoder decoder;
  VOXGRAD_MODULE(encoder, decoder)

  UNet(const Architecture& a, int64_t in_channels, int64_t heads)
      : encoder(a, in_channels), decoder(a, heads) {}
  vox::Tensor forward(const vox::Tensor& x) { return decoder(encoder(x), false)[0]; }
  /// The logits of all resolutions, finest first.
  std::vector<vox::Tensor> forward(const vox::Tensor& x, bool deep_supervision) {
    return decoder(encoder(x), deep_supervision);
  }
};

}  // namespace nnunet
