"""KernelBench's own judgement of the files in level1/ and level2/, or of its models after one line of voxgrad.

    python3 examples/kernelbench/evaluate.py <checkout of KernelBench> [options]

For each problem it calls eval_kernel_against_ref() of the checkout, which compares ModelNew with the original Model on
random inputs and times ModelNew; then it times Model, eager and compiled in two modes, with the checkout's timing.
ModelNew is that of the file, or with --by Model itself, converted or compiled by voxgrad. The comparison forbids cuDNN
to round the reference to TF32, whose error is larger than KernelBench's tolerance; the times allow it, as PyTorch does
by default. Everything runs in this process on one GPU. Nothing is fetched. `--help` lists the options.
"""

import argparse
import gc
import importlib
import inspect
import json
import math
import sys
import time
import types
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
COMPILED = {"compiled": "default", "autotuned": "max-autotune"}  # by column: torch.compile's mode
LINES = {"convert": "voxgrad.torch.convert(self, verbose=False)", "backend": "self.compile(backend='voxgrad')"}
MODEL_NEW = """
import voxgrad.torch.backend


class ModelNew(Model):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        {}
"""
# Packages that KernelBench imports but its evaluation hardly needs: clients of language models, and pydantic.
UNUSED = ("dotenv", "openai", "litellm", "together", "anthropic", "google.generativeai", "transformers", "requests",
          "tqdm")


class _StandIn(types.ModuleType):
    """A stand-in for a package that is not installed, and that the evaluation imports but does not use."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class _Record:
    """A stand-in for pydantic.BaseModel: attributes by keyword."""

    def __init__(self, **values):
        vars(self).update(values)


def provide_missing_packages():
    missing = []
    for name in (*UNUSED, "pydantic"):
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
            for end in [i for i, c in enumerate(name + ".") if c == "."]:
                if name[:end] not in sys.modules:
                    sys.modules[name[:end]] = _StandIn(name[:end])
    if "pydantic" in missing:
        sys.modules["pydantic"].BaseModel = _Record
    return missing


class Harness:
    """The evaluation functions of a checkout, whichever version it is."""

    def __init__(self, checkout):
        self.problems = checkout / "KernelBench"
        if (checkout / "src" / "kernelbench" / "eval.py").exists():  # the layout of newer versions
            sys.path.insert(0, str(checkout / "src"))
            self.eval = importlib.import_module("kernelbench.eval")
            self.timing = importlib.import_module("kernelbench.timing")
        elif (checkout / "src" / "eval.py").exists():
            sys.path.insert(0, str(checkout))
            self.eval = self.timing = importlib.import_module("src.eval")
            if (checkout / "src" / "timing.py").exists():
                self.timing = importlib.import_module("src.timing")
        else:
            raise SystemExit(f"evaluate: {checkout} is no checkout of KernelBench: it has neither "
                             "src/kernelbench/eval.py nor src/eval.py")

    def source(self, level, number):
        found = list((self.problems / f"level{level}").glob(f"{number}_*.py"))
        if len(found) != 1:
            raise SystemExit(f"evaluate: {self.problems}/level{level} has {len(found)} files {number}_*.py")
        return found[0].read_text()

    def judge(self, source, new_source, trials, runs, device):
        """Judges ModelNew, and returns KernelBench's KernelExecResult."""
        wanted = dict(original_model_src=source, custom_model_src=new_source, num_correct_trials=trials,
                      num_perf_trials=runs, measure_performance=True, device=device, verbose=False, backend="cuda",
                      precision=torch.float32, timing_method="cuda_event",
                      check_for_excessive_speedup=False)  # it would time Model once more; time_of() does
        known = inspect.signature(self.eval.eval_kernel_against_ref).parameters
        return self.eval.eval_kernel_against_ref(**{k: v for k, v in wanted.items() if k in known})

    def time_of(self, source, runs, device, mode=None):
        """Milliseconds of Model, timed as judge() times ModelNew; compiled if there is a mode."""
        context = {}
        model_class, init_inputs, inputs = self.eval.load_original_model_and_inputs(source, context)
        with torch.no_grad():
            self.eval.set_seed(42)
            model = model_class(*init_inputs()).to(device)
            arguments = [x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs()]
            if mode:
                torch._dynamo.reset()
                model = torch.compile(model, mode=mode)
                model(*arguments)
            measure = self.timing.time_execution_with_cuda_event
            if "args" in inspect.signature(measure).parameters and inspect.signature(measure).parameters[
                    "args"].kind is inspect.Parameter.VAR_POSITIONAL:
                times = measure(model, *arguments, num_trials=runs, verbose=False, device=device)
            else:
                times = measure(model, arguments, num_trials=runs, verbose=False, device=device)
        torch.cuda.empty_cache()
        return sum(times) / len(times)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def ratio(numerator, denominator):
    return numerator / denominator if numerator and denominator and denominator > 0 else None


def cell(value):
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def evaluate(harness, level, number, options, device):
    source = harness.source(level, number)
    new_source = (HERE / f"level{level}" / f"{number}.py").read_text()
    if options.by != "file":
        new_source = source + MODEL_NEW.format(LINES[options.by])
    torch.backends.cudnn.allow_tf32 = options.reference == "tf32"
    result = harness.judge(source, new_source, options.trials, options.runs, device)
    torch.backends.cudnn.allow_tf32 = options.times == "tf32"
    row = dict(level=level, problem=number, correct=bool(result and result.correctness))
    if result is None or not result.correctness:
        row["why"] = str(result.metadata) if result else "eval_kernel_against_ref returned nothing"
    else:
        row["voxgrad"] = result.runtime
    row["eager"] = harness.time_of(source, options.runs, device)
    for column, mode in COMPILED.items() if options.compile else ():
        try:
            row[column] = harness.time_of(source, options.runs, device, mode)
        except torch.cuda.OutOfMemoryError:
            row[column] = None
    torch.cuda.empty_cache()
    return row


def print_table(rows, options):
    others = {"eager": "eager", **({c: f"torch.compile, {m}" for c, m in COMPILED.items()} if options.compile else {})}
    print("\n| level | problem | correct | voxgrad, ms | " +
          " | ".join(f"{title}, ms | faster" for title in others.values()) + " |")
    print("|---" * (4 + 2 * len(others)) + "|")
    for row in rows:
        ours, cells = row.get("voxgrad"), []
        for column in others:
            cells += [row.get(column), ratio(row.get(column), ours)]
        print("| " + " | ".join(map(cell, (row["level"], row["problem"], "yes" if row["correct"] else "NO", ours,
                                          *cells))) + " |")
    print()
    for level in (1, 2):
        of_level = [row for row in rows if row["level"] == level]
        line = f"level {level}: {sum(row['correct'] for row in of_level)} of {len(of_level)} correct"
        for column, title in others.items():
            ratios = [r for row in of_level if (r := ratio(row.get(column), row.get("voxgrad")))]
            line += f"; {sum(r > 1 for r in ratios)} faster than {title}, geometric mean {geometric_mean(ratios):.2f}"
        if of_level:
            print(line)
    for row in rows:
        if "why" in row:
            print(f"level {row['level']}, problem {row['problem']}: {row['why']}")


def main():
    a = argparse.ArgumentParser(prog="evaluate.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("checkout", type=Path, help="a checkout of KernelBench")
    a.add_argument("--problems", help="e.g. 1/58,2/100 (default: all that have a file here)")
    a.add_argument("--by", choices=("file", *LINES), default="file",
                   help="ModelNew: the file here (default), or Model converted, or compiled by the backend")
    a.add_argument("--trials", type=int, default=5, help="random inputs that must agree (default 5)")
    a.add_argument("--runs", type=int, default=100, help="timed runs of each (default 100, as KernelBench's scripts)")
    a.add_argument("--no-compile", dest="compile", action="store_false", help="do not time torch.compile")
    a.add_argument("--precision", default="highest", help="voxgrad's: highest, high or medium (default highest)")
    for name, default, what in (("reference", "f32", "ModelNew is compared with"), ("times", "tf32", "are timed")):
        a.add_argument(f"--{name}", choices=("f32", "tf32"), default=default,
                       help=f"PyTorch's convolutions that {what}; tf32 is PyTorch's default switch (default {default})")
    a.add_argument("--minutes", type=float, default=math.inf, help="start no problem after that")
    a.add_argument("--json", type=Path, help="write the rows to this file too")
    options = a.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("evaluate: KernelBench's evaluation needs a GPU, and PyTorch sees none")
    chosen = sorted((int(path.parent.name[-1]), int(path.stem)) for path in HERE.glob("level*/*.py"))
    if options.problems:
        asked = [tuple(map(int, name.split("/"))) for name in options.problems.split(",")]
        unknown = [name for name in asked if name not in chosen]
        if unknown:
            raise SystemExit(f"evaluate: no file here for {unknown}")
        chosen = asked

    import voxgrad.torch
    voxgrad.torch.set_precision(options.precision)
    missing = provide_missing_packages()
    harness = Harness(options.checkout.resolve())
    device = torch.device("cuda:0")
    print(f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"voxgrad {voxgrad.__version__} at {options.precision}\n"
          f"PyTorch's convolutions: {options.reference} where ModelNew is compared, {options.times} where it is timed; "
          f"cudnn.benchmark {torch.backends.cudnn.benchmark}, cuda.matmul.allow_tf32 "
          f"{torch.backends.cuda.matmul.allow_tf32}\n"
          f"{options.trials} trials, {options.runs} timed runs; stand-ins for packages that are not installed: "
          f"{', '.join(missing) or 'none'}", flush=True)
    gc.disable()  # else a pass over all modules may fall into a timed run of some column
    start, rows = time.monotonic(), []
    for level, number in chosen:
        if time.monotonic() - start > options.minutes * 60:
            print(f"not run, for lack of time: {chosen[len(rows):]}")
            break
        gc.collect()
        rows.append(evaluate(harness, level, number, options, device))
        print(rows[-1], flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    print_table(rows, options)
    sys.exit(not all(row["correct"] for row in rows))


if __name__ == "__main__":
    main()
