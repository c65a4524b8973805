"""Prototypes: how good, how fast, against the paper's recipe and against what can be proven.

    python benchmarks/prototypes.py [--seconds S] [--only KxD ...]

reached: kind="auto" with its default effort, or with --seconds S; nothing comes from the cache. annealed: the best of some hundred
plainly annealed starts, to compare with. paper: its recipe (SGD, 1000 iterations), value and seconds, in the same run.
published: the largest cosine of the authors' released file for this size. ratio: our seconds until annealed + 2e-3 is reached,
over the paper's for its own value. A run over all sizes also writes benchmarks/results/prototypes.json.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from asterism import make_prototypes
from asterism.prototypes import bounds, energy

ANNEALED = {
    (100, 3): 0.9334,
    (100, 5): 0.6841,
    (100, 10): 0.3341,
    (100, 16): 0.2054,
    (100, 32): 0.0767,
    (33, 4): 0.6008,
    (40, 9): 0.2274,
    (200, 50): 0.0760,
    (200, 100): 0.0,
    (100, 84): 0.0,
    (1000, 512): 0.0,
    (1000, 64): 1 / 8,
    (1000, 128): 0.0728,
    (100, 128): -1 / 99,
}
PUBLISHED = {
    (100, 10): 0.457,
    (100, 16): 0.326,
    (100, 32): 0.2465,
    (200, 100): 0.1995,
    (1000, 512): 0.156,
    (100, 84): 0.019,
}


class Reached(Exception):
    """The search has a set that is good enough."""


def seconds_to(num: int, dim: int, target: float) -> float:
    """Until a set with a largest cosine of at most `target` is there, from nothing."""
    began, real = time.perf_counter(), energy._max_cosines

    def watching(sets: torch.Tensor) -> torch.Tensor:
        heights = real(sets)
        if heights.min() <= target:
            raise Reached
        return heights

    energy._max_cosines = watching
    try:
        make_prototypes(num, dim, cache=False)
    except Reached:
        pass
    finally:
        energy._max_cosines = real
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--only", nargs="*", default=[f"{k}x{d}" for k, d in ANNEALED])
    arguments = parser.parse_args()
    make_prototypes(20, 3, cache=False)  # imports and first calls
    print("| K x d | reached | annealed | bound | gap | what | s | paper | s | published | random | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    for size in arguments.only:
        num, dim = map(int, size.split("x"))
        annealed = ANNEALED.get((num, dim))
        began = time.perf_counter()
        ours = make_prototypes(num, dim, seconds=arguments.seconds, cache=False)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        paper = make_prototypes(num, dim, kind="gaussian-potential", cache=False)
        paper_seconds = time.perf_counter() - began
        row = {
            "num": num,
            "dim": dim,
            "reached": ours.max_cosine,
            "annealed": annealed,
            "bound": ours.bound,
            "bound_source": ours.bound_source,
            "construction": ours.construction,
            "seconds": seconds,
            "paper": paper.max_cosine,
            "paper_seconds": paper_seconds,
            "published": PUBLISHED.get((num, dim)),
            "random": make_prototypes(num, dim, kind="random", cache=False).max_cosine,
            "ratio": None if annealed is None else seconds_to(num, dim, annealed + 2e-3) / paper_seconds,
        }
        rows.append(row)
        above = row["reached"] - row["bound"]
        numbers = (row["reached"], annealed, row["bound"], above)
        cells = [
            f"{num} x {dim}",
            *("" if x is None else f"{x:.5f}" for x in numbers),
            row["construction"],
            f"{seconds:.1f}",
        ]
        cells += [
            "" if x is None else f"{x:.4f}"
            for x in (row["paper"], paper_seconds, row["published"], row["random"], row["ratio"])
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    if len(rows) < len(ANNEALED):
        return
    threads, exact = torch.get_num_threads(), bounds.EXACT
    out = {
        "torch": torch.__version__,
        "threads": threads,
        "optimal_to": exact,
        "seconds": arguments.seconds,
        "rows": rows,
    }
    path = Path(__file__).parent / "results" / "prototypes.json"
    path.write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
