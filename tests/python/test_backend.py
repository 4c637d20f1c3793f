"""torch.compile(model, backend="voxgrad") and voxgrad.torch.explain: whole models, forward, gradients and training."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import voxgrad.torch
from support import assert_close

pytestmark = pytest.mark.skipif(voxgrad.torch._version < (2, 5),
                                reason="the backend needs graphs of functions, which PyTorch 2.5 and newer make")
if voxgrad.torch._version >= (2, 5):
    import voxgrad.torch.backend  # the name is known where the package is not installed


@pytest.fixture(autouse=True)
def reset():
    torch.compiler.reset()


def compiled(model, rest="aot_eager", **options):
    """The graph is whole, and what is not voxgrad's runs in PyTorch's own ops, whose results differ least."""
    return torch.compile(model, backend="voxgrad", fullgraph=True, options={"rest": rest}, **options)


def results(model, *inputs):
    """The result, and the gradients of inputs and parameters."""
    inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    y = model(*inputs)
    leaves = [x for x in inputs if x.requires_grad] + list(model.parameters())
    along = torch.linspace(-1, 2, y.numel(), dtype=y.dtype, device=y.device).reshape(y.shape)
    return [y, *torch.autograd.grad(y, leaves, along, allow_unused=True)]


def assert_same(got, expected, limit):
    assert len(got) == len(expected)
    for number, (g, e) in enumerate(zip(got, expected)):
        assert (g is None) == (e is None)
        if e is not None:
            assert g.dtype == e.dtype
            assert_close(g, e, f"number {number}", limit)


class Sampler(nn.Module):
    """Each op of the backend once, with options that are not the defaults."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(2, 6, 3, padding="same", padding_mode="reflect", bias=False)
        self.batch, self.instance = nn.BatchNorm3d(6), nn.InstanceNorm3d(6, affine=True)
        self.group = nn.GroupNorm(3, 6, eps=1e-3)
        self.second = nn.Conv3d(6, 6, (3, 1, 2), stride=(1, 2, 1), padding=(1, 0, 1), groups=2, bias=False)
        self.up = nn.ConvTranspose3d(6, 6, 3, stride=2, padding=1, output_padding=1, groups=3)
        self.relu, self.leaky = nn.ReLU(inplace=True), nn.LeakyReLU(0.2)
        self.pool = nn.MaxPool3d(3, stride=2, padding=1, ceil_mode=True)
        self.trilinear = nn.Upsample(scale_factor=(1.5, 2, 2), mode="trilinear")
        self.nearest = nn.Upsample(size=(9, 7, 8), mode="nearest")

    def forward(self, x):
        x = self.relu(self.batch(self.first(x)))
        y = self.pool(self.leaky(self.instance(self.second(x))))
        z = self.leaky(self.group(self.up(y)))
        z = F.interpolate(self.trilinear(z), size=(5, 6, 7), mode="trilinear", align_corners=True)
        return torch.cat([self.nearest(z).flatten(1), x.flatten(1)], 1)


def test_equals_eager(device):
    model = Sampler().double().to(device)
    other = copy.deepcopy(model)
    x = torch.randn(2, 2, 5, 6, 8, dtype=torch.float64, device=device)
    assert_same(results(compiled(model), x), results(other, x), 1e-11)
    for name, buffer in other.named_buffers():  # running statistics
        assert torch.allclose(model.get_buffer(name), buffer, rtol=1e-10), name
    other.eval()
    x = x.to(memory_format=torch.channels_last_3d)
    assert_close(compiled(model.eval())(x), other(x), limit=1e-11)


def test_explain_names_what_is_taken_and_what_is_left():
    model = Sampler()
    before = copy.deepcopy(model.state_dict())
    explanation = voxgrad.torch.explain(model, torch.randn(2, 2, 5, 6, 8))
    in_layers = [("conv3d", "first"), ("batch_norm", "batch"), ("relu", "relu"), ("conv3d", "second"),
                 ("instance_norm", "instance"), ("leaky_relu", "leaky"), ("max_pool3d", "pool"),
                 ("conv_transpose3d", "up"), ("group_norm", "group"), ("leaky_relu", "leaky"),
                 ("interpolate", "trilinear"), ("interpolate", "nearest")]
    layers = dict(model.named_children())
    assert sorted(taken for taken in explanation.taken if taken[1] in layers) == sorted(in_layers)
    assert len(explanation.taken) == 13
    assert {"cat", "pad"} <= {op for op, _, _ in explanation.left}
    assert explanation.graphs == 1 and not explanation.breaks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert "graphs: 1; voxgrad computes 13 ops of " in str(explanation) and "conv3d (2)" in str(explanation)
    voxgrad.torch.convert(model, verbose=False)
    assert len(voxgrad.torch.explain(model, torch.randn(2, 2, 5, 6, 8)).taken) == 13


@pytest.mark.parametrize("function, why", [
    (lambda x: F.batch_norm(x, x.new_zeros(2), x.new_ones(2)), "in evaluation it is elementwise"),
    (lambda x: F.conv3d(x.to(torch.complex64), torch.ones(1, 2, 1, 1, 1, dtype=torch.complex64)).real, "complex64"),
    (lambda x: F.conv3d(x[:0], torch.ones(1, 2, 1, 1, 1)), "no elements"),
    (lambda x: F.interpolate(x, scale_factor=2, mode="area"), "modes nearest and trilinear"),
    (lambda x: F.instance_norm(x[0]), "no volume"),
    (lambda x: F.max_pool3d(x, 2, return_indices=True)[0], "returns indices"),
    (lambda x: torch.func.grad(lambda t: F.conv3d(t, torch.ones(1, 2, 1, 1, 1)).sum())(x), "transform of torch.func"),
])
def test_what_is_left_runs_in_pytorch(function, why):
    x = torch.randn(1, 2, 4, 4, 4)
    assert torch.equal(compiled(function)(x), function(x))
    assert any(why in reason for _, _, reason in voxgrad.torch.explain(function, x).left)


def test_foreign_functions_and_graph_breaks():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    conv = nn.Conv3d(1, 2, 3)

    def model(x):
        y = Twice.apply(torch.fft.fftn(conv(x)).real)
        torch._dynamo.graph_break()
        return conv(y[:, :1])

    model.parameters = conv.parameters
    x = torch.randn(1, 1, 6, 6, 6)
    by_voxgrad = torch.compile(model, backend="voxgrad", options={"rest": "aot_eager"})
    by_voxgrad.parameters = conv.parameters
    assert_same(results(by_voxgrad, x), results(model, x), 1e-5)
    explanation = voxgrad.torch.explain(model, x)
    assert explanation.graphs == 2 and len(explanation.taken) == 2 and explanation.breaks
    assert "fft_fftn" in str(explanation) and "graph break" in str(explanation)


def test_errors_of_the_model_stay_its_own():
    conv = nn.Conv3d(3, 2, 3)
    with pytest.raises(Exception, match="to have 3 channels, but got 2 channels"):
        compiled(conv)(torch.randn(1, 2, 4, 4, 4))

    @torch.compile(backend="voxgrad", options={"rest": "aot_eager"})
    def raises(x):
        if x.shape[0] == 1:
            raise KeyError("mine")
        return F.conv3d(x, x)

    with pytest.raises(KeyError, match="mine"):
        raises(torch.randn(1, 2, 4, 4, 4))


def test_dynamic_sizes(device):
    model = Sampler().double().to(device)
    function = compiled(model)
    for batch, size in ((2, 8), (3, 8), (5, 8), (1, 8), (3, 10)):
        x = torch.randn(batch, 2, 5, 6, size, dtype=torch.float64, device=device)
        other = copy.deepcopy(model)
        assert_same(results(function, x), results(other, x), 1e-11)


def test_autocast_inside_and_outside(device):
    """Within twice the distance of PyTorch's own bf16 from f32, in the same dtypes."""
    model = nn.Sequential(nn.Conv3d(2, 8, 3, padding=1, bias=False), nn.InstanceNorm3d(8, affine=True), nn.LeakyReLU(),
                          nn.ConvTranspose3d(8, 2, 2, stride=2)).to(device)
    x = torch.randn(2, 2, 6, 6, 6, device=device)

    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            with torch.autocast(device.type, torch.bfloat16):
                return self.model(x)

    exact = results(model, x)
    theirs = results(Inside(), x)
    for mine in (results(compiled(Inside()), x), ):
        for m, t, e in zip(mine, theirs, exact):
            assert m.dtype == t.dtype
            assert (m.float() - e).norm() <= 2 * (t.float() - e).norm()
    with torch.autocast(device.type, torch.bfloat16):
        y = compiled(model)(x)
        assert y.dtype == torch.bfloat16 and (y - exact[0]).norm() <= 2 * (model(x) - exact[0]).norm()


def test_checkpoint_and_distributed(tmp_path):
    """Graphs inside a graph, and graphs that DistributedDataParallel cuts."""
    class Model(nn.Module):  # DistributedDataParallel does not let TorchDynamo see a bare Sequential
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv3d(1, 80, 3, bias=False), nn.InstanceNorm3d(80), nn.ReLU(),
                                        nn.Conv3d(80, 80, 3), nn.Conv3d(80, 1, 1))  # the last two fill a bucket, 1 MB

        def forward(self, x):
            return self.layers(x)

    model = Model().double()
    x = torch.randn(2, 1, 7, 7, 7, dtype=torch.float64)
    expected = results(model, x)

    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    assert len(voxgrad.torch.explain(checkpointed, x).taken) == 5
    function = compiled(checkpointed)
    function.parameters = model.parameters
    assert_same(results(function, x), expected, 1e-12)

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
        taken = voxgrad.torch.explain(parallel, x)
        assert len(taken.taken) == 5 and taken.graphs > 1
        torch.compile(parallel, backend="voxgrad", options={"rest": "aot_eager"})(x).sum().backward()
        grads = [p.grad for p in model.parameters()]
        assert_same(grads, torch.autograd.grad(model(x).sum(), list(model.parameters())), 1e-12)
    finally:
        torch.distributed.destroy_process_group()


def test_inference_saves_nothing():
    model = Sampler()
    x = torch.randn(2, 2, 5, 6, 8)
    saved = []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(saved.append, lambda t: t):
        y = compiled(model)(x)
    assert not y.requires_grad and not saved


def test_the_precision_is_that_of_the_first_call():
    seen = []

    def record(graph, inputs):
        voxgrad.torch.backend._replace(graph, [])
        from torch._dynamo.backends.common import aot_autograd
        return aot_autograd(fw_compiler=lambda g, _: (seen.append(str(g.code)), g.forward)[1])(graph, inputs)

    with voxgrad.torch.precision("medium"), torch.no_grad():
        torch.compile(nn.Conv3d(1, 1, 1), backend=record)(torch.ones(1, 1, 2, 2, 2))
    assert "'medium'" in seen[0]


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}])
def test_with_inductor(options, device):
    """By default inductor compiles the rest; where it cannot, PyTorch runs it, with a warning. CUDA graphs replay."""
    model = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1, bias=False), nn.BatchNorm3d(4), nn.ReLU(),
                          nn.MaxPool3d(2)).double().to(device)
    other = copy.deepcopy(model)
    function = torch.compile(model, backend="voxgrad", **options)
    for seed in range(4):
        x = torch.randn(2, 1, 6, 6, 6, dtype=torch.float64, device=device)
        assert_same([t.clone() for t in results(function, x)], results(other, x), 1e-11)
    for name, buffer in other.named_buffers():
        assert torch.allclose(model.get_buffer(name), buffer, rtol=1e-10), name


def test_options_are_checked():
    for wrong in ({"options": {"fast": True}}, {"mode": "fastest"}):
        with pytest.raises(Exception, match="fast"):
            torch.compile(nn.Conv3d(1, 1, 1), backend="voxgrad", **wrong)(torch.ones(1, 1, 2, 2, 2))


def test_runs_uncompiled_where_inductor_fails(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no compiler")
    monkeypatch.setitem(torch._dynamo.backends.registry._COMPILER_FNS, "inductor", fails)
    conv, x = nn.Conv3d(1, 2, 3), torch.randn(1, 1, 4, 4, 4)
    with pytest.warns(UserWarning, match="inductor cannot compile this graph .no compiler."):
        y = torch.compile(conv, backend="voxgrad")(x)
    assert_close(y, conv(x))


def test_pytorchs_checks_of_the_ops(device):
    x, weight = torch.randn(2, 4, 4, 4, 4, device=device), torch.randn(4, device=device)
    ops = torch.ops.voxgrad
    torch.library.opcheck(ops.norm, (x, weight, None, (2, 4, 64, 4, 64), 1e-5, 0.1))
    torch.library.opcheck(ops.max_pool3d, (x, (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), False))
    torch.library.opcheck(ops.interpolate, (x, (8, 4, 4), [4, 1, 1, 8, 1, 1, 0.5, 0, 0, 0, 1, 1], False))
