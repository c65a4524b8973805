"""CIFAR-100 on two cores: what fixed stars cost or give, against learned heads. ResNet-8, width 16, 8 epochs, 45,000 images.

    python benchmarks/cifar100.py --data-root PATH [--seeds 3] [--out runs/cifar100]

Recipe: SGD with Nesterov momentum .9, one-cycle to .2, batch 128, weight decay 5e-4, crop + flip; validation 5,000 images; the
test split is scored once, at the end of each run. Every run is a line of results.jsonl; finished ones are not run again.
"""

import argparse
import json
import statistics
from pathlib import Path

import asterism
from asterism.data import load_data

GRID = [
    ("psc-linear", None),
    *((m, d) for m in ("psc-scaled", "dl2pa", "dl2pa-static", "asterism") for d in (10, 50, 100)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/cifar100"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = arguments.out / "results.jsonl"
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    data = load_data("cifar100", root=arguments.data_root)  # the same held-out images for all seeds
    for seed in range(arguments.seeds):
        for method, dim in GRID:
            if any(
                (r["method"], r["dim"], r["seed"], r["epochs"]) == (method, dim, seed, arguments.epochs) for r in rows
            ):
                continue
            folder = arguments.out / f"{method}-d{dim or 64}-seed{seed}"
            config = asterism.TrainConfig(
                data="cifar100",
                data_root=arguments.data_root,
                method=method,
                dim=dim,
                seed=seed,
                epochs=arguments.epochs,
                run_dir=str(folder),
                resume=folder.exists(),
            )
            result = asterism.train(config, data=data)
            if result.interrupted:
                raise SystemExit(1)
            rows.append(
                {
                    "method": method,
                    "dim": dim,
                    "seed": seed,
                    "epochs": arguments.epochs,
                    "accuracy": result.accuracy,
                    "val_accuracy": result.val_accuracy,
                    "seconds": result.seconds,
                }
            )
            with open(results, "a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(json.dumps(rows[-1]), flush=True)
    table(rows, arguments.epochs)


def table(rows: list[dict], epochs: int) -> None:
    print(f"\n| method, {epochs} epochs | d | test accuracy | seeds |\n|---|---|---|---|")
    for method, dim in GRID:
        found = [100 * r["accuracy"] for r in rows if (r["method"], r["dim"], r["epochs"]) == (method, dim, epochs)]
        if found:
            spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
            print(f"| {method} | {dim or 64} | {statistics.mean(found):.2f}{spread} | {len(found)} |")


if __name__ == "__main__":
    main()
