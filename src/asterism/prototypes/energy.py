"""Well-spread points by numerical optimisation: K unit rows in d dimensions, float64, (K, d).

`anneal` minimises the log-sum-exp of the cosines of different rows,

    E_t(w) = 1/t log sum_{i<j} exp(t w_i . w_j)  ->  max_{i<j} w_i . w_j   as t grows,

raising t stage by stage, L-BFGS at each. Low t spreads the points as a whole, high t pushes the closest pairs apart.

`gaussian_potential` is the recipe of the paper, to compare with: SGD, learning rate .1, 1000 iterations, rows normalised
after each, on its equation 5 with t = 2,

    L_uni = log( 1/n sum_{i in subset} sum_{j=1}^{K} exp(-t |w_i - w_j|^2) ),   n the size of the subset.

As printed, the sum keeps i = j. The subset is all K rows by default (section 4.1 of the paper), or drawn anew each iteration.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

TEMPERATURES = [2.0**k for k in range(1, 14)]
DENSE_LIMIT = 20_000  # rows; two K x K float64 matrices are held at once: 6.4 GB
Progress = Callable[[str], None]


def random_points(num: int, dim: int, generator: torch.Generator) -> Tensor:
    points = torch.randn(num, dim, generator=generator, dtype=torch.float64)
    return points / torch.linalg.vector_norm(points, dim=1, keepdim=True)


def max_cosine(points: Tensor) -> float:
    """Largest cosine of two different rows, in float64, by blocks of rows. points (K, d)."""
    block = max(1, 2**23 // len(points))
    best = -1.0
    for start in range(0, len(points), block):
        cosines = points[start : start + block] @ points.T  # (block, K)
        rows = torch.arange(len(cosines))
        cosines[rows, rows + start] = -1.0
        best = max(best, cosines.max().item())
    return min(best, 1.0)


@contextlib.contextmanager
def threads_for(work: float) -> Iterator[None]:
    """One thread where a step is too small to share: threads that wait for each other cost a hundred times the step
    when the machine is busy, and one thread gives the same bits everywhere."""
    before = torch.get_num_threads()
    try:
        if work < 1e8:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


def anneal(num: int, dim: int, seed: int, seconds: float | None, progress: Progress) -> Tensor:
    """The best of several annealed starts: a fixed number that falls with K^2 d, or as many as fit in `seconds`."""
    if num > DENSE_LIMIT:
        raise ValueError(
            f"make_prototypes: {num} points need {num**2 * 16 / 2**30:.0f} GiB for their cosines, at most "
            f"{DENSE_LIMIT} can be optimised: use fewer points, or a dimension of at least {(num + 1) // 2}, "
            "where an exact solution exists"
        )
    work = float(num) ** 2 * dim
    starts = int(min(16, max(1, 2e7 // work)))
    iterations = 60 if work < 2e8 else 30
    began, start, best, best_cosine = time.monotonic(), 0, torch.empty(0), torch.inf
    with threads_for(work):
        while not start or (start < starts if seconds is None else time.monotonic() - began < seconds):
            points = random_points(num, dim, torch.Generator().manual_seed(seed * 1_000_003 + start))
            for stage, t in enumerate(TEMPERATURES):
                points = _minimise(points, t, iterations)
                progress(f"start {start + 1}, stage {stage + 1} of {len(TEMPERATURES)}, best {best_cosine:.4f}")
            cosine = max_cosine(points)
            if cosine < best_cosine:
                best, best_cosine = points, cosine
            start += 1
    return best


def _minimise(points: Tensor, t: float, iterations: int) -> Tensor:
    """L-BFGS on E_t over unnormalised rows x, w = x / |x|, with the gradient written out: it needs one K x K matrix."""
    x = points.clone().requires_grad_()
    x.grad = torch.zeros_like(x)

    @torch.no_grad()
    def energy() -> Tensor:
        length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        w = x / length
        weights = w @ w.T
        weights.fill_diagonal_(-torch.inf)
        top = weights.max()
        weights.sub_(top).mul_(t).exp_()
        total = weights.sum()
        pull = (weights @ w).mul_(2 / total)  # dE / dw
        x.grad.copy_((pull - (pull * w).sum(dim=1, keepdim=True) * w) / length)  # type: ignore[union-attr]
        return top + (total / 2).log() / t

    torch.optim.LBFGS(
        [x],
        max_iter=iterations,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
    ).step(energy)
    x = x.detach()
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)


def gaussian_potential(num: int, dim: int, seed: int, subset: int | None = None, progress: Progress = print) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    w = random_points(num, dim, generator)
    with threads_for(float(num) ** 2 * dim):
        for step in range(1000):
            w.requires_grad_()
            chosen = w if subset is None else w[torch.randperm(num, generator=generator)[:subset]]
            distance = chosen.square().sum(dim=1, keepdim=True) + w.square().sum(dim=1) - 2 * chosen @ w.T  # squared
            loss = (torch.exp(-2 * distance).sum() / len(chosen)).log()
            (gradient,) = torch.autograd.grad(loss, w)
            w = w.detach() - 0.1 * gradient
            w = w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
            if step % 50 == 49:
                progress(f"iteration {step + 1} of 1000")
    return w
