"""Checks bench_gradbench: check.py PROGRAM compares it with PyTorch, whose own functions (det, MultivariateNormal,
Wishart) are the reference where it has them. check.py PROGRAM EVAL ... runs one of GradBench's evals, a command,
against the program, as GradBench's intermediary does, and prints what the eval found and the shortest times."""
import json
import subprocess
import sys


def start(*command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def say(process, line):
    process.stdin.write(line.strip() + "\n")
    process.stdin.flush()


def relay(tool, command):
    judge, asked, failures = start(*command), {}, 0
    for line in judge.stdout:
        message = json.loads(line)
        say(tool, line)
        answer = tool.stdout.readline()
        if message["kind"] == "evaluate":
            times = [t["nanoseconds"] for t in json.loads(answer).get("timings", []) if t["name"] == "evaluate"]
            asked[message["id"]] = (f"{message['module']} {message['function']} {message.get('description', '')}: "
                                    f"{min(times, default=0) / 1e6:.3f} ms")
        if message["kind"] == "analysis":
            failures += not message["valid"]
            print(asked[message["of"]], "valid" if message["valid"] else "INVALID " + message["error"], flush=True)
        say(judge, answer)
    sys.exit(1 if failures or not asked else 0)


def references(torch):
    """For each module: the names of its two functions, an input, the names of what has gradients, and f of these."""
    def random(*shape):
        return torch.rand(shape, dtype=torch.float64) + 0.1

    def ode(x):
        y, h = torch.zeros_like(x), 2 / 3
        def slope(y): return x * torch.cat([torch.ones(1, dtype=x.dtype), y[:-1]])
        for _ in range(3):
            k1 = slope(y); k2 = slope(y + h * k1 / 2); k3 = slope(y + h * k2 / 2); k4 = slope(y + h * k3)
            y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        return y

    points = random(7, 3)
    data, below = random(6, 3), torch.tril_indices(3, 3, -1)
    def gmm(alpha, mu, q, l):
        matrix = torch.diag_embed(q.exp())
        rows, columns = below[:, torch.argsort(below[1], stable=True)]
        matrix = matrix.index_put((torch.arange(2)[:, None], rows, columns), l)
        precision = matrix.mT @ matrix
        normal = torch.distributions.MultivariateNormal(mu, precision_matrix=precision)
        mixed = (normal.log_prob(data[:, None]) + alpha.log_softmax(0)).logsumexp(1).sum()
        return mixed + torch.distributions.Wishart(torch.tensor(6.).double(), torch.eye(3).double() / 0.81).log_prob(precision).sum()

    t = torch.linspace(-1, 1, 9, dtype=torch.float64)
    ends = "primal", "gradient"
    yield "hello", ("square", "double"), {"": random()}, {}, lambda x: x * x
    yield "lse", ends, {"x": random(6)}, {}, lambda x: x.logsumexp(0)
    yield "llsq", ends, {"x": random(5)}, {"n": 9}, lambda x: (t.sign() - (t[:, None] ** torch.arange(5)) @ x).square().sum() / 2
    yield "ode", ends, {"x": random(4)}, {"s": 3}, ode
    yield "det", ends, {"A": random(25)}, {"ell": 5}, lambda a: torch.linalg.det(a.reshape(5, 5))
    yield ("kmeans", ("cost", "dir"), {"centroids": points[:2].clone()}, {"points": points.tolist()},
           lambda c: (points[:, None] - c).square().sum(2).min(1).values.sum())
    yield ("gmm", ("objective", "jacobian"), {"alpha": random(2), "mu": random(2, 3), "q": random(2, 3), "l": random(2, 3)},
           {"d": 3, "k": 2, "n": 6, "m": 2, "gamma": 0.9, "x": data.tolist()}, gmm)


def check(tool):
    try:
        import torch
    except ImportError:
        sys.exit(77)
    torch.manual_seed(1)

    def ask(**message):
        say(tool, json.dumps({"id": 5} | message))
        answer = json.loads(tool.stdout.readline())
        assert answer["id"] == 5
        return answer

    def flat(value):
        if isinstance(value, dict):
            value = [value[key] for key in ("alpha", "mu", "q", "l")]
        return [x for item in value for x in flat(item)] if isinstance(value, list) else [value]

    assert ask(kind="start")["tool"] == "voxgrad"
    assert not ask(kind="define", module="ba")["success"]
    assert not ask(kind="evaluate", module="lse", function="primal", input={})["success"]
    for module, functions, x, others, f in references(torch):
        assert ask(kind="define", module=module)["success"]
        given = {key: value.tolist() for key, value in x.items()}
        leaves = [value.requires_grad_() for value in x.values()]
        y = f(*leaves)
        g = torch.autograd.grad(y if y.dim() == 0 else y[-1], leaves, create_graph=module == "kmeans")
        if module == "kmeans":
            g = [g[0] / torch.autograd.grad(g[0].sum(), leaves)[0]]
        for function, expected in zip(functions, ([y], g)):
            answer = ask(kind="evaluate", module=module, function=function,
                         input=given.get("", given | others | {"min_runs": 3, "min_seconds": 0}))
            assert answer["success"], answer
            got, expected = flat(answer["output"]), flat([e.tolist() for e in expected])
            assert len(got) == len(expected) and len(answer["timings"]) == (1 if module == "hello" else 3)
            worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(got, expected))
            print(f"{module} {function}: off by {worst:.1e}")
            assert worst < 1e-9


program = start(sys.argv[1])
relay(program, sys.argv[2:]) if len(sys.argv) > 2 else check(program)
