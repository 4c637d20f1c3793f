"""Tensors of 2^40 elements, expanded from a few: an op whose result is as large must refuse before it spends
memory or minutes. Each entry runs in a process of its own with a short time limit.
"""

import resource

import torch

import voxgrad
from checks import Disagreement
from oracle import Sample, adapted, seed
from voxgrad import Inexpressible

SIZE = 1 << 40
LIMIT_S = 20          # a process that takes longer is killed, and names its sample
LIMIT_KB = 256 << 10  # of new memory

# Not tested here: their results are small, so they need not refuse, and may take long.
REDUCTIONS = ("sum", "mean", "max", "min", "amax", "amin", "argmax", "argmin", "max.dim", "min.dim", "sum_to_size",
              "trace", "matmul", "__rmatmul__", "mv", "dot", "vdot", "mm", "bmm", "inner", "addmm", "addmm.decomposed",
              "addmv", "addbmm", "baddbmm", "nn.grad.conv3d_weight", "unbind", "split", "einsum")


def samples(entry, databases):
    """The first sample of each number of dimensions, with the first dimension of every tensor that has the size of
    the first tensor's made huge."""
    seed(entry.name)
    info = databases[0].get(entry.of)
    if info is None or entry.name in REDUCTIONS or entry.own_dtype and not entry.gradients:
        return
    seen = set()
    for s in info.sample_inputs("cpu", torch.float32):
        for sample in adapted(entry, Sample(s.input, s.args, s.kwargs, "huge")):
            first = sample.tensors()[0]
            if sample.kwargs.get("reduction", "mean") != "none" and "loss" in entry.name or first.dim() in seen:
                continue
            seen.add(first.dim())
            if first.dim() == 0 or 0 in first.shape:
                continue
            yield sample.map(lambda t: t.detach()[:1].expand(SIZE, *t.shape[1:])
                             if t.dim() == first.dim() and t.shape[0] == first.shape[0] else t.detach())


def check(entry, sample, counts):
    voxgrad.tensor(torch.zeros(1))  # a first call takes memory of its own, for CUDA above all
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        results = sample.map(voxgrad.tensor).call(entry.call)
        results = results if isinstance(results, (tuple, list)) else [results]
        if any(r.rank and r.shape[0] == SIZE and 0 not in r.strides for r in results):
            raise Disagreement("accepted", "a dense result of 2^40 elements")
        counts["huge, views"] += 1
    except voxgrad.VoxError:
        counts["huge, refused"] += 1
    except voxgrad.WildError as error:
        raise Disagreement("wild", str(error)) from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise Inexpressible(str(error)) from error
    spent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if spent > LIMIT_KB:
        raise Disagreement("memory", f"{spent >> 10} MiB of memory were touched")
