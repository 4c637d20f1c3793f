"""Two differentiable ops, from which every convolution and every gradient of one is made:

    convolution(input, weight, bias, output_size, ...)     forward, and the gradient of the input
    convolution_weight_grad(input, grad_output, ...)       the gradients of weight and bias

A convolution is linear in each operand, and the gradient of a (transposed) convolution's input is the transposed (or
plain) convolution of the result's gradient. So the gradients of both ops, to any order, are again these ops. The size
of the result is an argument, because it does not follow from the other sizes (Note [The conv3d family] in
ops/conv3d.cpp).

PyTorch 1.13 differentiates them as autograd.Functions, 2.4 and newer as custom ops of torch.library. Both use the plain
functions of this file.
"""

import torch
from torch.autograd import forward_ad

from .. import _library

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


def _dense(tensor):
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.resolve_neg().contiguous()


def _described(function, argument, tensor, shape=None):
    """What _library.describe() takes for a tensor, or for one of another shape."""
    if tensor is None:
        return None
    if tensor.layout is not torch.strided or tensor.dtype not in _DTYPES:
        kind = tensor.dtype if tensor.layout is torch.strided else tensor.layout
        raise TypeError(f"{function}: {argument} is a tensor of {kind}; voxgrad computes strided tensors of "
                        f"{', '.join(map(str, _DTYPES))}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise RuntimeError(f"{function}: {argument} is on {tensor.device}; voxgrad computes on cpu and cuda")
    device = tensor.device.index if tensor.is_cuda else None
    return tuple(tensor.shape if shape is None else shape), _DTYPES[tensor.dtype], device


def refuse_modes(function, *tensors):
    """The ops of torch.library ignore tangents, so a forward-mode derivative would be 0. torch.jit would fail later."""
    if torch.jit.is_tracing():
        raise RuntimeError(f"{function}: torch.jit.trace cannot record voxgrad's functions; it can trace its layers")
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None
                                              for t in tensors if t is not None):
        raise NotImplementedError(f"{function}: forward-mode derivatives are not supported; use backward() or grad()")


PLAIN = (torch.Tensor, torch.nn.Parameter)
# PyTorch 1.13 has none of these.
compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def is_plain(tensor):
    """Whether a tensor has memory that an op may use at once: it is PyTorch's own, and no mode of PyTorch is at work."""
    return (type(tensor) in PLAIN and tensor.device.type in ("cpu", "cuda") and
            modes() == 0 and not _transforms())


def is_foreign(tensor):
    """Whether a layer must leave this input to PyTorch: voxgrad computes no such tensor, or only PyTorch's ops know what
    is going on, as in transforms of torch.func."""
    return (not isinstance(tensor, torch.Tensor) or tensor.dtype not in _DTYPES or tensor.layout is not torch.strided or
            tensor.device.type not in ("cpu", "cuda") or _transforms() or torch._C._is_tracing() or
            forward_ad._current_level >= 0)


def _run(call, device, description, *tensors):
    """Calls _library on the tensors' memory, in the current stream of the device."""
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    for tensor, address in zip(tensors, addresses):
        if address == 0 and tensor.numel():
            raise RuntimeError(f"voxgrad: an operand of shape {tuple(tensor.shape)} has no memory of its own: PyTorch "
                               "does not store it, or it is a wrapper")
    if device.type == "cpu":
        try:
            return call(description, *addresses, None)
        except _library.OutOfMemory as error:
            raise RuntimeError(str(error)) from None
    stream = torch.cuda.current_stream(device).cuda_stream
    try:
        return call(description, *addresses, stream)
    except _library.OutOfMemory:
        pass
    torch.cuda.empty_cache()  # PyTorch may hold the memory that voxgrad needs for its work
    try:
        return call(description, *addresses, stream)
    except _library.OutOfMemory as error:
        raise torch.cuda.OutOfMemoryError(str(error)) from None


# ---- The plain functions: computation, shapes, gradients ------------------------------------------------------------

def _compute(input, weight, bias, output_size, stride, padding, dilation, groups, transposed, precision):
    name = _library.name_of(weight.dim() - 2, transposed)
    description = _library.describe(
        transposed, precision, _described(name, "input", input), _described(name, "weight", weight),
        _described(name, "bias", bias), tuple(output_size), tuple(stride), tuple(padding), tuple(dilation), groups)
    input, weight, bias = _dense(input), _dense(weight), None if bias is None else _dense(bias)
    output = _empty_output(input, weight, bias, output_size, stride, padding, dilation, groups, transposed, precision)
    _run(_library.convolution, input.device, description, input, weight, bias, output)
    return output


def _empty_output(input, weight, bias, output_size, stride, padding, dilation, groups, transposed, precision):
    batch = input.shape[:input.dim() - len(output_size) - 1]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return _empty(input, (*batch, channels, *output_size))


def _empty(like, shape):
    """No subclass of Tensor, whose instances are views of a tensor."""
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _fake_output(input, weight, bias, output_size, stride, padding, dilation, groups, transposed, precision):
    """Without memory, for torch.compile and the device "meta"; sizes may be symbols."""
    name, channel = _library.name_of(weight.dim() - 2, transposed), input.dim() - len(output_size) - 1
    output = _empty_output(input, weight, bias, output_size, stride, padding, dilation, groups, transposed, precision)
    for argument, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.device != input.device:
            raise RuntimeError(f"{name}: {argument} is on {tensor.device}, input on {input.device}")
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    if input.shape[channel] != wanted:
        raise ValueError(f"{name}: input has {input.shape[channel]} channels, weight and groups want {wanted}")
    if bias is not None and tuple(bias.shape) != (output.shape[channel],):
        raise ValueError(f"{name}: bias must have shape ({output.shape[channel]},), got {tuple(bias.shape)}")
    return output


def _save_operands(ctx, inputs, output):
    input, weight, _, _, *ctx.options = inputs
    ctx.save_for_backward(input, weight)


def _gradients(ctx, grad_output):
    input, weight = ctx.saved_tensors
    *steps, groups, transposed, precision = ctx.options
    axes = weight.dim() - 2
    grad_input = grad_weight = grad_bias = None
    refuse_modes("backward", input, weight, grad_output)
    if ctx.needs_input_grad[0]:
        grad_input = convolution(grad_output, weight, None, input.shape[-axes:], *steps, groups, not transposed,
                                 precision)
    if ctx.needs_input_grad[1]:
        grad_weight, grad_bias = convolution_weight_grad(input, grad_output, weight.shape[2:], *steps, groups,
                                                         transposed, ctx.needs_input_grad[2], precision)
        grad_bias = grad_bias if ctx.needs_input_grad[2] else None
    elif ctx.needs_input_grad[2]:
        channel = grad_output.dim() - axes - 1
        grad_bias = grad_output.sum([d for d in range(grad_output.dim()) if d != channel])
    return (grad_input, grad_weight, grad_bias) + (None,) * 7


def _compute_weight_grad(input, grad_output, kernel_size, stride, padding, dilation, groups, transposed, bias,
                         precision):
    axes = len(kernel_size)
    name = _library.name_of(axes, transposed) + " (gradient of the weight)"
    _library.check_ranks(axes, transposed, input.shape, (1,) * (axes + 2))
    grads = _empty_weight_grad(input, grad_output, kernel_size, stride, padding, dilation, groups, transposed, bias,
                               precision)
    # The weight's entry has dtype and device of grad_output, so that those are checked too.
    description = _library.describe(
        transposed, precision, _described(name, "input", input),
        _described(name, "grad_output", grad_output, grads[0].shape),
        _described(name, "bias", grads[1]) if bias else None, tuple(grad_output.shape[-axes:]), tuple(stride),
        tuple(padding), tuple(dilation), groups)
    channels = grads[0].shape[1] * groups if transposed else grads[0].shape[0]
    expected = (*input.shape[:-axes - 1], channels, *grad_output.shape[-axes:])
    if tuple(grad_output.shape) != expected:
        raise ValueError(f"{name}: grad_output must have shape {expected}, got {tuple(grad_output.shape)}")
    _run(_library.weight_grad, input.device, description, _dense(input), _dense(grad_output), grads[0],
         grads[1] if bias else None)
    return grads


def _empty_weight_grad(input, grad_output, kernel_size, stride, padding, dilation, groups, transposed, bias, precision):
    channel = -len(kernel_size) - 1
    ends = (input, grad_output) if transposed else (grad_output, input)
    weight_shape = (ends[0].shape[channel], ends[1].shape[channel] // groups, *kernel_size)
    return _empty(input, weight_shape), _empty(input, (grad_output.shape[channel] if bias else 0,))


def _save_weight_grad_operands(ctx, inputs, output):
    input, grad_output, _, *ctx.options = inputs
    ctx.save_for_backward(input, grad_output)
    ctx.axes = len(inputs[2])


def _gradients_of_weight_grad(ctx, grad_weight, grad_bias):
    input, grad_output = ctx.saved_tensors
    *steps, groups, transposed, bias, precision = ctx.options
    axes = ctx.axes
    grad_of_input = grad_of_grad = None
    refuse_modes("backward", input, grad_output, grad_weight, grad_bias)
    if ctx.needs_input_grad[0]:
        grad_of_input = convolution(grad_output, grad_weight, None, input.shape[-axes:], *steps, groups, not transposed,
                                    precision)
    if ctx.needs_input_grad[1]:
        grad_of_grad = convolution(input, grad_weight, grad_bias if bias else None, grad_output.shape[-axes:], *steps,
                                   groups, transposed, precision)
    return (grad_of_input, grad_of_grad) + (None,) * 8


# ---- The ops --------------------------------------------------------------------------------------------------------

def _as_function(name, compute, save, gradients):
    """A differentiable function, as PyTorch 1.13 defines it. It costs the host a third of a custom op's time."""

    def forward(ctx, *inputs):
        output = compute(*inputs)
        save(ctx, inputs, output)
        return output

    namespace = {"forward": staticmethod(forward), "backward": staticmethod(gradients)}
    return type(name, (torch.autograd.Function,), namespace).apply


def _as_library_op(name, schema, compute, empty, save, gradients):
    """A custom op, which torch.compile, torch.export and FakeTensors know; a plain function where none of these, nor
    another mode of PyTorch, is at work."""
    torch.library.define(name, schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(name, ("cpu", "cuda"), compute)
    torch.library.register_fake(name, empty)
    torch.library.register_autograd(name, gradients, setup_context=save)
    op = getattr(torch.ops.voxgrad, name.split("::")[1])
    function = _as_function(name.replace("::", "_"), compute, save, gradients)

    def call(input, *others):
        plain = function if torch.is_grad_enabled() else compute
        return (op if compiling() or not is_plain(input) else plain)(input, *others)
    return call


if hasattr(torch.library, "register_autograd"):
    _OPTIONS = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups, bool transposed"
    convolution = _as_library_op(
        "voxgrad::convolution",
        f"(Tensor input, Tensor weight, Tensor? bias, SymInt[] output_size, {_OPTIONS}, str precision) -> Tensor",
        _compute, _fake_output, _save_operands, _gradients)
    convolution_weight_grad = _as_library_op(
        "voxgrad::convolution_weight_grad",
        f"(Tensor input, Tensor grad_output, SymInt[] kernel_size, {_OPTIONS}, bool bias, str precision) -> "
        "(Tensor, Tensor)",
        _compute_weight_grad, _empty_weight_grad, _save_weight_grad_operands, _gradients_of_weight_grad)
else:
    convolution = _as_function("VoxgradConvolution", _compute, _save_operands, _gradients)
    convolution_weight_grad = _as_function("VoxgradConvolutionWeightGrad", _compute_weight_grad,
                                           _save_weight_grad_operands, _gradients_of_weight_grad)
