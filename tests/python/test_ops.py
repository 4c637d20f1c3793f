"""The ops by name against torch.nn.functional: results, gradients, second gradients, autocast, writes in place."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from support import LIMITS, assert_close, voxgrads

# name, shapes of the operands that have gradients, further arguments, keywords
CASES = [(name, [(2, 3, 4, 5)], (), {}) for name in (
    "relu", "relu6", "sigmoid", "tanh", "silu", "mish", "hardsigmoid", "hardswish", "leaky_relu", "elu", "gelu", "softplus",
    "hardtanh")]
CASES += [
    ("gelu", [(7,)], (), {"approximate": "tanh"}), ("prelu", [(2, 3, 4), (3,)], (), {}),
    ("softmax", [(2, 5, 3)], (1,), {}), ("log_softmax", [(2, 5)], (-1,), {}),
    ("group_norm", [(2, 6, 4, 3), "4", (6,), (6,)], (), {}), ("layer_norm", [(3, 4, 5), "shape", (4, 5), (4, 5)], (), {}),
    ("batch_norm", [(4, 3, 5), "none", "none", (3,), (3,)], (True,), {}),
    ("batch_norm", [(4, 3, 2, 3, 4), "mean", "var", (3,), (3,)], (False,), {}),
    ("instance_norm", [(2, 3, 4, 5), "none", "none", (3,), (3,)], (), {}),
    ("cross_entropy", [(4, 5, 3), "classes"], (), {"label_smoothing": 0.1}),
    ("binary_cross_entropy_with_logits", [(4, 5), "target"], (), {}),
] + [(f"max_pool{axes}d", [(2, 3) + (7, 6, 5)[:axes]], (3, 2, 1), {"ceil_mode": True}) for axes in (1, 2, 3)] + [
    (f"avg_pool{axes}d", [(2, 3) + (7, 6, 5)[:axes]], (3, 2, 1), {"count_include_pad": False}) for axes in (1, 2, 3)] + [
    (f"adaptive_{how}_pool{axes}d", [(2, 3) + (7, 6, 5)[:axes]], (2,), {}) for axes in (1, 2, 3) for how in ("avg", "max")] + [
    (name, [(4, 5), (4, 5)], (), {"reduction": reduction}) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    for reduction in ("mean", "none")] + [
    ("interpolate", [(2, 3) + (4, 3, 2)[:axes]], (), {"scale_factor": 2, "mode": mode}) for axes, linear in (
        (1, "linear"), (2, "bilinear"), (3, "trilinear")) for mode in ("nearest", linear)] + [
    ("interpolate", [(2, 3, 4, 3)], (), {"size": (5, 7), "mode": "bilinear", "align_corners": True}),
    ("grid_sample", [(1, 2, 4, 5), (1, 3, 3, 2)], (), {"align_corners": False}),
    ("scaled_dot_product_attention", [(2, 2, 5, 4)] * 3, (), {}),
    *(("pad", [(2, 3, 4, 5)], ((2, 1, 0, 3),), options) for options in (
        {}, {"value": 1.5}, {"mode": "reflect"}, {"mode": "replicate"}, {"mode": "circular"})),
]

# Where PyTorch has no second gradient, or not on every device.
REFERENCES = {"hardsigmoid": lambda x: F.relu6(x + 3) / 6, "hardswish": lambda x: x * F.relu6(x + 3) / 6, "scaled_dot_product_attention": lambda q, k, v:
              (q @ k.transpose(-1, -2) / q.shape[-1]**0.5).softmax(-1) @ v}


def operands(shapes, dtype, device):
    named = {"4": 3, "none": None, "shape": (4, 5), "mean": torch.randn(3), "var": torch.rand(3) + 0.5,
             "classes": torch.randint(5, (4, 3)), "target": torch.rand(4, 5)}
    made = []
    for shape in shapes:
        value = torch.randn(shape, dtype=torch.float64) if isinstance(shape, tuple) else named[shape]
        if isinstance(value, torch.Tensor):
            value = value.to(device, dtype if value.is_floating_point() else None)
        made.append(value.requires_grad_() if isinstance(shape, tuple) else value)
    return made


def second_gradients(function, tensors, further, keywords, order=2):
    """The result, gradients and second gradients along fixed directions."""
    leaves = [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]
    result = function(*tensors, *further, **keywords)
    start = torch.linspace(-1, 1, result.numel(), dtype=result.dtype, device=result.device).reshape(result.shape)
    start.requires_grad_()
    gradients = torch.autograd.grad(result, leaves, start, create_graph=order == 2)
    known = [g for g in gradients if g.requires_grad]
    along = [torch.linspace(1, -2, g.numel(), dtype=g.dtype, device=g.device).reshape(g.shape) for g in known]
    second = torch.autograd.grad(known, [*leaves, start], along, allow_unused=True) if known and order == 2 else []
    return [result, *gradients, *(torch.zeros(()) if s is None else s for s in second)]


@pytest.mark.parametrize("name, shapes, further, keywords", CASES)
def test_equals_pytorch(name, shapes, further, keywords, device):
    tensors = operands(shapes, torch.float64, device)
    order = 1 if name == "grid_sample" else 2  # PyTorch has no second one in all versions; test_grid_sample_twice
    got = second_gradients(voxgrads(name), tensors, further, keywords, order)
    expected = second_gradients(REFERENCES.get(name) or getattr(F, name), tensors, further, keywords, order)
    assert len(got) == len(expected)
    for number, (g, e) in enumerate(zip(got, expected)):
        if g.dim() == e.dim():
            assert_close(g, e, f"number {number}", 1e-12)
        else:  # a second gradient that is 0 is none in one of both
            assert g.abs().max() == e.abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["instance_norm", "silu", "avg_pool3d", "softmax"])
def test_narrow_dtypes(name, dtype, device):
    x = torch.randn(2, 3, 4, 4, 4, device=device).to(dtype).requires_grad_()
    further = {"avg_pool3d": (2,), "softmax": (1,)}.get(name, ())
    results = []
    for function, t in ((voxgrads(name), x), (getattr(F, name), x.detach().double().requires_grad_())):
        y = function(t, *further)
        results.append((y, torch.autograd.grad(y, t, torch.linspace(-1, 1, y.numel(), device=device).to(y.dtype).reshape(y.shape))[0]))
    assert results[0][0].dtype == results[0][1].dtype == dtype
    for got, expected in zip(*results):
        assert_close(got, expected, limit=4 * LIMITS[dtype])


def test_cat(device):
    def joined(cat):
        return second_gradients(lambda *t: cat([*t, t[0]], dim=-2), tensors, (), {})

    tensors = operands([(2, 3, 4), (2, 1, 4)], torch.float64, device)
    assert all(torch.equal(g, e) for g, e in zip(joined(voxgrads("cat")), joined(torch.cat)))
    mixed = [torch.ones(2, dtype=dtype, device=device) for dtype in (torch.bfloat16, torch.float32)]
    assert voxgrads("cat")(mixed).dtype == torch.float32


def test_grid_sample_twice(device):
    x, grid = operands([(1, 2, 4, 5), (1, 3, 3, 2)], torch.float64, device)
    assert torch.autograd.gradgradcheck(lambda *t: voxgrads("grid_sample")(*t, align_corners=False), (x, grid))


def test_norm_with_activation(device):
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, device=device, requires_grad=True)
    for slope in (0.0, 0.01):
        got = second_gradients(voxgrads("instance_norm"), [x], (), {"negative_slope": slope})
        expected = second_gradients(lambda t: F.leaky_relu(F.instance_norm(t), slope), [x], (), {})
        for g, e in zip(got, expected):
            assert_close(g, e, limit=1e-12)


def test_running_statistics_are_written_once(device):
    x = torch.randn(4, 3, 5, device=device, requires_grad=True)

    def run(batch_norm, use_checkpoint):
        mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
        f = lambda t: batch_norm(t, mean, var, training=True)  # noqa: E731
        y = checkpoint(f, x, use_reentrant=False) if use_checkpoint else f(x)
        return [y, mean.clone(), var.clone(), *torch.autograd.grad(y.square().sum() + y[0].sum(), x)]

    expected = run(F.batch_norm, False)
    for use_checkpoint in (False, True):
        for g, e in zip(run(voxgrads("batch_norm"), use_checkpoint), expected):
            assert_close(g, e, limit=1e-5)


def test_checkpoint_and_saved_tensor_hooks(device):
    x = torch.randn(2, 3, 4, dtype=torch.float64, device=device, requires_grad=True)
    functions = voxgrads("silu"), voxgrads("instance_norm")

    def block(t):
        for f in functions:
            t = f(t)
        return t

    direction = torch.linspace(-1, 1, 24, dtype=torch.float64, device=device).reshape(2, 3, 4)
    plain, = torch.autograd.grad(block(x), x, direction)
    again, = torch.autograd.grad(checkpoint(block, x, use_reentrant=False), x, direction)
    assert torch.equal(again, plain)
    checkpoint(block, x, use_reentrant=True).backward(direction)
    assert torch.equal(x.grad, plain)
    with torch.autograd.graph.save_on_cpu():
        y = block(x)
    assert torch.equal(torch.autograd.grad(y, x, direction)[0], plain)


def test_writes_in_place_are_noticed_where_they_matter(device):
    x = torch.randn(5, device=device, requires_grad=True)
    y = voxgrads("sigmoid")(x)  # its gradient reads y
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    z = voxgrads("instance_norm")(x.reshape(1, 1, 5))  # its gradient reads x
    z.relu_()
    z.sum().backward()


def test_second_backward(device):
    x = torch.randn(5, device=device, requires_grad=True)
    y = voxgrads("relu")(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad, 2 * (x > 0))
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.skipif(not hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph"),
                    reason="this PyTorch does not say whether a backward keeps its graph")
def test_memory_is_freed_by_backward(device):
    import gc
    import weakref
    x = torch.randn(1000, device=device, requires_grad=True)
    middle = x * 1
    reference = weakref.ref(middle)
    y = voxgrads("silu")(middle).sum()
    del middle
    assert reference() is not None
    y.backward()
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("name, shapes, further", [
    ("softmax", [(2, 5)], (1,)), ("layer_norm", [(3, 4, 5), "shape", (4, 5), (4, 5)], ()), ("relu", [(5,)], ()),
    ("group_norm", [(2, 6, 4), "4", (6,), (6,)], ()), ("mse_loss", [(5,), (5,)], ())])
def test_autocast(name, shapes, further):
    """By the rules of CUDA, which the CPU's are not; so PyTorch's dtypes are stated here."""
    dtype = torch.bfloat16
    tensors = operands(shapes, dtype, "cpu")
    with torch.autocast("cpu", dtype):
        assert voxgrads(name)(*tensors, *further).dtype == (dtype if name == "relu" else torch.float32)


def test_autocast_of_several_dtypes():
    x, grid = torch.randn(1, 1, 2, 2, dtype=torch.bfloat16), torch.zeros(1, 1, 1, 2)
    q, mask = torch.randn(1, 3, 4), torch.randn(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert voxgrads("grid_sample")(x, grid).dtype == torch.float32
        assert voxgrads("grid_sample")(x, grid.bfloat16()).dtype == torch.bfloat16
        assert voxgrads("scaled_dot_product_attention")(q, q, q, mask).dtype == torch.bfloat16


def test_refusals():
    x = torch.randn(2, 3, 4)
    with pytest.raises(ValueError, match="interpolate: mode must be nearest or linear"):
        voxgrads("interpolate")(x, scale_factor=2, mode="area")
    with pytest.raises(ValueError, match="cat: there must be at least one tensor"):
        voxgrads("cat")([])
    with pytest.raises(ValueError, match="max_pool3d: input must have 5 dimensions"):
        voxgrads("max_pool3d")(x[0], 2)
    with pytest.raises(TypeError, match="relu: input must be a tensor"):
        voxgrads("relu")(1.0)
    with pytest.raises(TypeError, match="complex"):
        voxgrads("relu")(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match="dropout_p must be 0"):
        voxgrads("scaled_dot_product_attention")(x, x, x, dropout_p=0.1)
    with pytest.raises(ValueError, match="group_norm"):
        voxgrads("group_norm")(x, 2)
