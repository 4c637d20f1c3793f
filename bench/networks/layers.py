"""The layer profile of a network: its convolutions one by one, and everything else by kind."""

import torch
from torch import nn

from common import table
from common.library import conv_options
from common.optimisers import optimiser_of
from common.passes import dtype_of, pytorch_pass
from memory_bound.cases import CASES
from networks.models import Cat

NORMS, ACTIVATIONS = (nn.BatchNorm3d, nn.InstanceNorm3d), (nn.ReLU, nn.LeakyReLU)
# The layers that are no convolutions: kind, and name in bench/memory_bound. A norm and the activation behind it are one
# op.
OPS = {(nn.BatchNorm3d, nn.ReLU): ("norm", "batch_norm relu"),
       (nn.InstanceNorm3d, nn.LeakyReLU): ("norm", "instance_norm leaky_relu"),
       (nn.ReLU,): ("activation", "relu"), (nn.Sigmoid,): ("activation", "sigmoid"),
       (nn.MaxPool3d,): ("pooling", "max_pool3d 2"), (nn.Upsample,): ("interpolation", "trilinear x2"),
       (Cat,): ("cat", "cat")}
BY_NAME = {case.name: case for case in CASES}
CONV_PASSES = ("forward", "grad-input", "grad-weight")


def calls(network, x):
    """The ops of a forward in order, each as (its modules, the shapes of the first module's inputs); and the shape of
    the output."""
    net, found = network.build().to(x.device), []

    def note(module, inputs, _):
        if found and isinstance(module, ACTIVATIONS) and isinstance(found[-1][0][-1], NORMS):
            found[-1][0].append(module)
        else:
            found.append(([module], [tuple(i.shape) for i in inputs]))

    for module in net.modules():
        if not any(module.children()):
            module.register_forward_hook(note)
    with torch.no_grad():
        return found, tuple(net(x).shape)


def profile(library, clock, network, precision, device, markdown):
    """Returns rows of numbers for JSON, and prints a table of the convolutions and one of the shares."""
    x, target = network.data(device)
    found, output = calls(network, x)
    dtype, totals, rows = dtype_of(precision), {}, []

    def both_ms(kind, count, function, ours, operands, passes):
        for pass_ in passes:
            gy = [] if pass_ == "forward" else [torch.randn_like(function(*operands))]
            theirs = [clock.median_ms(pytorch_pass(function, [form(t) for t in operands], pass_,
                                                   form(gy[0]) if gy else None))
                      for form in (lambda t: t, channels_last)]
            with ours(pass_, [*operands, *gy]) as task:
                row = {"kind": kind, "count": count, "pass": pass_, "ours_ms": clock.median_ms(task),
                       "pytorch_ms": min(theirs), "kernel": task.kernel()}
            ours_ms, pytorch_ms = totals.get(kind, (0, 0))
            totals[kind] = ours_ms + count * row["ours_ms"], pytorch_ms + count * row["pytorch_ms"]
            yield row

    def randn(*shape):
        return torch.randn(*shape, device=device).to(dtype)

    convolutions, others = {}, {}
    for index, (modules, shapes) in enumerate(found):
        first = modules[0]
        if isinstance(first, (nn.Conv3d, nn.ConvTranspose3d)):
            key = (first.transposed, shapes[0], tuple(first.weight.shape), first.stride[0], first.padding[0])
            convolutions.setdefault(key, [0, index == 0])[0] += 1
        else:
            key = (tuple(map(type, modules)), tuple(shapes))
            others[key] = others.get(key, 0) + 1

    for (transposed, shape, weight_shape, stride, padding), (count, first) in convolutions.items():
        name = "conv_transpose3d" if transposed else "conv3d"
        # The gradient of the network's input is not needed.
        for pass_ in ("forward", "grad-weight") if first else CONV_PASSES:
            x, weight = randn(*shape), randn(*weight_shape)
            x.requires_grad_(pass_ == "grad-input")
            weight.requires_grad_(pass_ == "grad-weight")

            def function(x, weight, call=getattr(torch.nn.functional, name)):
                return call(x, weight, stride=stride, padding=padding)

            def ours(pass_, operands, name=name):
                return library.task("conv", name, pass_, operands, conv_options(stride, padding))

            done = both_ms("convolution", count, function, ours, [x, weight],
                           ["forward" if pass_ == "forward" else "backward"])
            rows.extend({**row, "pass": pass_, "shape": shape, "weight": weight_shape, "stride": stride,
                         "layer": name} for row in done)

    def add(kind, count, name, operands):
        case = BY_NAME[name]
        done = both_ms(kind, count, case.pytorch, lambda *pass_: library.program(case.function, *pass_), operands,
                       ["forward", "backward"])
        rows.extend({**row, "layer": name} for row in done)

    for (types, shapes), count in others.items():
        kind, name = OPS[types]
        parameters = [(shapes[0][1],)] * 2 if kind == "norm" else []
        add(kind, count, name, [randn(*shape).requires_grad_() for shape in [*shapes, *parameters]])
    y = randn(*output).requires_grad_()
    add("loss", 1, *(("cross_entropy", [y, target]) if network.is_unet else ("mse_loss", [y, target.to(dtype)])))
    rows.append(optimiser(library, clock, network, [randn(*p.shape) for p in network.build().parameters()]))
    totals["optimiser"] = rows[-1]["ours_ms"], rows[-1]["pytorch_ms"]
    print("\n".join(tables(network, precision, rows, totals, markdown)), flush=True)
    return rows


def channels_last(t):
    if t.dim() != 5:
        return t
    return t.detach().to(memory_format=torch.channels_last_3d).requires_grad_(t.requires_grad)


def optimiser(library, clock, network, values):
    gradients = [torch.randn_like(v) for v in values]
    with library.task("optimiser", network.optimiser, "step", values + gradients) as task:
        ours_ms = clock.median_ms(task)
    parameters = [v.clone().requires_grad_() for v in values]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient
    return {"kind": "optimiser", "count": 1, "pass": "step", "ours_ms": ours_ms, "layer": network.optimiser,
            "pytorch_ms": clock.median_ms(optimiser_of(network.optimiser, parameters).step)}


def tables(network, precision, rows, totals, markdown):
    lines = [("layer", "input", "weight", "stride", "times", "pass", "ours ms", "PyTorch ms", "PyTorch/ours",
              "kernel", "")]
    for row in rows:
        if row["kind"] == "convolution":
            ratio = row["pytorch_ms"] / row["ours_ms"]
            lines.append((row["layer"], "x".join(map(str, row["shape"])), "x".join(map(str, row["weight"])),
                          str(row["stride"]), str(row["count"]), row["pass"], table.formatted(row["ours_ms"]),
                          table.formatted(row["pytorch_ms"]), f"{ratio:.2f}", row["kernel"] or "-",
                          "slower" if ratio < 1 else ""))
    total = [sum(ms[i] for ms in totals.values()) for i in range(2)]
    shares = [("part of a step", "ours ms", "share", "PyTorch ms", "share")]
    for kind, ms in [*sorted(totals.items(), key=lambda item: -item[1][0]), ("sum", total)]:
        shares.append((kind, table.formatted(ms[0]), f"{100 * ms[0] / total[0]:.0f} %", table.formatted(ms[1]),
                       f"{100 * ms[1] / total[1]:.0f} %"))
    title = ("## " if markdown else "== ") + f"{network.name}, {precision}: "
    return ["", title + "convolutions one by one", "", *table.layout(lines, markdown), "",
            title + "ops one by one, summed", "", *table.layout(shares, markdown)]
