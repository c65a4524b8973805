"""Images a second of the training loop against the plain fp32 PyTorch loop, in one run: ResNet-32, CIFAR-sized data, batch 128.

    python benchmarks/training.py [--backbone resnet32] [--steps 30] [--rounds 3]

    asterism   `asterism.train` as it is: bf16 where the CPU computes in it, channels-last, crop + flip, fixed stars, means
    plain      fp32, the usual memory layout, the same network and augmentation, nn.Linear + cross-entropy, torch.optim.SGD

The two take turns; the figures are medians over the rounds. The share of a step outside the backbone is measured piece by piece:
fetching and augmenting a batch, and the head's step (targets, loss, gradient at the features, class means). Writes
benchmarks/results/training.json.
"""

import argparse
import csv
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import asterism
from asterism.backbones import make_embedder
from asterism.data import Dataset, Split
from asterism.data.augment import Augment, Batches
from asterism.runs import Checkpoint
from asterism.training.metrics import head_seconds

BATCH = 128


def make_data(steps: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    n = steps * BATCH
    images = torch.randint(0, 256, (n, 32, 32, 3), dtype=torch.uint8, generator=generator)
    split = Split(images, torch.arange(n) % 100)
    few = Split(images[:100], torch.arange(100))
    return Dataset(
        "random", split, Split(images[:0], few.labels[:0]), few, [str(i) for i in range(100)], crop=4, flip=True
    )


def ours(data: Dataset, backbone: str) -> tuple[float, float]:
    """Images a second, and the seconds of the head in a step."""
    with tempfile.TemporaryDirectory() as folder:
        config = asterism.TrainConfig(data="cifar100", backbone=backbone, epochs=1, dim=64, run_dir=folder + "/run")
        asterism.train(config, data=data, quiet=True)
        with open(folder + "/run/metrics.csv", newline="") as file:
            rate = float(next(csv.DictReader(file))["images_per_second"])
        model = Checkpoint.load(folder + "/run/last.safetensors").model()
    return rate, head_seconds(model, BATCH, torch.device("cpu"))


def plain(data: Dataset, backbone: str) -> float:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        make_embedder(backbone, (32, 32, 3), None, batch_norm=False), torch.nn.Linear(64, 100)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    images = data.train.inputs.permute(0, 3, 1, 2).contiguous()
    mean, deviation = (torch.tensor(v).view(3, 1, 1) * 255 for v in ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))
    order = torch.randperm(len(images))
    began = time.perf_counter()
    for k in range(len(images) // BATCH):
        index = order[k * BATCH : (k + 1) * BATCH]
        x = F.pad((images[index].float() - mean) / deviation, (4, 4, 4, 4))
        top, left = torch.randint(0, 9, (2,)).tolist()
        x = x[:, :, top : top + 32, left : left + 32]
        x = torch.where(torch.rand(BATCH, 1, 1, 1) < 0.5, x.flip(3), x)
        loss = F.cross_entropy(network(x), data.train.labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return len(images) / (time.perf_counter() - began)


def fetch_seconds(data: Dataset) -> float:
    batches = Batches(data.train, [0.5] * 3, [0.25] * 3, torch.device("cpu"), Augment(crop=4, flip=True), 0)
    batches.start(0)
    times = []
    for step in range(len(data.train) // BATCH):
        began = time.perf_counter()
        batches(step, BATCH)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="resnet32")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    data = make_data(arguments.steps)
    rates, plain_rates, head = [], [], 0.0
    for _ in range(arguments.rounds):
        plain_rates.append(plain(data, arguments.backbone))
        rate, head = ours(data, arguments.backbone)
        rates.append(rate)
    rate, plain_rate, fetch = statistics.median(rates), statistics.median(plain_rates), fetch_seconds(data)
    outside = (head + fetch) / (BATCH / rate)
    bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    print(f"{arguments.backbone}, 32 x 32 x 3, batch {BATCH}, {torch.get_num_threads()} threads, bf16 units: {bf16}\n")
    print("| loop | images/s | ratio |\n|---|---|---|")
    print(f"| plain fp32 | {plain_rate:,.0f} | 1 |")
    print(f"| asterism.train | {rate:,.0f} | {rate / plain_rate:.2f} |")
    print(
        f"\noutside the backbone: {outside:.1%} of a step of {BATCH / rate * 1e3:.1f} ms "
        f"(batch {fetch * 1e3:.2f}, head {head * 1e3:.2f})"
    )
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    found = {
        "backbone": arguments.backbone,
        "plain": plain_rate,
        "asterism": rate,
        "ratio": rate / plain_rate,
        "outside": outside,
        "bf16": bf16,
    }
    (folder / "training.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
