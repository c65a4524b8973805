"""Well-spread points by numerical optimisation: K unit rows in d dimensions, float64, (K, d).

The largest cosine of two different rows is approached from above by the log-sum-exp of all of them,

    E_t(w) = 1/t log sum_{i != j} exp(t w_i . w_j)  ->  max_{i != j} w_i . w_j   as t grows,

minimised by L-BFGS at t = 2, 4, 8, ... Low t spreads the points as a whole, high t pushes the closest pairs apart. It matters
more that every stage converges than how many stages there are: what is decided at low t cannot be mended at high t.

`search` goes on from several such starts: it takes some points out of each, puts them back at random places, anneals again from
t = 16 and keeps what became better. polish.py then brings the winner to the bottom of its valley.

`gaussian_potential` is the recipe of the paper, to compare with: SGD, learning rate .1, 1000 iterations, rows normalised
after each, on its equation 5 with t = 2,

    L_uni = log( 1/n sum_{i in subset} sum_{j=1}^{K} exp(-t |w_i - w_j|^2) ),   n the size of the subset.

As printed, the sum keeps i = j. The subset is all K rows by default (section 4.1 of the paper), or drawn anew each iteration.

S sets are optimised side by side, (S, K, d): a small problem costs more in calls than in arithmetic.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from asterism.prototypes.polish import polish

WHOLE = 1e10  # multiplications up to which all cosines are taken in float64
SCREEN = 1e-5  # well above the rounding of a float32 cosine
Progress = Callable[[str], None]
Energy = Callable[[Tensor, float], tuple[Tensor, Tensor]]


def random_points(num: int, dim: int, generator: torch.Generator) -> Tensor:
    points = torch.randn(num, dim, generator=generator, dtype=torch.float64)
    return points / torch.linalg.vector_norm(points, dim=1, keepdim=True)


def max_cosine(points: Tensor) -> float:
    """Largest cosine of two different rows, in float64, by blocks of rows. points (K, d).

    Many rows are looked through in float32 first; what comes within its rounding of the largest is taken again in float64.
    """
    num = len(points)
    screened = float(num) ** 2 * points.shape[1] > WHOLE
    rows = points.float() if screened else points
    block = max(1, 2**23 // num)
    best, near = -1.0, -1.0
    for start in range(0, num, block):
        cosines = rows[start : start + block] @ rows.T  # (block, K)
        index = torch.arange(len(cosines))
        cosines[index, index + start] = -1.0
        largest = cosines.max().item()
        if not screened:
            best = max(best, largest)
        elif largest >= near - SCREEN:
            near = max(near, largest)
            again = (cosines.amax(dim=1) >= near - SCREEN).nonzero()[:, 0]
            exact = points[again + start] @ points.T
            exact[torch.arange(len(again)), again + start] = -1.0
            best = max(best, exact.max().item())
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


def search(
    num: int, dim: int, seed: int, seconds: float | None, progress: Progress, known: Sequence[Tensor] = ()
) -> Tensor:
    """The best of many annealed sets, polished: a fixed number that falls with K^2 d, or as many as fit in `seconds`.

    known   sets of K rows to start from as well, such as a subset of a good code
    """
    began = time.monotonic()
    budget = seconds or (8.0 if num * dim <= 10_000 else 40.0)
    chains, rounds, evaluations = _plan(num, dim, budget)
    generator = torch.Generator().manual_seed(seed)
    done = 0

    def report(stage: str) -> None:
        found = "" if best is None else f", best max cosine {max_cosine(best):.6f} of {done} sets"
        progress(f"{num} x {dim}: {stage}{found}, {time.monotonic() - began:.0f} s")

    best: Tensor | None = None
    with threads_for(float(num) ** 2 * dim * chains):
        try:
            sets = torch.stack([random_points(num, dim, generator) for _ in range(chains)])
            sets = _anneal(sets, 2.0, evaluations, report)
            heights = _max_cosines(sets)
            for points in known:  # from where they are, not from low t, which would forget them
                nudged = points + 1e-3 * random_points(num, dim, generator)
                nudged = _anneal(nudged[None], 256.0, evaluations, report)
                if max_cosine(nudged[0]) < heights.max():
                    sets[heights.argmax()], heights[heights.argmax()] = nudged[0], max_cosine(nudged[0])
            best, done = sets[heights.argmin()], chains
            temperatures = itertools.cycle((16.0, 64.0))
            while done < chains * (1 + rounds) if seconds is None else time.monotonic() - began < 0.8 * seconds:
                trial = _anneal(_relocate(sets, generator), next(temperatures), evaluations, report)
                found = _max_cosines(trial)
                better = found < heights
                sets = torch.where(better[:, None, None], trial, sets)
                heights = torch.where(better, found, heights)
                done += chains
                if done % (5 * chains) == 0:  # the worst set makes room for a second copy of the best
                    worst, first = heights.argmax(), heights.argmin()
                    sets[worst], heights[worst] = sets[first], heights[first]
                best = sets[heights.argmin()]
            best = _settle(best, evaluations, report)
            report("polishing")
            return polish(best)
        except KeyboardInterrupt:
            if best is None:
                raise
            warnings.warn(f"stopped by hand: the best of {done} sets is kept, as it stands", stacklevel=4)
            return best


def _plan(num: int, dim: int, budget: float) -> tuple[int, int, int]:
    """Sets side by side, rounds of relocation, and evaluations a stage that fill about `budget` seconds on one common core.
    Estimated, not measured, so that the same call does the same work everywhere."""

    def cost(sets: int) -> float:  # of an evaluation
        return 6e-4 + sets * num**2 * (dim + 40) / 6e9

    first, later = 1400, 1000  # evaluations of an annealing from t = 2 and from t = 16
    chains = max([1, *(s for s in range(1, 9) if first * cost(s) <= budget / 2)])
    rounds = min(12, int((budget - first * cost(chains)) / (later * cost(chains))))
    return chains, max(0, rounds), max(40, min(400, int(400 * budget / (first * cost(chains)))))


def _relocate(sets: Tensor, generator: torch.Generator) -> Tensor:
    """Some points of each set are put at random places: one, or ten, or all, each order of magnitude as often. sets (S, K, d)"""
    moved = sets.clone()
    for one in moved:
        count = int(len(one) ** torch.rand((), generator=generator).item())
        chosen = torch.randperm(len(one), generator=generator)[:count]
        one[chosen] = random_points(count, one.shape[1], generator)
    return moved


def _anneal(sets: Tensor, first: float, evaluations: int, report: Progress) -> Tensor:
    """Through the stages from t = `first` to 4096. The last ones need not converge: which set is best shows before, and the best
    one settles later."""
    t = first
    while t <= 2**12:
        report(f"annealing at t = {t:.0f}")
        sets = minimise(sets, t, log_sum_exp, evaluations if t < 512 else min(evaluations, 150))
        t *= 2
    return sets


def _settle(points: Tensor, evaluations: int, report: Progress) -> Tensor:
    """On to temperatures at which the energy is the largest cosine to 1e-5."""
    sets = points[None]
    for k in range(13, 21):
        report(f"settling at t = {2**k}")
        sets = minimise(sets, 2.0**k, log_sum_exp, evaluations)
    return sets[0]


def _max_cosines(sets: Tensor) -> Tensor:
    return torch.tensor([max_cosine(points) for points in sets], dtype=torch.float64)


def log_sum_exp(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """E_t (S,) and its gradient at unnormalised rows x (S, K, d), w = x / |x|; written out, it needs one K x K matrix."""
    length = torch.linalg.vector_norm(x, dim=2, keepdim=True)
    w = x / length
    weights = w @ w.transpose(1, 2)  # (S, K, K)
    weights.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    top = weights.amax(dim=(1, 2), keepdim=True)
    weights.sub_(top).mul_(t).exp_()
    total = weights.sum(dim=(1, 2), keepdim=True)
    pull = (weights @ w).mul_(2 / total)  # dE / dw
    gradient = (pull - (pull * w).sum(dim=2, keepdim=True) * w) / length
    return (top + total.log() / t)[:, 0, 0], gradient


@torch.no_grad()
def minimise(x: Tensor, t: float, energy: Energy, evaluations: int) -> Tensor:
    """L-BFGS on S problems at once, until 20 evaluations gain less than a thousandth of 1/t on any of them. x (S, K, d)

    torch.optim.LBFGS knows one problem, and so one step length for all. Here each has its own: a step that does not lower its
    energy enough is cut, alone.
    """
    f, g = energy(x, t)
    scale = 0.1 / (t * g.abs().amax(dim=(1, 2)).clamp(min=1e-300))
    history: list[tuple[Tensor, Tensor, Tensor]] = []
    spent, marked, before = 1, 1, f
    while spent < evaluations:
        step = _two_loops(g, history, scale)
        slope = _dot(g, step)
        step = torch.where((slope > 0)[:, None, None], step, g * scale[:, None, None])
        slope = _dot(g, step)
        length, accepted = torch.ones_like(f), torch.zeros_like(f, dtype=torch.bool)
        x_new, f_new, g_new = x, f, g
        for _ in range(10):
            x_try = x - length[:, None, None] * step
            f_try, g_try = energy(x_try, t)
            spent += 1
            good = (f_try <= f - 1e-4 * length * slope) & ~accepted
            rows = good[:, None, None]
            x_new, g_new = torch.where(rows, x_try, x_new), torch.where(rows, g_try, g_new)
            f_new = torch.where(good, f_try, f_new)
            accepted |= good
            if accepted.all():
                break
            length = torch.where(accepted, length, length * 0.3)
        s, y = x_new - x, g_new - g
        sy, yy = _dot(s, y), _dot(y, y)
        curved = sy > 1e-10 * (yy * _dot(s, s)).sqrt()  # elsewhere the pair says nothing
        history = [*history[-9:], (s, y, torch.where(curved, 1 / torch.where(curved, sy, 1), 0.0))]
        scale = torch.where(curved, sy / torch.where(curved, yy, 1), scale)
        x, f, g = x_new, f_new, g_new
        if not accepted.any():
            break
        if spent - marked >= 20:
            if (before - f < 1e-3 / t).all():
                break
            before, marked = f, spent
    return x / torch.linalg.vector_norm(x, dim=2, keepdim=True)


def _two_loops(g: Tensor, history: list[tuple[Tensor, Tensor, Tensor]], scale: Tensor) -> Tensor:
    """The L-BFGS step (Nocedal 1980), S at a time."""
    q, factors = g, []
    for s, y, r in reversed(history):
        factors.append(r * _dot(s, q))
        q = q - factors[-1][:, None, None] * y
    q = q * scale[:, None, None]
    for (s, y, r), a in zip(history, reversed(factors), strict=True):
        q = q + (a - r * _dot(y, q))[:, None, None] * s
    return q


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(dim=(1, 2))


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
