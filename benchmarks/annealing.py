"""What the schedule of annealing is worth: the largest cosine of single starts, three seeds each.

    python benchmarks/annealing.py [--seeds 3]

Schedules: 7 temperatures (2, 8, ... 8192) of 100 L-BFGS iterations, 13 (2, 4, ... 8192) of 60, which `make_prototypes` takes, and
13 of 120. Prints one table.
"""

import argparse

import torch

from asterism.prototypes import energy

CASES = [(100, 3), (100, 10), (200, 16), (200, 50), (1000, 128)]
SCHEDULES = {
    "7 x 100": (energy.TEMPERATURES[::2], 100),
    "13 x 60": (energy.TEMPERATURES, 60),
    "13 x 120": (energy.TEMPERATURES, 120),
}


def start(num: int, dim: int, seed: int, temperatures: list[float], iterations: int) -> float:
    points = energy.random_points(num, dim, torch.Generator().manual_seed(seed))
    with energy.threads_for(float(num) ** 2 * dim):
        for t in temperatures:
            points = energy._minimise(points, t, iterations)
    return energy.max_cosine(points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(f"| K x d | {' | '.join(SCHEDULES)} |\n|---|{'---|' * len(SCHEDULES)}")
    for num, dim in CASES:
        cells = [" ".join(f"{start(num, dim, seed, *how):.4f}" for seed in range(seeds)) for how in SCHEDULES.values()]
        print(f"| {num} x {dim} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
