#pragma once

// All of voxgrad's public interface.

#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/function.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/autograd/tape.h>
#include <voxgrad/core/cuda.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/core/generator.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/core/print.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/nn/batch_norm3d.h>
#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/dropout.h>
#include <voxgrad/nn/init.h>
#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/linear.h>
#include <voxgrad/nn/module.h>
#include <voxgrad/nn/optim/adam.h>
#include <voxgrad/nn/optim/optimizer.h>
#include <voxgrad/nn/optim/schedule.h>
#include <voxgrad/nn/optim/sgd.h>
#include <voxgrad/nn/sequential.h>
#include <voxgrad/nn/serialize.h>
#include <voxgrad/ops/conv3d.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/interpolate.h>
#include <voxgrad/ops/loss.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/pool3d.h>
#include <voxgrad/ops/precision.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>
#include <voxgrad/version.h>
