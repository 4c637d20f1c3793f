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

import functools
from ctypes import c_int64, c_void_p

import torch
from torch.autograd import forward_ad

from .. import _capi, _library
from . import _version

NUMBERS = {torch.float32: 0, torch.float64: 1, torch.int64: 2, torch.uint8: 3, torch.bool: 4, torch.bfloat16: 5,
           torch.float16: 6}  # of vox::DType
COMPUTED = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def name_of(axes, transposed):
    return f"conv{'_transpose' if transposed else ''}{axes}d"


def _refuse_tangents(*tensors):
    """The ops of torch.library ignore tangents, so a forward-mode derivative of a gradient would be 0."""
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None
                                              for t in tensors if t is not None):
        raise NotImplementedError("voxgrad: forward-mode derivatives of a gradient are not supported")


PLAIN = (torch.Tensor, torch.nn.Parameter)
# PyTorch 1.13 has none of these.
compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
# Whether torch.compile can trace a call of _transforms().
_traceable = _version >= (2, 11)
# What torch.cuda.current_stream() makes an object of; PyTorch without CUDA does not have it.
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def is_plain(tensor):
    """Whether a tensor has memory that an op may use at once: it is PyTorch's own, and no mode of PyTorch is at work."""
    return (type(tensor) in PLAIN and tensor.device.type in ("cpu", "cuda") and
            modes() == 0 and not _transforms())


def in_transform():
    """Whether only PyTorch's ops know what is going on: transforms of torch.func, forward-mode derivatives, tracing."""
    if forward_ad._current_level >= 0:
        return True
    if compiling():
        return _traceable and _transforms()
    return _transforms() or torch._C._is_tracing()


def is_foreign(tensor):
    """Whether a layer must leave this input to PyTorch."""
    return (not isinstance(tensor, torch.Tensor) or tensor.dtype not in COMPUTED or tensor.layout is not torch.strided or
            tensor.device.type not in ("cpu", "cuda") or in_transform())


def address(tensor):
    """The address of a tensor's memory; 0 if it has no elements."""
    found = tensor.data_ptr()
    if found == 0 and tensor.numel():
        raise RuntimeError(f"voxgrad: an operand of shape {tuple(tensor.shape)} has no memory of its own: PyTorch does "
                           "not store it, or it is a wrapper")
    return found


# ---- Kernels of _kernels.cpp, by name -------------------------------------------------------------------------------

def dense(tensor):
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.resolve_neg().contiguous()


def _operand(tensor):
    """What a kernel must know of a tensor, beside its address."""
    return tensor.dtype, tensor.device, tensor.shape, tensor.layout


@functools.lru_cache(maxsize=4096)
def _described(values):
    """The arguments of a call, its operands without their addresses, and the type of these, as voxgrad_kernel takes them."""
    arguments, operands, count = [], [], 0
    for value in values:
        if isinstance(value, tuple) and value and isinstance(value[0], torch.dtype):
            dtype, device, shape, _ = value
            operands += [NUMBERS[dtype], device.index if device.type == "cuda" else -1, len(shape), *shape]
            value = _capi.Result()
            value.place, count = count, count + 1
        arguments.append(value)
    return _capi.arguments(arguments), len(arguments), (c_int64 * len(operands))(*operands), c_void_p * count


def _call(name, described, addresses, stream=None):
    arguments, count, operands, array = described
    _library._checked(_library._library.voxgrad_kernel(name, arguments, count, operands, array(*addresses),
                                                       len(addresses), stream))


def _run(name, described, tensors):
    """Runs a kernel in the current stream."""
    addresses, device, stream = [address(t) for t in tensors if t is not None], tensors[0].device, None
    on_cuda = device.type == "cuda"
    if on_cuda:
        stream = _current_stream(device.index)
    try:
        return _call(name, described, addresses, stream)
    except _library.OutOfMemory as error:
        if not on_cuda:
            raise RuntimeError(str(error)) from None
    torch.cuda.empty_cache()  # PyTorch may hold the memory that voxgrad needs for its work
    try:
        return _call(name, described, addresses, stream)
    except _library.OutOfMemory as error:
        raise torch.cuda.OutOfMemoryError(str(error)) from None


def kernel(name, *values):
    """Runs a kernel on dense tensors and other values, of which the first is a tensor."""
    _run(name, _described(tuple(_operand(v) if isinstance(v, torch.Tensor) else v for v in values)),
         [v for v in values if isinstance(v, torch.Tensor)])


# ---- The plain functions: computation, shapes, gradients ------------------------------------------------------------

@functools.lru_cache(maxsize=4096)
def _convolution(input, weight, bias, *steps):
    """The size of the result, and the description of the call. Raises voxgrad's error if it does not compute this."""
    output_size, *_, groups, transposed, _ = steps
    function = name_of(len(weight[2]) - 2, transposed)
    for argument, operand in (("input", input), ("weight", weight), ("bias", bias)):
        if operand is not None:
            _check_operand(function, argument, *operand)
    if not all(-2**63 <= number < 2**63 for numbers in (*steps[:4], (groups,)) for number in numbers):
        raise ValueError(f"{function}: sizes and options must fit 64 bits, got {steps[:4]} and {groups} groups")
    check = _described((input, weight, bias, None, *steps))
    try:
        _call(b"convolution", check, [64] * check[-1]._length_)  # without a result it only checks
    except RuntimeError as error:  # of the device
        raise RuntimeError(str(error).replace("convolution:", f"{function}:", 1)) from None
    channels = weight[2][1] * groups if transposed else weight[2][0]
    size = *input[2][:len(input[2]) - len(output_size) - 1], channels, *output_size
    return size, _described((input, weight, bias, (*input[:2], size, torch.strided), *steps))


def _check_operand(function, argument, dtype, device, shape, layout):
    if layout is not torch.strided or dtype not in COMPUTED:
        raise TypeError(f"{function}: {argument} is a tensor of {dtype if layout is torch.strided else layout}; voxgrad "
                        f"computes strided tensors of {', '.join(map(str, COMPUTED))}")
    if device.type not in ("cpu", "cuda"):
        raise RuntimeError(f"{function}: {argument} is on {device}; voxgrad computes on cpu and cuda")
    if device.type == "cuda" and not _library.has_cuda():
        raise RuntimeError(f"{function}: this build of voxgrad has no CUDA")


def _compute(input, weight, bias, output_size, stride, padding, dilation, groups, transposed, precision):
    size, described = _convolution(
        _operand(input), _operand(weight), None if bias is None else _operand(bias), tuple(output_size), tuple(stride),
        tuple(padding), tuple(dilation), groups, transposed, precision)
    output = _empty(input, size)
    _run(b"convolution", described, (dense(input), dense(weight), None if bias is None else dense(bias), output))
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
    name, channel = name_of(weight.dim() - 2, transposed), input.dim() - len(output_size) - 1
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
    _refuse_tangents(input, weight, grad_output)
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
    function = name_of(len(kernel_size), transposed) + " (gradient of the weight)"
    for argument, tensor in (("input", input), ("grad_output", grad_output)):
        _check_operand(function, argument, *_operand(tensor))
        if tensor.dim() not in (len(kernel_size) + 1, len(kernel_size) + 2) or tensor.dim() != input.dim() or groups < 1:
            raise ValueError(f"{function}: {argument} has shape {tuple(tensor.shape)}, input {tuple(input.shape)}, with "
                             f"{len(kernel_size)} axes and {groups} groups")
    grads = _empty_weight_grad(input, grad_output, kernel_size, stride, padding, dilation, groups, transposed, bias,
                               precision)
    kernel(b"convolution_weight_grad", dense(input), dense(grad_output), grads[0], grads[1] if bias else None,
           tuple(grad_output.shape[-len(kernel_size):]), tuple(stride), tuple(padding), tuple(dilation), groups,
           transposed, precision)
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
    _refuse_tangents(input, grad_output, grad_weight, grad_bias)
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
