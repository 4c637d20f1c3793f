"""A small network of every kind of layer, converted and by the backend, used in the ways of PyTorch's users: the results
and gradients are those of PyTorch's own layers in f64."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

import voxgrad.torch
from support import assert_close
from test_models import by_voxgrad

WAYS = ["convert", "backend"]
new = pytest.mark.skipif(voxgrad.torch._version < (2, 4), reason="PyTorch 1.13 has no such thing, or not on the CPU")


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1, bias=False), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2),
                                  nn.Conv3d(4, 6, 3, padding=1), nn.InstanceNorm3d(6, affine=True), nn.LeakyReLU(0.1))
        self.up = nn.ConvTranspose3d(6, 4, 2, stride=2)
        self.norm, self.silu, self.upsample = nn.GroupNorm(2, 4), nn.SiLU(), nn.Upsample(scale_factor=2, mode="trilinear")
        self.head = nn.Conv3d(4, 2, 1)

    def forward(self, x):
        return self.head(self.silu(self.norm(self.up(self.down(x)) + self.upsample(self.down[:4](x)))))


def network(device="cpu", dtype=torch.float64):
    torch.manual_seed(4)
    return Network().to(device, dtype), torch.randn(2, 1, 8, 6, 4, dtype=dtype, device=device)


def gradients(model, run, x):
    x = x.detach().requires_grad_()
    y = run(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters() if p.requires_grad)]


def penalty(model, run, x):
    x = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
    (grad.flatten(1).norm(dim=1) - 1).square().sum().backward()
    return [grad.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def offloaded(model, run, x):
    with torch.autograd.graph.save_on_cpu():
        return gradients(model, run, x)


def twice(model, run, x):
    loss = run(x).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    return [p.grad for p in model.parameters()]


def inferred(model, run, x):
    with torch.inference_mode():
        return [run(x), run(x)]


def without_a_batch(model, run, x):
    model.eval()
    return gradients(model, run, x[:0])


def freeze(model):
    for number, p in enumerate(model.parameters()):
        p.requires_grad_(number % 3 == 0)


def normed(norm, *layers):
    return lambda model: [norm(m) for m in list(model.modules()) if isinstance(m, layers)]


CONVOLUTIONS, NORMS = (nn.Conv3d, nn.ConvTranspose3d), (nn.BatchNorm3d, nn.InstanceNorm3d, nn.GroupNorm)
USES = {  # what is done to the model before voxgrad sees it, and what is done with it
    "contiguous": (None, gradients),
    "channels last": (lambda model: model.to(memory_format=torch.channels_last_3d),
                      lambda model, run, x: gradients(model, run, x.to(memory_format=torch.channels_last_3d))),
    "strided": (None, lambda model, run, x: gradients(model, run, x.transpose(2, 3).flip(4)[..., ::2, :])),
    "empty": (lambda model: model.down.__setitem__(5, nn.Identity()), without_a_batch),  # PyTorch's cannot
    "frozen": (freeze, gradients),
    "checkpoint": (None, lambda model, run, x: gradients(model, lambda t: checkpoint(run, t, use_reentrant=False), x)),
    "reentrant": (None, lambda model, run, x: gradients(model, lambda t: checkpoint(run, t, use_reentrant=True), x)),
    "offloaded": (None, offloaded),
    "penalty": (None, penalty),
    "twice": (None, twice),
    "inference": (None, inferred),
    "gradient hooks": (lambda model: [p.register_hook(lambda g: 3 * g) for p in model.parameters()], gradients),
    "module hooks": (lambda model: [m.register_full_backward_hook(lambda m, inputs, outputs: tuple(2 * g for g in inputs))
                                    for m in model.modules() if isinstance(m, NORMS)], gradients),
    "weight_norm": (normed(weight_norm, *CONVOLUTIONS, *NORMS), gradients),
    "spectral_norm": (normed(spectral_norm, *CONVOLUTIONS), gradients),
    "parametrized": (normed(parametrizations.spectral_norm, *CONVOLUTIONS), gradients),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", USES)
def test_as_pytorchs_layers(use, way, device):
    prepare, run = USES[use]
    if (use, way) == ("penalty", "backend"):
        with pytest.raises(RuntimeError, match="does not currently support double backward"):  # no compiled graph does
            model, x = network(device)
            penalty(model, by_voxgrad(model, way), x)
        return
    results = []
    for by in (None, way):
        model, x = network(device)
        if prepare:
            torch.manual_seed(5)
            prepare(model)
        results.append(run(model, by_voxgrad(model, by) if by else model, x) + [b.double() for b in model.buffers()])
    for expected, got in zip(*results):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        # Biases before a norm have gradients that are 0 but for rounding.
        assert (got - expected).norm() <= 1e-9 * (1 + expected.norm())


@pytest.mark.parametrize("way", WAYS)
def test_copies_files_and_averages(way):
    model, x = network()
    plain = copy.deepcopy(model)
    run = by_voxgrad(model, way)
    gradients(model, run, x)
    plain.load_state_dict(model.state_dict())
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    options = {} if voxgrad.torch._version < (2, 4) else {"weights_only": False}
    copies = [copy.deepcopy(model), copy.deepcopy(run), pickle.loads(pickle.dumps(model)), torch.load(buffer, **options),
              torch.optim.swa_utils.AveragedModel(model)]
    for module in (plain, run, *copies):
        module.eval()
    for module in (run, *copies):
        assert_close(module(x), plain(x), limit=1e-12)


def test_undo():
    model, x = network()
    expected = model.eval()(x)
    report = voxgrad.torch.convert(model, verbose=False)
    assert "12 layers replaced" in str(report) and report.undo() == []
    assert not any(type(m).__module__.startswith("voxgrad") for m in model.modules()) and torch.equal(model(x), expected)


@new
@pytest.mark.parametrize("way", WAYS)
def test_gradient_scaler(way, device):
    """An overflow is seen, the step is left out, and the scale shrinks, as with PyTorch's layers."""
    results = []
    for by in (None, way):
        model, x = network(device, torch.float32)
        run = by_voxgrad(model, by) if by else model
        scaler, scales = torch.amp.GradScaler(device.type, init_scale=2.0**10, growth_interval=2), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for factor in (1, 1e38, 1, 1):
            before = model.head.weight.clone()
            with torch.autocast(device.type, torch.bfloat16):
                loss = run(x).float().square().mean() * factor
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
            assert torch.equal(before, model.head.weight) == (factor > 1)
        results.append(scales)
    assert results[0] == results[1] == [1024, 512, 512, 1024]


@new
def test_in_pytorchs_transforms_and_modes():
    """There the layers of a converted model are PyTorch's own."""
    plain, x = network()
    model = copy.deepcopy(plain.eval())
    voxgrad.torch.convert(model, verbose=False)

    def loss(function):
        return lambda t: function(t).square().sum()

    for transform in (torch.func.grad, lambda f: lambda t: torch.func.jvp(f, (t,), (t,))[1],
                      lambda f: lambda t: torch.vmap(f)(t[:, None])):
        assert_close(transform(loss(model))(x), transform(loss(plain))(x), limit=1e-11)
    assert_close(torch.jit.trace(model, x)(2 * x), plain(2 * x), limit=1e-11)
    assert copy.deepcopy(model).to("meta")(x.to("meta")).shape == plain(x).shape
    with pytest.raises(RuntimeError, match="torch.jit.script cannot compile voxgrad's layers"):
        torch.jit.script(model)


def some_functions(functions, **joined):
    """A function of a volume, made of functions of a module; `joined` are options of norms that PyTorch's do not have."""
    def function(x):
        y = functions.conv3d(x, torch.ones(2, 2, 2, 2, 2, dtype=x.dtype), padding=1, dilation=2)
        y = functions.leaky_relu(functions.instance_norm(y, eps=1e-3, **joined), negative_slope=0.7)
        y = functions.interpolate(functions.max_pool3d(y if joined else F.leaky_relu(y, 0.1), 2), scale_factor=2)
        return functions.softmax(functions.pad(y, (0, 1)), 1).square().sum()
    return function


@new
def test_functions_in_pytorchs_transforms_and_graphs():
    x = torch.randn(1, 2, 4, 4, 4, dtype=torch.float64)
    ours, theirs = some_functions(voxgrad.torch.functional, negative_slope=0.1), some_functions(F)
    in_graphs = [lambda f: torch.compile(lambda t: torch.func.jvp(f, (t,), (t,))[1], backend="eager"),
                 lambda f: torch.compile(torch.func.grad(f), backend="eager")] if voxgrad.torch._version >= (2, 11) else []
    assert_close(ours(x), theirs(x), limit=1e-12)
    for transform in (torch.func.grad, lambda f: lambda t: torch.func.jvp(f, (t,), (t,))[1], torch.func.hessian,
                      lambda f: lambda t: torch.vmap(f)(t[None]), lambda f: torch.jit.trace(f, x),
                      lambda f: torch.compile(f, fullgraph=True, backend="aot_eager"), *in_graphs):
        assert_close(transform(ours)(x), transform(theirs)(x), limit=1e-10)


@new
def test_subclasses_of_tensor_stay():
    """As MONAI's MetaTensor."""
    class Named(torch.Tensor):
        pass

    model, x = network()
    expected = model(x)
    voxgrad.torch.convert(model, verbose=False)
    y = model(x.as_subclass(Named))
    assert type(y) is Named and type(model.down(x.as_subclass(Named))) is Named
    assert_close(y.as_subclass(torch.Tensor), expected, limit=1e-12)
    y.add_(1).sum().backward()


def train_half_of_a_batch(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model, x = network()
    half = torch.cat([x, x.flip(2)])[2 * rank:][:2]
    expected = gradients(model.eval(), model, torch.cat([x, x.flip(2)]))[2:]  # without batch norm's statistics
    for way in WAYS if voxgrad.torch._version >= (2, 5) else WAYS[:1]:
        ours = copy.deepcopy(model)
        parallel = nn.parallel.DistributedDataParallel(ours)
        ours.zero_grad()
        (2 * by_voxgrad(parallel, way)(half).square().sum()).backward()
        for p, grad in zip(ours.parameters(), expected):
            assert (p.grad - grad).norm() <= 1e-9 * (1 + grad.norm())
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available() or
                    not getattr(torch.distributed, "is_gloo_available", lambda: True)(), reason="this PyTorch has no gloo")
def test_distributed_data_parallel(tmp_path):
    torch.multiprocessing.spawn(train_half_of_a_batch, (str(tmp_path),), nprocs=2)


def test_workers_that_are_forked():
    """A loader's workers compute, after the parent has."""
    model, x = network()
    voxgrad.torch.convert(model.eval(), verbose=False)
    with torch.no_grad():
        expected = [model(x[:1] * i) for i in range(4)]
    loader = torch.utils.data.DataLoader(range(4), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60,
                                         collate_fn=lambda i: model(x[:1] * i).detach())
    for got, right in zip(loader, expected):
        assert torch.equal(got, right)
