# voxgrad_afternoon: the part of the library that one reads in an afternoon. It is built of the files listed here and of
# nothing else: its include folder has links to them alone, so a file that is missing here does not compile. It needs a
# C++20 compiler and no other package: no threads, no files, no CUDA. HACKING.md says in which order to read it, and the
# test afternoon.lines keeps it short.

set(VOXGRAD_AFTERNOON
  core/arguments.h core/check.h core/device.h core/host_device.h core/half.h core/dtype.h core/shape.h
  core/allocator.h core/cuda_memory.h core/storage.h core/storage.cpp core/tensor.h core/tensor.cpp
  core/generator.h core/generator.cpp core/philox.h core/uniform.h core/new_tensor.h core/factories.cpp

  autograd/node.h autograd/node.cpp autograd/saved_tensor.h autograd/saved_tensor.cpp autograd/meta.h autograd/meta.cpp
  autograd/accumulate_grad.h autograd/accumulate_grad.cpp autograd/grad_mode.h autograd/grad_mode.cpp autograd/record.h
  autograd/shared_nodes.h
  autograd/running.h autograd/grad_plan.h autograd/engine.h autograd/engine.cpp autograd/tensor.cpp
  autograd/autocast_scope.h

  ops/elementwise_formulas.h ops/element.h ops/dispatch.h ops/triple.h ops/conv3d.h ops/conv3d_geometry.h
  ops/conv3d_geometry.cpp ops/precision.h ops/precision.cpp ops/optimizer_step.h ops/kernels.h ops/in_f32.h
  ops/broadcast.h ops/broadcast.cpp ops/arithmetic.h ops/binary.cpp ops/unary.h ops/unary.cpp ops/comparison.cpp
  ops/copy.cpp ops/inplace.cpp ops/views.cpp ops/rand.cpp
  ops/sum.h ops/reduce_plan.h ops/reduce_plan.cpp ops/sum.cpp
  ops/mse_loss.h ops/loss_operands.h ops/mse_loss.cpp ops/difference.h ops/difference.cpp
  ops/matmul.h ops/matmul.cpp ops/conv3d_recorded.h ops/conv3d.cpp
  nn/optim/optimizer.h nn/optim/optimizer.cpp nn/optim/sgd.h nn/optim/sgd.cpp

  plain/loops.h plain/memory.cpp plain/elementwise.cpp plain/reduce.cpp plain/products.cpp plain/training.cpp)

set(folder ${PROJECT_BINARY_DIR}/afternoon/include/voxgrad)
file(GLOB_RECURSE stale ${folder}/*.h)
set(sources)
set(umbrella)  # <voxgrad/voxgrad.h>: those of the headers that the library's own voxgrad.h includes
file(STRINGS ${PROJECT_SOURCE_DIR}/voxgrad.h public REGEX "^#include <voxgrad/")
foreach(file IN LISTS VOXGRAD_AFTERNOON)
  if(file MATCHES "\\.cpp$")
    list(APPEND sources ${PROJECT_SOURCE_DIR}/${file})
    continue()
  endif()
  get_filename_component(parent ${folder}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${file} ${folder}/${file} SYMBOLIC)
  list(REMOVE_ITEM stale ${folder}/${file})
  if("#include <voxgrad/${file}>" IN_LIST public)
    string(APPEND umbrella "#include <voxgrad/${file}>\n")
  endif()
endforeach()
list(REMOVE_ITEM stale ${folder}/voxgrad.h ${folder}/config.h)
if(stale)
  file(REMOVE ${stale})
endif()
file(CONFIGURE OUTPUT ${folder}/voxgrad.h CONTENT "#pragma once\n${umbrella}")
file(CONFIGURE OUTPUT ${folder}/config.h CONTENT "#pragma once\n#define VOXGRAD_HAS_CUDA 0\n")

add_library(voxgrad_afternoon STATIC EXCLUDE_FROM_ALL ${sources})
voxgrad_options(voxgrad_afternoon)
target_include_directories(voxgrad_afternoon PUBLIC ${PROJECT_BINARY_DIR}/afternoon/include)
target_compile_features(voxgrad_afternoon PUBLIC cxx_std_20)
