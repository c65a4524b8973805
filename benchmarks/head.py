"""One head step, side by side: targets, loss, gradient at the features, and `means.update`, for c = 10^3 to 10^6 classes.

    python benchmarks/head.py [--dim 256] [--batch 256] [--classes 1000 10000 100000 1000000]

    ipm      asterism's ipm_loss on fixed stars with ClassMeans.update: O(B d)
    linear   nn.Linear + cross-entropy, gradients at features, weight and bias (the optimizer's own step not counted)
    sampled  softmax over the batch's classes and 1,000 random others of a learned (c, d) weight; gradients at these rows alone

Each head runs in a process of its own, one after another in one run, so that its peak memory is its own. Times are medians of
steps that fill about three seconds. Writes benchmarks/results/head.json.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from asterism import ClassMeans, PrototypeHead, ipm_loss
from asterism.sphere import unit

HEADS = ("ipm", "linear", "sampled")


def make_step(head: str, c: int, d: int, batch: int):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(batch, d, generator=generator).requires_grad_()
    labels = torch.randint(
        0, c, (64, batch), generator=generator
    )  # a new batch each step: rows come from all over memory
    if head == "ipm":
        stars, means = PrototypeHead(unit(torch.randn(c, d, generator=generator))), ClassMeans(c, d)

        def step(k: int) -> None:
            y = labels[k % 64]
            features.grad = None
            ipm_loss(features, stars.targets(y)).backward()
            means.update(features, y)

        return step
    if head == "linear":
        layer = torch.nn.Linear(d, c)

        def step(k: int) -> None:
            features.grad = layer.weight.grad = layer.bias.grad = None
            F.cross_entropy(layer(features), labels[k % 64]).backward()

        return step
    weight = torch.randn(c, d, generator=generator) * 0.05

    def step(k: int) -> None:
        y = labels[k % 64]
        features.grad = None
        own, place = y.unique(return_inverse=True)
        rows = torch.cat([own, torch.randint(0, c, (1000,), generator=generator)])
        part = weight[rows].requires_grad_()
        F.cross_entropy(features @ part.T, place).backward()

    return step


def measure(head: str, c: int, d: int, batch: int) -> dict:
    step = make_step(head, c, d, batch)
    for k in range(3):
        step(k)
    times, began = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - began < 3 and len(times) < 5000):
        start = time.perf_counter()
        step(len(times))
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"head": head, "classes": c, "seconds": statistics.median(times), "steps": len(times), "peak_gib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]), arguments.dim, arguments.batch)))
        return
    rows = {}
    for c in arguments.classes:
        for head in HEADS:
            command = [
                sys.executable,
                __file__,
                "--dim",
                str(arguments.dim),
                "--batch",
                str(arguments.batch),
                "--one",
                head,
                str(c),
            ]
            rows[head, c] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(
                f"{head:8} {c:>9,}  {rows[head, c]['seconds'] * 1e3:10.3f} ms  {rows[head, c]['peak_gib']:6.2f} GiB",
                file=sys.stderr,
            )
    print(
        f"\nd = {arguments.dim}, batch {arguments.batch}, {torch.get_num_threads()} threads, torch {torch.__version__}\n"
    )
    print(
        "| classes | ipm, ms | linear, ms | sampled, ms | linear / ipm | sampled / ipm | peak memory GiB: ipm, linear, sampled |"
    )
    print("|---|---|---|---|---|---|---|")
    for c in arguments.classes:
        ms = {h: rows[h, c]["seconds"] * 1e3 for h in HEADS}
        memory = ", ".join(f"{rows[h, c]['peak_gib']:.2f}" for h in HEADS)
        print(
            f"| {c:,} | {ms['ipm']:.3f} | {ms['linear']:.2f} | {ms['sampled']:.2f} | {ms['linear'] / ms['ipm']:,.0f} | "
            f"{ms['sampled'] / ms['ipm']:.1f} | {memory} |"
        )
    first, last = arguments.classes[0], arguments.classes[-1]
    print(
        f"\nipm at {last:,} classes: {rows['ipm', last]['seconds'] / rows['ipm', first]['seconds']:.2f} times its step at {first:,}"
    )
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "head.json").write_text(json.dumps(list(rows.values()), indent=1))


if __name__ == "__main__":
    main()
