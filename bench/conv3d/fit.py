#!/usr/bin/env python3
"""Fits the prices of work (cuda/conv3d/prices.inc) to measured times. Needs numpy and scipy.

    bench_conv3d_sweep --all-rows > measured.tsv             on a GPU
    bench_conv3d_sweep --list --all-rows > work.tsv          needs no GPU
    fit.py measured.tsv work.tsv ... > prices.inc            pairs, as with and without wgmma

A kernel's predicted time is a sum of kinds of work, each times a price that is not negative (cuda/conv3d/model/time.h).
What is minimised is what the choice costs: the mean over all calls of the logarithm of chosen / best time, where the
least prediction is chosen by a softmax that sharpens from round to round; calls of level 1 and of networks count four
times, and calls above their limit four times more after each round. A weighted squared error of the logarithms keeps
predictions near times, most of all where a kernel is fast."""

import argparse
import datetime

import measured
import numpy as np
from scipy.optimize import minimize, nnls

KINDS = ("products", "loads", "rounds", "stages", "stores", "bytes", "weights")
# Of the softmax, in logarithms of time. It begins anew once calls above their limit weigh more.
SHARPNESS = (0.2, 0.1, 0.05, 0.2, 0.1, 0.06, 0.04, 0.025, 0.015, 0.06, 0.025, 0.015)
CLOSENESS = 0.15  # of predictions, against the cost of the choice


def price_key(row, pass_, dtype):
    """f16 costs what bf16 does; kernels for numbers of several widths have a price for those of 16 bits."""
    name = row[:-3] + "bf16" if row.endswith("_f16") else row
    return name + ("_bf16" if row in ("direct", "few_channels") and dtype in ("bf16", "f16") else ""), pass_


def read_work(path):
    work = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                key, pass_, dtype, row, _, _, _, *numbers = line.rstrip("\n").split("\t")
                work[key, pass_, dtype, row] = [1.0, *map(float, numbers)]
    return work


class Problem:
    """Times and work as arrays. An entry is a row in a call; a group are the entries with the same prices."""

    def __init__(self, pairs):
        entries, groups = {}, {}
        self.call, self.entry, self.weight, self.limit = [], [], [], []
        for work, call in ((work, call) for table, work in pairs for call in table.calls.values()):
            dtype = call.arithmetic if call.arithmetic in ("bf16", "f16") else "f32"
            main = any(group not in ("level2", "sweep") for group in call.groups)
            for row, us in call.us.items():
                key = call.key, call.pass_, dtype, row
                if us is None or key not in work:
                    continue
                entry = id(work), *key
                if entry not in entries:
                    entries[entry] = len(entries), us, work[key]
                    groups.setdefault(price_key(row, call.pass_, dtype), []).append(entries[entry][0])
                self.call.append(len(self.weight))
                self.entry.append(entries[entry][0])
            self.weight.append(4 if main else 1)
            self.limit.append(np.log(1.2 if main else 1.55))  # somewhat below those of regret.py
        self.call, self.entry = np.array(self.call), np.array(self.entry)
        self.weight, self.limit = np.array(self.weight) / sum(self.weight), np.array(self.limit)
        self.log_us = np.log([us for _, us, _ in entries.values()])
        self.groups = {key: np.array(index) for key, index in sorted(groups.items())}
        self.work = np.array([numbers for _, _, numbers in entries.values()])
        best = np.full(len(self.weight), np.inf)
        np.minimum.at(best, self.call, self.log_us[self.entry])
        self.regret = self.log_us[self.entry] - best[self.call]
        self.cost = self.regret + 0.2 * (self.regret / self.limit[self.call]) ** 3
        least = np.full(len(entries), np.inf)
        np.minimum.at(least, self.entry, self.regret)
        self.close = np.maximum(np.exp(-2 * least), 0.003)
        self.close /= self.close.sum()

    def start(self):
        """For each group: its entries, the kinds of work that it has, scaled to 1 at most, their scales, and the
        logarithms of first prices."""
        for key, index in self.groups.items():
            kinds = np.flatnonzero(self.work[index].max(0) > 0)
            scale = self.work[np.ix_(index, kinds)].max(0)
            scaled, us = self.work[np.ix_(index, kinds)] / scale, np.exp(self.log_us[index])
            weight = np.sqrt(self.close[index]) / us
            prices, _ = nnls(scaled * weight[:, None], us * weight)
            yield key, index, kinds, scaled, scale, np.log(np.maximum(prices, 1e-3 * np.median(us)))

    def fit(self):
        groups = list(self.start())
        ends = np.cumsum([len(group[-1]) for group in groups])
        prices = np.concatenate([group[-1] for group in groups])

        def predict(prices):
            predicted, slopes = np.empty(len(self.log_us)), []
            for (_, index, _, scaled, _, first), end in zip(groups, ends):
                each = scaled * np.exp(prices[end - len(first):end])
                predicted[index] = np.log(each.sum(1))
                slopes.append(each / each.sum(1, keepdims=True))
            return predicted, slopes

        def loss(prices, sharpness):
            predicted, slopes = predict(prices)
            score = -predicted[self.entry] / sharpness
            most = np.full(len(self.weight), -np.inf)
            np.maximum.at(most, self.call, score)
            share = np.exp(score - most[self.call])
            share /= np.bincount(self.call, share)[self.call]
            expected = np.bincount(self.call, share * self.cost)
            error = predicted - self.log_us
            slope = 2 * CLOSENESS * self.close * error
            np.add.at(slope, self.entry,
                      -self.weight[self.call] * share * (self.cost - expected[self.call]) / sharpness)
            gradient = np.concatenate([slope[group[1]] @ s for group, s in zip(groups, slopes)])
            return self.weight @ expected + CLOSENESS * (self.close @ error**2), gradient

        begin = np.searchsorted(self.call, np.arange(len(self.weight)))
        for sharpness in SHARPNESS:
            prices = minimize(loss, prices, (sharpness,), jac=True, method="L-BFGS-B",
                              options={"maxiter": 500}).x
            predicted, slopes = predict(prices)
            chosen = np.lexsort((predicted[self.entry], self.call))[begin]
            self.weight[self.regret[chosen] > self.limit] *= 4
        for (key, index, kinds, _, scale, first), end, share in zip(groups, ends, slopes):
            each = np.zeros(self.work.shape[1])
            each[kinds] = np.exp(prices[end - len(first):end]) / scale
            each[kinds[share.max(0) < 0.02]] = 0  # never seen in a time
            weight, error = self.close[index], predicted[index] - self.log_us[index]
            yield key, each, len(index), np.sqrt((weight @ error**2) / weight.sum())


def line(key, each, count, residual):
    name, pass_ = key
    pass_ = {"weight_grad": "conv3d_weight_grad"}.get(pass_, pass_)
    kinds = ", ".join(f".{kind} = {price:.3g}" for kind, price in zip(KINDS, each[1:]) if price)
    return f'    {{"{name}", "{pass_}", {each[0]:.3g}, {{{kinds}}}}},  // {count} times, {100 * residual:.0f} %'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="measured.tsv work.tsv")
    files = parser.parse_args().files
    pairs = [(measured.read(times), read_work(work)) for times, work in zip(files[::2], files[1::2], strict=True)]
    table, problem = pairs[0][0], Problem(pairs)
    print(f"// What work costs, in microseconds of an {table.device}. Made on {datetime.date.today()} by\n"
          "// bench/conv3d/fit.py from the tables in bench/conv3d; do not edit. At the end of a line: the times that it\n"
          "// was fitted to, and the residual, weighted by how near to the best kernel this one is.\n"
          "// clang-format off\nconstexpr Prices prices[]{")
    for fitted in problem.fit():
        print(line(*fitted))
    print("};\n// clang-format on")


if __name__ == "__main__":
    main()
