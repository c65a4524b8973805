"""Which of 10^6 rows is nearest, side by side: the transform of an algebraic code against a blocked matrix product with its table.

    python benchmarks/search.py [--rows 1000000] [--queries 1 16 256]

    matmul     queries @ table.T in blocks of 8192 rows and the running argmax, float32; the (rows, 256) table lies in memory
    nearest    AlgebraicCode.nearest on the first `rows` rows of the same code: no table, and exact in float64
    butterfly  the same, with the transform as log2 n passes of sums and differences instead of two matrix products

Delsarte-Goethals 256/3, 8.4 million points in 256 dimensions, largest cosine 1/8. Queries are normal random vectors, for which many
rows come close. Each time is the fastest of runs that fill at least 20 seconds, the three ways taken in turn: other work on the
machine can only add to it. Writes benchmarks/results/search.json.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from asterism.prototypes import algebraic

BLOCK = 8192  # rows


def by_matmul(queries, table):
    best, index = torch.full((len(queries),), -torch.inf), torch.zeros(len(queries), dtype=torch.int64)
    for start in range(0, len(table), BLOCK):
        top, place = (queries @ table[start : start + BLOCK].T).max(dim=1)
        better = top > best
        best, index = torch.where(better, top, best), torch.where(better, place + start, index)
    return index


def butterfly(x):
    shape, n = x.shape, x.shape[-1]
    half = n // 2
    while half:
        pairs = x.view(-1, 2, half)
        x = torch.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], dim=1)
        half //= 2
    return x.view(shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 16, 256])
    arguments = parser.parse_args()
    code = algebraic.AlgebraicCode(log_dim=8, delta=3)
    products = algebraic.walsh_hadamard
    table = torch.cat([code.rows(part, torch.float32) for part in torch.arange(arguments.rows).split(2**16)])
    generator = torch.Generator().manual_seed(0)
    results = []
    print(f"{arguments.rows:,} rows of {code.name}, {torch.get_num_threads()} threads, torch {torch.__version__}\n")
    print("| queries | matmul, ms | nearest, ms | butterfly, ms | matmul / nearest | matmul / butterfly | same rows |")
    print("|---|---|---|---|---|---|---|")
    for count in arguments.queries:
        queries = torch.randn(count, code.dim, generator=generator)
        ways = {
            "matmul": (products, lambda q: by_matmul(q, table)),
            "nearest": (products, lambda q: code.nearest(q, arguments.rows)[0]),
            "butterfly": (butterfly, lambda q: code.nearest(q, arguments.rows)[0]),
        }
        times, found, began = {way: [] for way in ways}, {}, time.perf_counter()
        while len(times["matmul"]) < 5 or time.perf_counter() - began < 20:
            for way, (transform, search) in ways.items():
                algebraic.walsh_hadamard = transform
                start = time.perf_counter()
                found[way] = search(queries)
                times[way].append(time.perf_counter() - start)
        ms = {way: min(t) * 1e3 for way, t in times.items()}
        same = (found["matmul"] == found["nearest"]).float().mean().item()
        print(
            f"| {count} | {ms['matmul']:.1f} | {ms['nearest']:.1f} | {ms['butterfly']:.1f} | {ms['matmul'] / ms['nearest']:.1f} | "
            f"{ms['matmul'] / ms['butterfly']:.1f} | {same:.4f} |",
            flush=True,
        )
        results.append(
            {
                "queries": count,
                "rows": arguments.rows,
                "dim": code.dim,
                "ms": ms,
                "same": same,
                "runs": len(times["matmul"]),
            }
        )
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    record = {"threads": torch.get_num_threads(), "torch": torch.__version__, "code": code.name, "results": results}
    (folder / "search.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
