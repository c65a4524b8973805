"""The prototypes of the paper's peers: what the other rows of its tables put at the place of ours.

    hpn                Mettes, van der Pol, Snoek, Hyperspherical Prototype Networks, NeurIPS 2019
    word2vec           vectors of class names (Mikolov et al., NeurIPS 2013), reduced by PCA
    etf                Yang et al., Inducing Neural Collapse in Imbalanced Learning, NeurIPS 2022
    maxsep             Kasarla et al., Maximum Class Separation as Inductive Bias in One Matrix, NeurIPS 2022
    orthonormal        rows of a random rotation
    hadamard           Hoffer, Hubara, Soudry, Fix Your Classifier, ICLR 2018
    equiangular_basis  Shen, Sun, Wei, Equiangular Basis Vectors, CVPR 2023
    random             independent, uniform on the sphere
    learned            the rows of a trained linear head

K prototypes, d dimension, V dimension of word vectors. Each returns (K, d) float64 unit rows on the CPU and depends on its
arguments and seed alone. Written from the papers; where a paper leaves something open, the docstring says what was taken.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from asterism.checks import check_matrix, check_simplex_fits
from asterism.prototypes import codes
from asterism.prototypes.energy import Progress, minimise, random_points, threads_for

HPN_STEPS, HPN_RATE, HPN_MOMENTUM = 1000, 0.01, 0.9
DEGREES = 16  # of Chebyshev polynomials: they give the logistic function of a difference of two cosines to 1e-12


def _quiet(_: str) -> None:
    pass


def hpn(num: int, dim: int, seed: int = 0, vectors: Tensor | None = None, progress: Progress = _quiet) -> Tensor:
    """Hyperspherical prototypes: gradient descent with momentum on the mean over the rows of their largest cosine,

        L_HP = 1/K sum_i max_{j != i} w_i . w_j,

    rows normalised after each step. With `vectors` (K, V), one a class, plus the semantic term

        L_PI = mean over ordered triplets (i, j, k) of -s log o - (1 - s) log(1 - o),
        o = logistic(w_i . w_j - w_i . w_k),   s = 1 where cos(v_i, v_j) >= cos(v_i, v_k), else 0,

    so that whom a class is closer to in words, it is closer to on the sphere. Learning rate .01, momentum .9, 1000 steps: the
    settings with which 100 x 100 ends at the .05 and -.39 that are published for it. Both terms weigh 1, all triplets count.

    >>> points = hpn(10, 4)
    >>> -1 / 9 < (points @ points.T - 2 * torch.eye(10)).max().item() < 0.6
    True
    """
    w = random_points(num, dim, torch.Generator().manual_seed(seed))
    ranks = None
    if vectors is not None:
        words = _words("hpn", vectors)
        if len(words) != num:
            raise ValueError(f"hpn: {len(words)} word vectors came for {num} prototypes, must be one a prototype")
        words = words / torch.linalg.vector_norm(words, dim=1, keepdim=True)
        ranks = _ranks(words @ words.T)
    velocity = torch.zeros_like(w)
    with threads_for(float(num) ** 2 * dim):
        for step in range(HPN_STEPS):
            velocity = HPN_MOMENTUM * velocity + _hpn_gradient(w, ranks)
            w = w - HPN_RATE * velocity
            w = w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
            if step % 50 == 49:
                progress(f"iteration {step + 1} of {HPN_STEPS}")
    return w


def _hpn_gradient(w: Tensor, ranks: Tensor | None) -> Tensor:
    """d(L_HP + L_PI) / dw, (K, d)."""
    cosines = (w @ w.T).fill_diagonal_(-2)
    nearest = cosines.argmax(dim=1)  # (K,)
    gradient = w[nearest].index_add(0, nearest, w) / len(w)  # a row pulls at its nearest and is pulled by it
    if ranks is not None:
        slope = _order_slope(cosines, ranks)  # (K, K) dL_PI / dcosines
        gradient += (slope + slope.T) @ w
    return gradient


def _ranks(similar: Tensor) -> Tensor:
    """(K, K): how many of the other classes are less similar to i than j is, those as similar counted half. Diagonal 0."""
    similar = similar.clone().fill_diagonal_(-torch.inf)
    ordered = similar.sort(dim=1).values
    below = torch.searchsorted(ordered, similar)
    upto = torch.searchsorted(ordered, similar, right=True)
    return ((below + upto - 1) / 2 - 1).double().fill_diagonal_(0)  # the row itself stands first and does not count


def _order_slope(cosines: Tensor, ranks: Tensor) -> Tensor:
    """dL_PI / dcosines (K, K): in row i  2/T (sum_{k != i, j} logistic(c_ij - c_ik) - ranks_ij),  T = K (K-1) (K-2).

    A triplet counts from both sides, hence the 2. The sum over k is that of a function of two numbers in [-1, 1]; as a
    Chebyshev series in both it takes K^2 steps in all instead of K^3.
    """
    num = len(cosines)
    if num < 3:
        return torch.zeros_like(cosines)
    angles = (torch.arange(DEGREES, dtype=torch.float64) + 0.5) * (math.pi / DEGREES)
    nodes = angles.cos()
    into = torch.cos(torch.arange(DEGREES)[:, None] * angles) * (2 / DEGREES)  # values at the nodes -> coefficients
    into[0] /= 2
    series = into @ torch.sigmoid(nodes[:, None] - nodes) @ into.T  # (degrees, degrees)
    terms = _chebyshev(cosines.clamp(-1, 1))  # (K, K, degrees)
    terms.diagonal().zero_()  # k != i
    sums = (terms @ (terms.sum(dim=1) @ series.T)[:, :, None])[:, :, 0] - 0.5  # k = j gave logistic(0)
    return ((sums - ranks) * (2 / (num * (num - 1) * (num - 2)))).fill_diagonal_(0)


def _chebyshev(x: Tensor) -> Tensor:
    """T_0(x), T_1(x), ... in a new last dimension."""
    terms = [torch.ones_like(x), x]
    while len(terms) < DEGREES:
        terms.append(2 * x * terms[-1] - terms[-2])
    return torch.stack(terms, dim=-1)


def word2vec(vectors: Tensor, dim: int) -> Tensor:
    """Vectors of class names (K, V), centred, reduced to d by PCA and normalised. Where d > K - 1, the last coordinates are 0.

    >>> word2vec(torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 1.0]]), 2).shape
    torch.Size([3, 2])
    """
    words = _words("word2vec", vectors)
    if not 1 <= dim <= words.shape[1]:
        raise ValueError(
            f"word2vec: {dim} dimensions were asked of word vectors with {words.shape[1]}, "
            f"must be 1..{words.shape[1]}: use longer vectors or fewer dimensions"
        )
    centred = words - words.mean(dim=0)
    left, strength, _ = torch.linalg.svd(centred, full_matrices=False)
    # The sign of an axis is free: its first large coordinate is made positive, so that all machines agree.
    large = left.abs() >= 0.5 * left.abs().amax(dim=0)
    left = left * left.gather(0, large.int().argmax(dim=0, keepdim=True)).sign()
    strength = torch.where(strength > 1e-12 * strength[0], strength, 0)
    reduced = words.new_zeros(len(words), dim)
    kept = min(dim, len(strength))
    reduced[:, :kept] = left[:, :kept] * strength[:kept]
    lengths = torch.linalg.vector_norm(reduced, dim=1, keepdim=True)
    _refuse(
        "word2vec",
        lengths[:, 0] <= 1e-9 * lengths.max(),
        f"of the word vectors come to nothing when reduced to d = {dim}",
        "use more dimensions",
    )
    points = reduced / lengths
    _refuse_equal("word2vec", points.round(decimals=9), f"of the word vectors become equal when reduced to d = {dim}")
    return points


def _words(who: str, vectors: Tensor) -> Tensor:
    """Word vectors (K, V) in float64, or a ValueError that names the rows that say nothing about their class."""
    words = check_matrix(who, "vectors", vectors).detach().cpu().double()
    advice = "give each class a vector of its own, such as the mean over the words of its name"
    _refuse(
        who, (words == 0).all(dim=1), "of the word vectors hold only zeros, as for names out of the vocabulary", advice
    )
    _refuse_equal(who, words, "of the word vectors are equal")
    return words


def _refuse(who: str, bad: Tensor, what: str, advice: str) -> None:
    rows = bad.nonzero()[:, 0].tolist()
    if rows:
        more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
        rows_are = f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:10]))}{more}"
        raise ValueError(f"{who}: {rows_are} {what}: {advice}")


def _refuse_equal(who: str, rows: Tensor, what: str) -> None:
    """The first group of equal rows is an error."""
    _, group, counts = torch.unique(rows, dim=0, return_inverse=True, return_counts=True)
    repeated = (counts > 1)[group].nonzero()[:, 0]
    if len(repeated):
        _refuse(who, group == group[repeated[0]], what, "two classes cannot share a prototype")


def etf(num: int, dim: int, seed: int = 0) -> Tensor:
    """A random simplex frame, the columns of  sqrt(K / (K-1)) U (I - 1 1^T / K),  U a random partial rotation; K <= d + 1.

    For K = d + 1, where no such (d, K) matrix U exists, the simplex is turned as a whole: the same distribution.

    >>> points = etf(4, 3)
    >>> (points @ points.T)[0, 1:].sub(-1 / 3).abs().max().item() < 1e-12
    True
    """
    check_simplex_fits(num, dim)
    return codes.simplex(num, num - 1) @ orthonormal(num - 1, dim, seed)


def maxsep(num: int, dim: int) -> Tensor:
    """The recursive simplex; K <= d + 1. With one class vector a column, P_1 = (1, -1) and

        P_k = [ 1   -1/k 1^T              ]
              [ 0   sqrt(1 - 1/k^2) P_{k-1} ],

    which, written out, is `codes.simplex`; further coordinates are 0.

    >>> maxsep(3, 2)[0]
    tensor([1., 0.], dtype=torch.float64)
    """
    check_simplex_fits(num, dim)
    return codes.simplex(num, dim)


def orthonormal(num: int, dim: int, seed: int = 0) -> Tensor:
    """The first K rows of a random rotation; K <= d.

    >>> points = orthonormal(2, 5)
    >>> (points @ points.T - torch.eye(2)).abs().max().item() < 1e-12
    True
    """
    if num > dim:
        raise ValueError(f"{num} orthonormal prototypes need {num} dimensions, came {dim}")
    columns = torch.randn(dim, num, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q, r = torch.linalg.qr(columns)
    return (
        q * r.diagonal().sign()
    ).T.contiguous()  # signs fixed: else the rotation is not uniform, nor the same everywhere


def random(num: int, dim: int, seed: int = 0) -> Tensor:
    """Independent rows, uniform on the sphere.

    >>> random(5, 3).shape
    torch.Size([5, 3])
    """
    return random_points(num, dim, torch.Generator().manual_seed(seed))


def learned(weight: Tensor) -> Tensor:
    """The rows (K, d) of a trained head, normalised.

    >>> learned(torch.nn.Linear(4, 3).weight).norm(dim=1)
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    rows = check_matrix("learned", "weight", weight).detach().cpu().double()
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    _refuse(
        "learned", lengths[:, 0] == 0, "of the weight hold only zeros", "they have no direction; train the head first"
    )
    return rows / lengths


def hadamard(num: int, dim: int, seed: int = 0) -> Tensor:
    """The first K rows of a Hadamard matrix, cut to d of its columns drawn by the seed: all coordinates are +-1 / sqrt(d).

    The matrix is the smallest of order n >= max(K, d) that doubling (Sylvester) and quadratic residues modulo a prime (Paley)
    build. Cosines: 0 for all pairs where n = d; else at most (n - d) / d in size, since what two orthogonal rows keep is minus
    what they lose. For n >= 2d that says nothing, and all that holds is that no two rows are equal: where the drawing makes some
    so, columns 1, 2, 4, ... of Sylvester's matrix, which spell the number of a row, take the place of the first.

    >>> hadamard(3, 4)[0]
    tensor([0.5000, 0.5000, 0.5000, 0.5000], dtype=torch.float64)
    """
    if dim < math.log2(num):
        raise ValueError(
            f"hadamard: {num} different rows of signs need {math.ceil(math.log2(num))} dimensions, came {dim}"
        )
    order = max(num, dim)
    while not _buildable(order):
        order += 1
    rows = torch.arange(num)[:, None]
    columns = torch.arange(dim)
    if order > dim:
        columns = torch.randperm(order, generator=torch.Generator().manual_seed(seed))[:dim]
    signs = _signs(order, rows, columns[None])
    if len(torch.unique(signs, dim=0)) < num:
        bits = (num - 1).bit_length()
        columns[:bits] = 2 ** torch.arange(bits)
        signs = _signs(2 ** max(bits, int(columns.max()).bit_length()), rows, columns[None])
    return signs / math.sqrt(dim)


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))


def _buildable(order: int) -> bool:
    """Whether `_signs` builds this order."""
    if order <= 2:
        return order > 0
    if order % 4:
        return False
    paley = _is_prime(order - 1) or (_is_prime(order // 2 - 1) and order // 2 % 4 == 2)
    return paley or _buildable(order // 2)


def _signs(order: int, i: Tensor, j: Tensor) -> Tensor:
    """Entries (i, j) of a Hadamard matrix in float64, i (K, 1), j (1, d): the matrix itself is never formed."""
    if order == 1:
        return torch.ones(torch.broadcast_shapes(i.shape, j.shape), dtype=torch.float64)
    half = order // 2
    if _buildable(half):  # [[H, H], [H, -H]]
        return _signs(half, i % half, j % half) * torch.where((i >= half) & (j >= half), -1.0, 1.0).double()
    if _is_prime(order - 1):  # Paley's first: I + S, S skew, for primes 3 modulo 4
        return torch.where((i > 0) & (j == 0), -1.0, _residue_border(order - 1, i, j)) + (i == j).double()
    # Paley's second: C x [[1, 1], [1, -1]] + I x [[1, -1], [-1, -1]], C symmetric, for primes 1 modulo 4
    both = torch.where((i % 2 == 1) & (j % 2 == 1), -1.0, 1.0)
    diagonal = torch.where((i % 2 == 0) & (j % 2 == 0), 1.0, -1.0)
    a, b = i // 2, j // 2
    return _residue_border(half - 1, a, b) * both + (a == b) * diagonal


def _residue_border(prime: int, i: Tensor, j: Tensor) -> Tensor:
    """Entries of [[0, 1], [1, Q]] of order p + 1, Q_ij = 1 where i - j is a square modulo p, 0 where it is 0, else -1."""
    character = torch.full((prime,), -1.0, dtype=torch.float64)
    character[torch.arange(1, prime).square() % prime] = 1.0
    character[0] = 0.0
    inner = character[(i - j) % prime]  # the border shifts both indices alike
    return torch.where((i == 0) | (j == 0), (i != j).double(), inner)


def equiangular_basis(num: int, dim: int, seed: int = 0, progress: Progress = _quiet) -> Tensor:
    """Rows with |w_i . w_j| <= alpha for all pairs, alpha as small as it gets: lines, not points, far from each other.

    Exact for K <= d (alpha 0), K = d + 1 (the simplex, 1/d) and d = 2 (cos(pi / K)); else the best of a few annealed starts:
    log-sum-exp of the cosines and their negatives, L-BFGS at rising temperature. No set has alpha below
    sqrt((K - d) / (d (K - 1))) (Welch 1974).

    >>> points = equiangular_basis(6, 3)  # the diagonals of the icosahedron, 1 / sqrt(5)
    >>> round((points @ points.T - torch.eye(6)).abs().max().item(), 3)
    0.447
    """
    if num <= dim:
        return orthonormal(num, dim, seed)
    if num == dim + 1:
        return codes.simplex(num, dim)
    if dim == 2:
        return codes.circle(2 * num)[:num]
    work = float(num) ** 2 * dim
    generator = torch.Generator().manual_seed(seed)
    sets = torch.stack([random_points(num, dim, generator) for _ in range(int(min(8, max(1, 2e7 // work))))])
    with threads_for(work * len(sets)):
        for k in range(1, 15):
            progress(f"{len(sets)} sets, stage {k} of 14")
            sets = minimise(sets, 2.0**k, _line_energy, 400)
    alphas = [(points @ points.T).fill_diagonal_(0).abs().max().item() for points in sets]
    return sets[alphas.index(min(alphas))]


def _line_energy(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """1/t log sum_{i != j} exp(t w_i . w_j) + exp(-t w_i . w_j) and its gradient at unnormalised rows x (S, K, d), w = x / |x|."""
    length = torch.linalg.vector_norm(x, dim=2, keepdim=True)
    w = x / length
    cosines = w @ w.transpose(1, 2)
    cosines.diagonal(dim1=1, dim2=2).zero_()
    top = cosines.abs().amax(dim=(1, 2), keepdim=True)
    towards, away = ((cosines - top) * t).exp(), ((-cosines - top) * t).exp()
    total = (towards + away).sum(dim=(1, 2), keepdim=True)
    pull = ((towards - away) @ w) * (2 / total)  # the diagonal takes no part: its two terms cancel
    gradient = (pull - (pull * w).sum(dim=2, keepdim=True) * w) / length
    return (top + total.log() / t)[:, 0, 0], gradient
