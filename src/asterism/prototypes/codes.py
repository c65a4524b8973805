"""Exact constructions: point sets in closed form, most of them the best there can be. Rows are float64 unit vectors, (K, d).

`circle`, `simplex` and `orthoplex` exist for every K that fits; `CODES` is the table of all others, `candidates` searches it.
A code answers for every smaller K by its first K rows, and for every larger d by zeros behind each row.

Five ways to make a code fill the table (K points, d dimensions, q a prime power):

    section     the points of a code that have given products with some poles, seen from there: projected on the complement
                of the poles. With one pole, a point of the code itself, at cosine s, it is called a cap: a cosine c becomes
                (c - s^2) / (1 - s^2), in d - 1 dimensions. E8 and the Leech lattice hold most sharp codes in this way.
    words       the words of a q-ary code of length n, each letter a corner of a simplex of its own: n (q - 1) dimensions;
                words that agree in m places have the cosine (q m / n - 1) / (q - 1).
    isotropic   the points of a generalised quadrangle GQ(q, q^2), (q + 1)(q^3 + 1) in q (q^2 - q + 1) dimensions: cosine
                -1/q where a line joins two of them, else 1/q^2.
    chirps      exp(2 pi i f(x) / p) / sqrt(q), f quadratic over GF(q), q odd, times 1, i, -1 and -i: with the axes,
                4 q (q + 1) points in 2q dimensions, q + 1 orthoplexes at 1 / sqrt(q) from each other.
    spectral    a strongly regular graph in the eigenspace of its least eigenvalue s, of dimension d: with degree k, cosine
                s / k for neighbours, else -(1 + s) / (K - 1 - k).

Order of rows: of an antipodal code (with x always -x) the first half holds one of each pair, and the second half is its
negative. In a section, rows orthogonal to all rows before them come first. 24-cell, 600-cell, E7, E8, P9a, P10b, Barnes-Wall,
Leech and chirps open with an orthonormal basis.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Build = Callable[[], Tensor]
EPS = 1e-6  # rounding is far smaller, two different cosines of a code are farther apart


@dataclass(frozen=True)
class Code:
    """A point set in closed form: its size, its largest cosine, and how to build it.

    >>> code = candidates(200, 8)[0]
    >>> code.name, code.num, code.dim, code.cosine
    ('E8 roots', 240, 8, 0.5)
    >>> code.build().shape
    torch.Size([240, 8])
    """

    name: str
    num: int  # K
    dim: int  # d
    cosine: float  # largest cosine of two different points
    build: Build = field(repr=False)  # () -> (K, d) float64 unit rows
    symmetry: str = ""  # the group of isometries that keep the code, where known
    source: str = ""


def candidates(num: int, dim: int) -> list[Code]:
    """The codes of the table with at least K points in at most d dimensions, smallest cosine first.

    >>> [(code.name, code.num, code.dim) for code in candidates(100, 24)][:2]
    [('Higman-Sims graph', 100, 22), ('isotropic, q = 3', 112, 21)]
    """
    fit = [code for code in CODES if code.num >= num and code.dim <= dim]
    return sorted(fit, key=lambda code: (code.cosine, code.dim, code.num))


def circle(num: int) -> Tensor:
    """K points at equal angles; the largest cosine is cos(2 pi / K)."""
    angle = torch.arange(num, dtype=torch.float64) * (2 * math.pi / num)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def simplex(num: int, dim: int) -> Tensor:
    """K <= d + 1 points with all cosines -1 / (K - 1), in the first K - 1 coordinates.

    Row by row: axis i carries point i up and all later points down by the same amount, so that each axis sums to zero.
    """
    points = torch.zeros(num, dim, dtype=torch.float64)
    for i in range(num - 1):
        left = num - 1 - i  # points after i; what is left of the unit length of each falls by this axis
        points[i, i] = math.sqrt(num * left / ((num - 1) * (left + 1)))
        points[i + 1 :, i] = -points[i, i] / left
    return points


def orthoplex(num: int, dim: int) -> Tensor:
    """K <= 2d of the points +-e_i, all + before any -, so that a class has an opposite only when K > d makes it so."""
    eye = torch.eye(dim, dtype=torch.float64)
    return torch.cat([eye, -eye])[:num]


# Sections and caps -----------------------------------------------------------------------------------------------------


def _section(points: Tensor, poles: Tensor, products: Sequence[float]) -> Tensor:
    """Those of the points (K, n), all of one length, whose products with the poles (m, n) are as given, seen from the poles:
    (., n - m) unit rows in a basis of the complement of the poles."""
    chosen = points[((points @ poles.T - points.new_tensor(products)).abs() < EPS).all(dim=1)]
    complement = torch.linalg.qr(poles.T, mode="complete").Q[:, len(poles) :]  # (n, n - m)
    return _arranged(chosen @ complement)


def _arranged(points: Tensor) -> Tensor:
    """Unit rows, orthogonal ones first; of an antipodal set one half, then its negative. Otherwise the order is kept."""
    points = points / torch.linalg.vector_norm(points, dim=1, keepdim=True)
    if (points @ points[0]).min() > EPS - 1:
        return _orthogonal_first(points)
    first = (points.abs() > EPS).int().argmax(dim=1, keepdim=True)  # the first coordinate that is not zero
    half = _orthogonal_first(points[points.gather(1, first)[:, 0] > 0])
    return torch.cat([half, -half])


def _orthogonal_first(points: Tensor) -> Tensor:
    rest = torch.ones(len(points), dtype=torch.bool)
    free = rest.clone()  # orthogonal to all rows taken
    taken = []
    while free.any():
        i = int(free.int().argmax())
        taken.append(i)
        rest[i] = False
        free &= (points @ points[i]).abs() < EPS
    return torch.cat([points[taken], points[rest]])


def _section_of(num: int, dim: int, poles: Sequence[Sequence[float]], products: Sequence[float] = ()) -> Build:
    """A section of the code num x dim of the table. Poles are filled up with zeros, products are zero unless given."""

    def build() -> Tensor:
        rows = torch.zeros(len(poles), dim, dtype=torch.float64)
        for row, pole in zip(rows, poles, strict=True):
            row[: len(pole)] = torch.tensor(pole)
        return _section(_table(num, dim).build(), rows, products or [0] * len(poles))

    return build


def _cap(num: int, dim: int, cosine: float) -> Build:
    """The cap of the code num x dim of the table at this cosine from its first point."""

    def build() -> Tensor:
        points = _table(num, dim).build()
        return _section(points, points[:1], [cosine])

    return build


def _table(num: int, dim: int) -> Code:
    return next(code for code in CODES if (code.num, code.dim) == (num, dim))


def _zero(num: int) -> list[list[int]]:
    """Poles: the first coordinates, so many, are zero."""
    return [[0] * i + [1] for i in range(num)]


def _equal(start: int, stop: int) -> list[list[int]]:
    """Poles: coordinates start to stop - 1 are equal."""
    return [[0] * i + [1, -1] for i in range(start, stop - 1)]


# Roots, kissing configurations, polytopes ------------------------------------------------------------------------------

PHI = (1 + math.sqrt(5)) / 2


def _icosahedron() -> Tensor:
    half = torch.tensor([[0, 1, PHI], [0, -1, PHI]], dtype=torch.float64)
    return _arranged(torch.cat([s * half.roll(i, dims=1) for s in (1, -1) for i in range(3)]))


def _cell600() -> Tensor:
    """The 24-cell and the even permutations of (+-phi, +-1, +-1 / phi, 0) / 2."""
    even = [p for p in itertools.permutations(range(4)) if torch.eye(4)[list(p)].det() > 0]
    corners = _signs(3) * torch.tensor([PHI, 1, 1 / PHI], dtype=torch.float64)
    corners = torch.nn.functional.pad(corners / 2, (0, 1))  # (8, 4)
    return _arranged(torch.cat([_blocks(4, [(0, 1, 2, 3)])(), *[corners[:, list(p)] for p in even]]))


def _signs(num: int) -> Tensor:
    return 1 - 2 * _tuples(2, num).double()


def _blocks(num: int, blocks: Sequence[Sequence[int]]) -> Build:
    """+-e_i, and (+-1, +-1, +-1, +-1) / 2 on blocks of four coordinates that share at most two: cosine 1/2."""

    def build() -> Tensor:
        corners = _signs(4)[:8] / 2  # (8, 4): the first is +
        eye = torch.eye(num, dtype=torch.float64)
        half = torch.cat([eye, *[corners @ eye[list(block)] for block in blocks]])
        return torch.cat([half, -half])

    return build


# The affine planes of GF(2)^3, and the quadruple system on ten points: any three points lie in one block.
EIGHT = [b for b in itertools.combinations(range(8), 4) if b[0] ^ b[1] ^ b[2] ^ b[3] == 0]
TEN = [[(i + s) % 10 for i in b] for b in ((0, 1, 3, 4), (0, 1, 2, 6), (0, 2, 4, 7)) for s in range(10)]


def _coxeter_todd() -> Tensor:
    """With w^3 = 1 and t = w - w^2: +-t (w^a e_i - w^b e_j), and +-(w^a_1, ..., w^a_6) where the exponents sum to a multiple
    of three; real and imaginary parts are coordinates."""
    units = torch.polar(torch.ones(3).double(), torch.arange(3).double() * (2 * math.pi / 3))
    exponents = _tuples(3, 6)
    full = units[exponents[exponents.sum(dim=1) % 3 == 0]]  # (243, 6)
    eye = torch.eye(6, dtype=torch.complex128) * (units[1] - units[2])
    pairs = [a * eye[i] - b * eye[j] for i, j in itertools.combinations(range(6), 2) for a in units for b in units]
    half = torch.cat([torch.stack(pairs), full])
    return _arranged(torch.view_as_real(torch.cat([half, -half])).flatten(1))


# The Leech lattice -----------------------------------------------------------------------------------------------------

ROOT32 = math.sqrt(32)
FIVE = [5, *[1] * 23]  # a vector of the Leech lattice of norm 6, where its shortest have 4
FIVE2 = [1, 5, *[1] * 22]

# Order of the columns: the first eight are an octad, and the next four with some four of them are another.
COLUMNS = [1, 3, 5, 6, 9, 17, 20, 21, 0, 18, 22, 23, 2, 4, 7, 8, 10, 11, 12, 13, 14, 15, 16, 19]


def _golay() -> Tensor:
    """The extended binary Golay code from the squares modulo 23, columns in that order: (4096, 24) of 0 and 1."""
    squares = {i * i % 23 for i in range(1, 23)}
    shifts = torch.tensor([[(i - s) % 23 in squares for i in range(23)] + [True] for s in range(12)])
    return (_tuples(2, 12) @ shifts.long() % 2)[:, COLUMNS]


@functools.cache
def _leech_half() -> Tensor:
    """One of each pair +-x of the shortest vectors: (+-4, +-4, 0, ...); +-2 on an octad of the Golay code, an even number of
    them -2; (-3, 1, 1, ...), the -3 at any place, with the signs of a word of the Golay code. (98280, 24) int8, length
    sqrt(32), kept because so many codes begin here."""
    golay = _golay()
    eye = torch.eye(24, dtype=torch.int8)
    fours = [4 * (eye[i] + s * eye[j]) for i, j in itertools.combinations(range(24), 2) for s in (1, -1)]
    octads = golay[golay.sum(dim=1) == 8].nonzero()[:, 1].view(-1, 1, 8)  # (759, 1, 8)
    signs = _signs(7)
    signs = torch.cat([signs, signs.prod(dim=1, keepdim=True)], dim=1)[:64]  # (64, 8): the first is +
    twos = torch.zeros(759, 64, 24, dtype=torch.int8)
    twos.scatter_(2, octads.expand(-1, 64, -1), (2 * signs).to(torch.int8).expand(759, -1, -1))
    words = (1 - 2 * golay[golay[:, 0] == 0]).to(torch.int8)  # (2048, 24)
    threes = words[:, None] * (1 - 4 * eye)  # (2048, 24, 24)
    half = torch.cat([torch.stack(fours), twos.view(-1, 24), threes.view(-1, 24)])
    return _orthogonal_first(half.double()).to(torch.int8)


def _leech() -> Tensor:
    half = _leech_half()
    return torch.cat([half, -half]).double() / ROOT32


def _starting(*first: int) -> Build:
    """The shortest vectors of the Leech lattice with these first coordinates, which are left out."""

    def build() -> Tensor:
        points = ROOT32 * _leech()
        chosen = ((points[:, : len(first)] - points.new_tensor(first)).abs() < EPS).all(dim=1)
        return _arranged(points[chosen, len(first) :])

    return build


def _nordstrom_robinson(shortened: int) -> Build:
    """Words of the Golay code that have at most one 1 in the first seven places, and the eighth as their sum: the other 16
    places, signed; of these, words that begin with so many zeros, which are left out."""

    def build() -> Tensor:
        golay = _golay()
        words = golay[golay[:, :7].sum(dim=1) == golay[:, 7], 8:]  # (256, 16)
        return _arranged(1 - 2 * words[words[:, :shortened].sum(dim=1) == 0, shortened:].double())

    return build


# Codes over finite fields ----------------------------------------------------------------------------------------------


def _tuples(num: int, length: int) -> Tensor:
    """All tuples of 0..num - 1, the last place running fastest: (num^length, length)."""
    return torch.cartesian_prod(*[torch.arange(num)] * length)


def _characteristic(q: int) -> int:
    return next(p for p in range(2, q + 1) if q % p == 0)


@functools.cache
def _field(q: int) -> tuple[Tensor, Tensor]:
    """Sums and products in GF(q), (q, q) each. The base-p digits of an element are the coefficients of a polynomial, lowest
    first, modulo the first x^n = ... that leaves no divisors of zero; so addition modulo p acts on the lowest digit alone."""
    p = _characteristic(q)
    n = round(math.log(q, p))
    powers = p ** torch.arange(n)
    digits = torch.arange(q)[:, None] // powers % p  # (q, n)
    sums = (digits[:, None] + digits) % p @ powers
    for feedback in digits:
        product, shifted = torch.zeros(q, q, n, dtype=torch.int64), digits
        for i in range(n):
            product += digits[:, None, i : i + 1] * shifted
            shifted = (torch.nn.functional.pad(shifted[:, :-1], (1, 0)) + shifted[:, -1:] * feedback) % p
        products = product % p @ powers
        if p**n == q and products[1:, 1:].all():
            return sums, products
    raise ValueError(f"no field has {q} elements, must be a prime power")


def _products(left: Tensor, right: Tensor, q: int) -> Tensor:
    """Scalar products over GF(q): (A, k), (B, k) -> (A, B)."""
    plus, times = _field(q)
    total = torch.zeros(len(left), len(right), dtype=torch.int64)
    for a, b in zip(left.T, right.T, strict=True):
        total = plus[total, times[a[:, None], b]]
    return total


def _words(words: Tensor, q: int) -> Tensor:
    """Letters to corners of simplices: (K, n) of 0..q - 1 -> (K, n (q - 1)) unit rows."""
    return (simplex(q, q - 1) / math.sqrt(words.shape[1]))[words].flatten(1)


def _linear(q: int, points: Tensor) -> Tensor:
    """The linear code whose places are the points (n, k) of GF(q)^k: (q^k, n (q - 1)) unit rows."""
    return _words(_products(_tuples(q, points.shape[1]), points, q), q)


def _quasi_cyclic(q: int, feedback: str, period: int, seeds: str) -> Build:
    """The linear code whose places are the seeds, multiplied by x again and again until the period is full; seeds are
    polynomials by their coefficients, lowest first, modulo x^k = feedback."""

    def build() -> Tensor:
        plus, times = _field(q)
        step = torch.tensor([int(c) for c in feedback])
        points = [torch.tensor([[int(c) for c in seed] for seed in seeds.split()])]
        while len(points) < period:
            last = points[-1]
            points.append(plus[torch.nn.functional.pad(last[:, :-1], (1, 0)), times[last[:, -1:], step]])
        return _linear(q, torch.cat(points))

    return build


def _form(q: int) -> tuple[Tensor, Tensor, Tensor]:
    """All x and y of GF(q) and x^2 + x y + b y^2, with b such that it is zero at (0, 0) alone; (q^2,) each."""
    plus, times = _field(q)
    x, y = _tuples(q, 2).T
    forms = (plus[plus[times[x, x], times[x, y]], times[b, times[y, y]]] for b in range(q))
    return x, y, next(form for form in forms if form[1:].all())


def _ovoid(q: int) -> Tensor:
    """The code of the elliptic quadric of PG(3, q), its q^2 + 1 points (1, x, y, form) and (0, 0, 0, 1); planes hold 1 or
    q + 1 of them."""
    x, y, form = _form(q)
    return _linear(q, torch.cat([torch.stack([torch.ones_like(x), x, y, form], dim=1), torch.tensor([[0, 0, 0, 1]])]))


def _arc(q: int, degree: int) -> Build:
    """The code of Denniston's arc in PG(2, q), q even: (1, x, y) with the form in a subgroup of GF(q) of this order, a power
    of two. Lines hold none or `degree` of the points."""

    def build() -> Tensor:
        x, y, form = _form(q)
        return _linear(q, torch.stack([torch.ones_like(x), x, y], dim=1)[form < degree])

    return build


def _isotropic(q: int) -> Tensor:
    """GQ(q, q^2) seen from one of its points, in coordinates (1, block of q - 1 for each of the q^2 + 1 lines through it): the
    point itself; q points on each line, corners of the simplex in its block; and the q^4 others, the words of the ovoid's
    code: which point they see on each line."""
    lines = q * q + 1
    corners = simplex(q, q - 1)
    near = torch.kron(torch.eye(lines, dtype=torch.float64), -corners)  # (lines q, lines (q - 1))
    far = _ovoid(q)
    pole = torch.eye(1, 1 + far.shape[1], dtype=torch.float64)
    return torch.cat([_lifted(far, 1 / q**2), _lifted(near, -1 / q), pole])


def _lifted(points: Tensor, height: float) -> Tensor:
    """Unit rows with one more coordinate in front."""
    return torch.nn.functional.pad(math.sqrt(1 - height**2) * points, (1, 0), value=height)


def _unitary(q: int) -> str:
    """PGammaU(4, q), q = p^f, of order 2 f q^6 (q^2 - 1) (q^3 + 1) (q^4 - 1)."""
    degree = round(math.log(q, _characteristic(q)))
    return f"PGammaU(4, {q}), order {2 * degree * q**6 * (q**2 - 1) * (q**3 + 1) * (q**4 - 1):,}"


def _chirps(q: int) -> Tensor:
    """Half of them basis by basis, each v beside i v, then the negatives."""
    p = _characteristic(q)
    plus, times = _field(q)
    x = torch.arange(q)
    quadratic = plus[times[:, times[x, x]][:, None], times] % p  # (q, q, q): lowest digit of a x^2 + b x
    phases = torch.polar(torch.ones(p).double() / math.sqrt(q), torch.arange(p).double() * (2 * math.pi / p))
    bases = torch.cat([torch.eye(q, dtype=torch.complex128)[None], phases[quadratic]])  # (q + 1, q, q)
    half = torch.view_as_real(torch.stack([bases, 1j * bases], dim=1)).flatten(3).flatten(0, 2)  # (2 q (q + 1), 2q)
    return torch.cat([half, -half])


# Strongly regular graphs -----------------------------------------------------------------------------------------------


def _spectral(near: Tensor, least: int, dim: int) -> Tensor:
    """The graph (K, K) in the eigenspace of its least eigenvalue, by Cholesky's method: the next axis goes through the point
    farthest from all axes before, the first of those that tie."""
    degree = int(near[0].sum())
    apart = torch.tensor([-(1 + least) / (len(near) - 1 - degree), least / degree], dtype=torch.float64)
    cosines = apart[near.long()].fill_diagonal_(1)
    points = torch.zeros(len(near), dim, dtype=torch.float64)
    for i in range(dim):
        left = 1 - points.square().sum(dim=1)
        pivot = int((left > left.max() - EPS).int().argmax())
        points[:, i] = (cosines[:, pivot] - points @ points[pivot]) / left[pivot].sqrt()
    return _arranged(points)


def _hoffman_singleton() -> Tensor:
    """Five pentagons P_h and five pentagrams Q_i, with point j of P_h next to point h i + j of Q_i."""
    near = torch.zeros(50, 50, dtype=torch.bool)
    for h, j in itertools.product(range(5), repeat=2):
        near[5 * h + j, 5 * h + (j + 1) % 5] = True
        near[25 + 5 * h + j, 25 + 5 * h + (j + 2) % 5] = True
        for i in range(5):
            near[5 * h + j, 25 + 5 * i + (h * i + j) % 5] = True
    return _spectral(near | near.T, -3, 21)


def _hermitian() -> Tensor:
    """The points of PG(4, 4) with x_0^3 + ... + x_4^3 = 0, next to each other on the lines of such points."""
    points = _tuples(4, 5)
    first = points.gather(1, (points > 0).int().argmax(dim=1, keepdim=True))[:, 0]
    points = points[(first == 1) & ((points > 0).sum(dim=1) % 2 == 0)]  # x^3 = 1 but for 0
    _, times = _field(4)
    near = _products(points, times[points, points], 4) == 0  # x^2 is the conjugate of x
    return _spectral(near.fill_diagonal_(False), -9, 44)


# The table -------------------------------------------------------------------------------------------------------------

CONWAY = "Conway, Sloane 1999"
LAMINATED = "laminated lattices; Conway, Sloane 1982"
SECTION = "section of the Leech lattice"
SHARP = "Delsarte, Goethals, Seidel 1977; optimal by Levenshtein 1992"
ISOTROPIC = "Cameron, Goethals, Seidel 1978; optimal by Levenshtein 1992"
TRIANGLE_FREE = "triangle-free strongly regular graph; optimal by Cohn, de Laat, Leijenhorst 2024"
OVOID = "ovoid code, far half of the isotropic code"
PRIME_POWERS = [3, 4, 5, 7, 8, 9, 11, 13]
ODD_PRIME_POWERS = [17, 19, 23, 25, 27, 29, 31, 37, 41, 43, 47, 49, 53, 59, 61]
ODD_PRIME_POWERS += [67, 71, 73, 79, 81, 83, 89, 97, 101, 103, 107, 109, 113, 121, 125, 127]
HILL = "000012 001121 001201 010022 010221 011021 011022 012102"
CAP78 = "000112 010302 011202 011313 011331 013303"
GOLAY3 = "00001 00012 00101 01002 01101"
FORTY = "00012 00101 01012 01133 01233 01322 01323 11323"

# fmt: off
CODES: tuple[Code, ...] = (
    # E8, its kin and what lies in them
    Code("icosahedron", 12, 3, 1 / math.sqrt(5), _icosahedron, "H3, order 120", "optimal by Fejes Toth 1943"),
    Code("600-cell", 120, 4, PHI / 2, _cell600, "H4, order 14,400", "optimal by Coxeter 1963, Boeroeczky 1978"),
    Code("24-cell", 24, 4, 1 / 2, _blocks(4, [range(4)]), "F4, order 1,152", "roots of D4"),
    Code("D5 roots", 40, 5, 1 / 2, _section_of(240, 8, [*_zero(2), [0, 0, 1, 1]]), "B5, order 3,840", CONWAY),
    Code("E6 roots", 72, 6, 1 / 2, _section_of(240, 8, [[1], [0, 1, 1, 1]]), "2 x W(E6), order 103,680", CONWAY),
    Code("E7 roots", 126, 7, 1 / 2, _blocks(7, [b for b in EIGHT if 7 not in b]), "W(E7), order 2,903,040", CONWAY),
    Code("E8 roots", 240, 8, 1 / 2, _blocks(8, EIGHT), "W(E8), order 696,729,600", SHARP),
    Code("cap of E8", 56, 7, 1 / 3, _cap(240, 8, 1 / 2), "W(E7), order 2,903,040", SHARP),
    Code("Schlaefli graph", 27, 6, 1 / 4, _cap(56, 7, 1 / 3), "W(E6), order 51,840", SHARP),
    Code("Clebsch graph", 16, 5, 1 / 5, _cap(27, 6, 1 / 4), "W(D5), order 1,920", SHARP),
    Code("Petersen graph", 10, 4, 1 / 6, _cap(16, 5, 1 / 5), "S5, order 120", "optimal by Bachoc, Vallentin 2009"),
    Code("half cube", 32, 6, 1 / 3, _cap(126, 7, 1 / 2), "W(D6), order 23,040", ""),
    # The quadruple system on ten points
    Code("P10b", 500, 10, 1 / 2, _blocks(10, TEN), "", CONWAY),
    Code("P9a", 306, 9, 1 / 2, _blocks(9, [b for b in TEN if 9 not in b]), "", CONWAY),
    Code("cap of P10b", 96, 9, 1 / 3, _cap(500, 10, 1 / 2), "", ""),
    Code("cap of P9a", 64, 8, 1 / 3, _cap(306, 9, 1 / 2), "", ""),
    # Kissing configurations of lattices: sections of the Leech lattice, and one beside it
    Code("Coxeter-Todd lattice", 756, 12, 1 / 2, _coxeter_todd, "6.U4(3).2^2, order 78,382,080", CONWAY),
    Code("Lambda13 lattice", 906, 13, 1 / 2, _section_of(196560, 24, [*_zero(10), [0] * 9 + [1] * 3]), "", LAMINATED),
    Code("Lambda14 lattice", 1422, 14, 1 / 2, _section_of(196560, 24, [*_zero(9), [0] * 9 + [1] * 3]), "", LAMINATED),
    Code("Lambda15 lattice", 2340, 15, 1 / 2, _starting(*[0] * 9), "", LAMINATED),
    Code("Barnes-Wall lattice", 4320, 16, 1 / 2, _starting(*[0] * 8), "order 89,181,388,800", LAMINATED),
    Code("Lambda17 lattice", 5346, 17, 1 / 2, _section_of(196560, 24, _equal(0, 8)), "", LAMINATED),
    Code("Lambda18 lattice", 7398, 18, 1 / 2, _section_of(196560, 24, _equal(0, 2) + _equal(2, 8)), "", LAMINATED),
    Code("Lambda19 lattice", 10668, 19, 1 / 2, _starting(*[0] * 5), "", LAMINATED),
    Code("Lambda20 lattice", 17400, 20, 1 / 2, _starting(*[0] * 4), "", LAMINATED),
    Code("Lambda21 lattice", 27720, 21, 1 / 2, _starting(*[0] * 3), "", LAMINATED),
    Code("Lambda22 lattice", 49896, 22, 1 / 2, _section_of(196560, 24, _equal(0, 3)), "", LAMINATED),
    Code("Lambda23 lattice", 93150, 23, 1 / 2, _cap(196560, 24, 0), "2 x Co2, order 84,610,842,624,000", LAMINATED),
    Code("Leech lattice", 196560, 24, 1 / 2, _leech, "Co0, order 8,315,553,613,086,720,000", SHARP),
    # Sharp codes in the Leech lattice
    Code("cap of Leech", 4600, 23, 1 / 3, _cap(196560, 24, 1 / 2), "2 x Co2, order 84,610,842,624,000", SHARP),
    Code("276 equiangular lines", 552, 23, 1 / 5, _section_of(196560, 24, [FIVE], [24 / ROOT32]),
         "2 x Co3, order 991,533,312,000", SHARP),
    Code("cap of 4600 x 23", 891, 22, 1 / 4, _cap(4600, 23, 1 / 3), "U6(2).2, order 18,393,661,440", SHARP),
    Code("McLaughlin graph", 275, 22, 1 / 6, _cap(552, 23, 1 / 5), "McL.2, order 1,796,256,000", SHARP),
    Code("McLaughlin graph, far from a vertex", 162, 21, 1 / 7, _cap(275, 22, 1 / 6),
         "U4(3).2^2, order 13,063,680", SHARP),
    Code("Higman-Sims graph", 100, 22, 1 / 11, _section_of(196560, 24, [FIVE, FIVE2], [24 / ROOT32, 24 / ROOT32]),
         "HS.2, order 88,704,000", SHARP),
    # Spectral embeddings of strongly regular graphs
    Code("Hoffman-Singleton graph", 50, 21, 1 / 21, _hoffman_singleton, "U3(5).2, order 252,000", TRIANGLE_FREE),
    Code("Gewirtz graph", 56, 20, 1 / 15, _cap(162, 21, -2 / 7), "L3(4).2^2, order 80,640", TRIANGLE_FREE),
    Code("M22 graph", 77, 21, 1 / 12, _cap(100, 22, 1 / 11), "M22.2, order 887,040", TRIANGLE_FREE),
    Code("Brouwer-Haemers graph", 81, 20, 1 / 10, _cap(112, 21, 1 / 9), "order 233,280", "Brouwer, Haemers 1992"),
    Code("flags of PG(2, 4)", 105, 20, 1 / 8, _cap(162, 21, 1 / 7), "L3(4).D12, order 241,920", ""),
    Code("Hermitian variety", 165, 44, 1 / 16, _hermitian, "U5(2).2, order 27,371,520", "GQ(4, 8)"),
    # Binary codes of length 16 and less
    Code("Nordstrom-Robinson code", 256, 16, 1 / 4, _nordstrom_robinson(0), "", "Nordstrom, Robinson 1967"),
    Code("Nordstrom-Robinson code, shortened", 128, 15, 1 / 5, _nordstrom_robinson(1), "", ""),
    Code("Nordstrom-Robinson code, shortened twice", 64, 14, 1 / 7, _nordstrom_robinson(2), "",
         "Ballinger, Blekherman, Cohn, Giansiracusa, Kelly, Schuermann 2009"),
    # Sections of the Leech lattice that no other code here beats
    Code("type 3 at 16", 11178, 23, 2 / 5, _section_of(196560, 24, [FIVE], [16 / ROOT32]), "Co3, order 495,766,656,000", SECTION),
    Code("cap of Leech at 1/4", 47104, 23, 7 / 15, _cap(196560, 24, 1 / 4), "Co2, order 42,305,421,312,000", SECTION),
    Code("type 4 at 16", 16192, 23, 3 / 7, _starting(2), "2^11.M23, order 20,891,566,080", SECTION),
    Code("type 4 at 24", 2048, 23, 7 / 23, _starting(3), "2^11.M23, order 20,891,566,080", SECTION),
    Code("cap of 11178 x 23", 352, 22, 1 / 5, _cap(11178, 23, -1 / 2), "", SECTION),
    Code("cap of 2048 x 23", 506, 22, 7 / 30, _cap(2048, 23, 7 / 23), "", SECTION),
    Code("Leech (3, 1)", 1024, 22, 3 / 11, _starting(3, 1), "", SECTION),
    Code("cap of 11178 x 23", 1100, 22, 2 / 7, _cap(11178, 23, 2 / 5), "", SECTION),
    Code("cap of 2048 x 23", 1288, 22, 10 / 33, _cap(2048, 23, -1 / 23), "", SECTION),
    Code("cap of 47104 x 23", 2025, 22, 7 / 22, _cap(47104, 23, 7 / 15), "", SECTION),
    Code("cap of 4600 x 23", 2816, 22, 1 / 3, _cap(4600, 23, 0), "", SECTION),
    Code("cap of 47104 x 23", 7128, 22, 2 / 5, _cap(47104, 23, -1 / 3), "", SECTION),
    Code("Leech (2, 0)", 11264, 22, 3 / 7, _starting(2, 0), "", SECTION),
    Code("cap of 47104 x 23", 15400, 22, 4 / 9, _cap(47104, 23, 1 / 5), "", SECTION),
    Code("cap of 352 x 22", 175, 21, 1 / 6, _cap(352, 22, -1 / 5), "", SECTION),
    Code("cap of 506 x 22", 210, 21, 7 / 37, _cap(506, 22, 7 / 30), "", SECTION),
    Code("Leech (2, 2, 2)", 336, 21, 1 / 5, _starting(2, 2, 2), "", SECTION),
    Code("Leech (3, 1, 1)", 512, 21, 5 / 21, _starting(3, 1, 1), "", SECTION),
    Code("cap of 2816 x 22", 567, 21, 1 / 4, _cap(2816, 22, -1 / 3), "", SECTION),
    Code("cap of 1024 x 22", 616, 21, 4 / 15, _cap(1024, 22, -1 / 11), "", SECTION),
    Code("cap of 7128 x 22", 750, 21, 2 / 7, _cap(7128, 22, 2 / 5), "", SECTION),
    Code("cap of 2025 x 22", 1232, 21, 41 / 129, _cap(2025, 22, -1 / 44), "", SECTION),
    Code("Leech (2, 2, 0)", 1792, 21, 1 / 3, _starting(2, 2, 0), "", SECTION),
    Code("cap of 7128 x 22", 2625, 21, 3 / 8, _cap(7128, 22, -1 / 5), "", SECTION),
    Code("cap of 7128 x 22", 3500, 21, 13 / 33, _cap(7128, 22, 1 / 10), "", SECTION),
    Code("Leech (2, 0, 0)", 7680, 21, 3 / 7, _starting(2, 0, 0), "", SECTION),
    Code("Leech (1, 1, 1)", 10752, 21, 13 / 29, _starting(1, 1, 1), "", SECTION),
    Code("cap of M22 graph", 60, 20, 1 / 13, _cap(77, 21, 1 / 12), "", SECTION),
    Code("cap of 336 x 21", 170, 20, 1 / 6, _cap(336, 21, 1 / 5), "", SECTION),
    Code("Leech (3, 1, 1, 1)", 256, 20, 1 / 5, _starting(3, 1, 1, 1), "", SECTION),
    Code("cap of 512 x 21", 280, 20, 2 / 9, _cap(512, 21, -1 / 7), "", SECTION),
    Code("cap of 567 x 21", 320, 20, 5 / 21, _cap(567, 21, -1 / 8), "", SECTION),
    Code("cap of 1792 x 21", 375, 20, 1 / 4, _cap(1792, 21, -1 / 3), "", SECTION),
    Code("cap of 7680 x 21", 637, 20, 3 / 10, _cap(7680, 21, 3 / 7), "", SECTION),
    Code("Leech (2, 2, 0, 0)", 1280, 20, 1 / 3, _starting(2, 2, 0, 0), "", SECTION),
    Code("Leech (2, 0, 0, 0)", 5120, 20, 3 / 7, _starting(2, 0, 0, 0), "", SECTION),
    Code("cap of 81 x 20", 60, 19, 1 / 11, _cap(81, 20, 1 / 10), "", SECTION),
    Code("cap of 105 x 20", 72, 19, 1 / 9, _cap(105, 20, 1 / 8), "", SECTION),
    Code("cap of 170 x 20", 102, 19, 1 / 7, _cap(170, 20, 1 / 6), "", SECTION),
    Code("Leech (3, 1, 1, 1, 1)", 128, 19, 3 / 19, _starting(3, 1, 1, 1, 1), "", SECTION),
    Code("Leech (2, 2, 2, 0, 0)", 192, 19, 1 / 5, _starting(2, 2, 2, 0, 0), "", SECTION),
    Code("Leech (2, 2, 0, 0, 0)", 896, 19, 1 / 3, _starting(2, 2, 0, 0, 0), "", SECTION),
    Code("Leech (1, 1, 1, 1, 1)", 2432, 19, 11 / 27, _starting(1, 1, 1, 1, 1), "", SECTION),
    Code("cap of 102 x 19", 67, 18, 1 / 8, _cap(102, 19, 1 / 7), "", SECTION),
    Code("cap of 192 x 19", 98, 18, 1 / 6, _cap(192, 19, 1 / 5), "", SECTION),
    Code("Leech (2, 2, 0, 0, 0, 0)", 640, 18, 1 / 3, _starting(2, 2, 0, 0, 0, 0), "", SECTION),
    Code("Leech (1, 1, 1, 1, 1, 1)", 1152, 18, 5 / 13, _starting(1, 1, 1, 1, 1, 1), "", SECTION),
    Code("cap of 67 x 18", 64, 17, 1 / 9, _cap(67, 18, 1 / 8), "", SECTION),
    Code("Leech (2, 2, 0 ... 0)", 512, 16, 1 / 3, _starting(2, 2, *[0] * 6), "", SECTION),
    Code("Leech (2, 2, 0 ... 0)", 320, 15, 1 / 3, _starting(2, 2, *[0] * 7), "", SECTION),
    Code("Leech (0 ... 0, 2)", 960, 15, 3 / 7, _starting(*[0] * 8, 2), "", SECTION),
    Code("Leech (0 ... 0, 2, 0)", 512, 14, 3 / 7, _starting(*[0] * 8, 2, 0), "", SECTION),
    # Isotropic subspaces, and ovoid codes in them
    *(Code(f"isotropic, q = {q}", (q + 1) * (q**3 + 1), q * (q * q - q + 1), 1 / q**2, functools.partial(_isotropic, q),
           _unitary(q), ISOTROPIC) for q in PRIME_POWERS),
    *(Code(f"ovoid, q = {q}", q**4, (q * q + 1) * (q - 1), 1 / (q * q + 1), functools.partial(_ovoid, q), "", OVOID)
      for q in PRIME_POWERS[1:]),
    Code("cap of 256 x 51", 204, 50, 1 / 18, _cap(256, 51, 1 / 17), "", OVOID),
    Code("cap of 204 x 50", 164, 49, 1 / 19, _cap(204, 50, 1 / 18), "", OVOID),
    Code("cap of 625 x 104", 520, 103, 1 / 27, _cap(625, 104, 1 / 26), "", OVOID),
    Code("cap of 520 x 103", 435, 102, 1 / 28, _cap(520, 103, 1 / 27), "", OVOID),
    Code("cap of 435 x 102", 370, 101, 1 / 29, _cap(435, 102, 1 / 28), "", OVOID),
    Code("cap of 370 x 101", 325, 100, 1 / 30, _cap(370, 101, 1 / 29), "", OVOID),
    # Other linear codes over small fields
    Code("Hill cap", 729, 112, 1 / 28, _quasi_cyclic(3, "222222", 7, HILL), "", "Hill 1973"),
    Code("78-cap", 4096, 234, 5 / 117, _quasi_cyclic(4, "120302", 13, CAP78), "", "Hill 1976"),
    Code("[40, 5, 28] over GF(4)", 1024, 120, 1 / 15, _quasi_cyclic(4, "10000", 5, FORTY), "", "found by search"),
    Code("dual of the ternary Golay graph", 243, 110, 1 / 55, _quasi_cyclic(3, "10212", 11, GOLAY3), "",
         "Berlekamp, van Lint, Seidel 1973"),
    Code("hyperoval, q = 8", 512, 70, 3 / 35, _arc(8, 2), "", "Denniston 1969"),
    Code("maximal arc, q = 8", 512, 196, 1 / 49, _arc(8, 4), "", "Denniston 1969"),
    # Quadratic characters
    *(Code(f"chirps, q = {q}", 4 * q * (q + 1), 2 * q, 1 / math.sqrt(q), functools.partial(_chirps, q), "", "Alltop 1980")
      for q in ODD_PRIME_POWERS),
)
# fmt: on
