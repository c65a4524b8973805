"""Spherical codes of millions of points without a table: any row, and the nearest row to a query, are computed on demand.

A word of a code in n = 2^m dimensions is a quadratic form on F_2^m written out as signs,

    row[x] = (-1)^{Q(x) + l.x + e} / sqrt(n),    x in 0..n-1 (its bits are the coordinates),

with Q from a fixed list of forms, l any of the n linear functionals, e a sign. The 2n words of one Q are an orthonormal basis
and its negatives. Words of two forms whose difference has rank 2h (the rank of the alternating matrix B(x, y) = Q(x + y) +
Q(x) + Q(y), always even) have a cosine of 0 or +-2^-h; so a list of forms whose differences all have rank >= 2 delta is a code
with largest cosine 2^-delta. The standard basis has cosines +-2^{-m/2} with every word and joins at no cost.

The forms. F is the field with 2^q elements, q = m for odd m and q = m - 1 for even m, so that q is odd; Tr its trace; x stands
for the element of F whose bits are the low q bits of x, and u, for even m, for the top bit. A form has r coefficients b in F
and, for even m, one more, a:

    Q(x, u) = sum_{j=1}^{r} Tr(b_j x^{2^j + 1})                                                            m odd and even
              + sum_{j=1}^{(q-1)/2} Tr((a x)^{2^j + 1}) + u Tr(a x)                                        m even

    m even, r = m/2 - delta:       r = 0 is a Kerdock set of n/2 forms, r > 0 a Delsarte-Goethals set
    m odd,  r = (m + 1)/2 - delta: r = 1 is the dual of the extended double-error-correcting BCH code, its n forms of rank m - 1

Why the rank is at least 2 delta. The sums over j have B(x, y) = Tr(y L(x)) with L(x) = sum_j b_j x^{2^j} + (b_j x)^{2^-j}, and
L(x)^{2^r} is a polynomial in x of degree at most 2^{2r} with terms x^{2^i} alone: L has a kernel of dimension at most 2r.
  m odd: m - rank is odd, so the kernel has dimension at most 2r - 1, and the rank is at least m + 1 - 2r = 2 delta.
  m even, equal a: the kernel on F is at most 2r - 1 as before, and u adds one dimension: the rank is at least m - 2r = 2 delta.
  m even, a and a' different, s = a + a': (x, u) is in the kernel of B when Tr(s x) = 0 and s^2 x + L(x) = s (u + Tr(a x)). The left
  side, to the power 2^r, is again a polynomial of degree at most 2^{2r}, and not zero since s is not. u + Tr(a x) = 0 leaves at
  most 2^{2r} solutions and = 1 as many again: at most 2r + 1 dimensions, an even number: at most 2r, the rank is at least 2 delta.
No set of forms with these ranks is larger (Delsarte, Goethals 1975).

Legend: n = d dimension, m = log2 n, N rows asked for, B queries, F forms in a block.

Kerdock 1972; Delsarte, Goethals, "Alternating bilinear forms over GF(q)" 1975; MacWilliams, Sloane, "The theory of error-correcting
codes" 1977, chapter 15; with the bases: Cameron, Seidel 1973, Calderbank, Cameron, Kantor, Seidel 1997; Kerdock codes with the
standard basis are optimal for n = 16, 64, 256, 1024: Cohn, de Laat, Leijenhorst 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from asterism.checks import check_matrix
from asterism.prototypes.energy import threads_for
from asterism.sphere import full_precision, unit

LOG_DIMS = range(2, 12)
TOO_LARGE = (11, 1)  # m, delta of the one code of more than 2^62 points: an index would not fit an int64
# Degree -> the smallest irreducible polynomial, its coefficients the bits.
IRREDUCIBLE = {1: 0b11, 3: 0b1011, 5: 0b100101, 7: 0b10000011, 9: 0b1000000011, 11: 0b100000000101}

QUERIES = 256  # queries looked at together
# Numbers in a block of transforms: what the cache of a CPU holds for each thread, what keeps an accelerator busy.
CACHED, PARALLEL = 2**17, 2**24
# Rounding both factors of both products of a transform to bfloat16, the worst that a setting of torch may do to float32, moves a
# cosine by at most 2 * 2^-8; two cosines are compared.
SLACK = 0.016
TIE = 1e-13  # float64 cosines closer than this are equal up to rounding


@dataclass(frozen=True)
class AlgebraicCode:
    """The points of one code, in an order in which every prefix is a good code too.

    Row i, with half = num / 2: i >= half is the negative of row i - half. i < half lies in basis i // n, at l = i % n. Basis
    c = a + 2^q (b_1 + 2^q (b_2 + ..)) is that of the form with these coefficients (no a when m is odd); the last is the
    standard basis. So the first n rows are orthonormal, one orthonormal basis follows another (the first n/2 of them mutually
    unbiased for even m), no row meets its opposite before all bases are used up, and all rows but those of the last basis
    are +-1/sqrt(n). A prefix has no cosine above `cosine`, and reaches it if it is longer than the code with the next
    larger delta (for the largest delta: longer than n).

    >>> code = AlgebraicCode(log_dim=8, delta=3)
    >>> code.name, code.num, code.dim, code.cosine
    ('Delsarte-Goethals 256/3', 8389120, 256, 0.125)
    >>> rows = code.rows(torch.tensor([5, 1_000_000, 8_000_000]))
    >>> rows.shape, code.cosine >= (rows @ rows.T - 2 * torch.eye(3)).max()
    (torch.Size([3, 256]), tensor(True))
    >>> index, cosine = code.nearest(rows + 0.02)
    >>> index.tolist()
    [5, 1000000, 8000000]
    """

    log_dim: int  # m
    delta: int  # half the least rank of a difference of two forms

    def __post_init__(self) -> None:
        if self.log_dim not in LOG_DIMS:
            raise ValueError(
                f"AlgebraicCode: log_dim came as {self.log_dim}, must lie in 2..{LOG_DIMS[-1]} (dim 2^log_dim)"
            )
        if not 1 <= self.delta <= self.log_dim // 2:
            raise ValueError(
                f"AlgebraicCode: delta came as {self.delta}, must lie in 1..{self.log_dim // 2} at log_dim {self.log_dim}"
            )
        if (self.log_dim, self.delta) == TOO_LARGE:
            raise ValueError(
                "AlgebraicCode: log_dim 11 with delta 1 has more points than an int64 can count: use delta >= 2"
            )

    @property
    def dim(self) -> int:
        return 2**self.log_dim

    @property
    def num(self) -> int:
        return 2 * self.dim * (self._num_forms + 1)  # every form and the standard basis

    @property
    def cosine(self) -> float:
        """Largest cosine of two different rows: at most this by the proof on top of the file, and reached."""
        return 2.0**-self.delta

    @property
    def name(self) -> str:
        if self.delta == self.log_dim // 2:
            return f"Kerdock {self.dim}" if self._even else f"dual BCH {self.dim}"
        return f"Delsarte-Goethals {self.dim}/{self.delta}"

    @property
    def source(self) -> str:
        if self.delta < self.log_dim // 2:
            return "Delsarte, Goethals 1975"
        if not self._even:
            return "dual of the extended double-error-correcting BCH code: MacWilliams, Sloane 1977, ch. 15"
        if self.log_dim == 2:
            return "Kerdock 1972; vertices of the 24-cell"
        return "Kerdock 1972; optimal: Cohn, de Laat, Leijenhorst 2024"

    @property
    def symmetry(self) -> str:
        """Isometries that map the code onto itself: signs (-1)^{l.x + e} and translations x + t (2^{2m + 1} in all), signs
        (-1)^{Q(x)} with a = 0 (2^{qr}), products c x in the field (2^q - 1) and its automorphisms x^{2^i} (q)."""
        q = self._degree
        return f"at least 2^{2 * self.log_dim + 1 + q * self._terms} x {2**q - 1} x {q} isometries"

    def rows(self, index: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """(N,) integers in 0..num-1 -> (N, n) unit rows."""
        index = torch.as_tensor(index)
        if index.ndim != 1 or index.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"{self.name}: index came as {index.dtype} of shape {tuple(index.shape)}, must be integers (N,), as index.long()"
            )
        index = index.long()
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < self.num:
            raise ValueError(
                f"{self.name}: rows {int(index.min())} to {int(index.max())} were asked for, must lie in 0..{self.num - 1}"
            )
        form, functional = index % (self.num // 2) // self.dim, index % self.dim
        rows = self._signs(form, functional, dtype).mul_(self.dim**-0.5)  # (N, n)
        standard = form == self._num_forms
        rows[standard] = 0
        rows[standard, functional[standard]] = 1
        return rows.mul_(torch.where(index < self.num // 2, 1, -1).to(dtype)[:, None])

    def nearest(self, queries: Tensor, num: int | None = None) -> tuple[Tensor, Tensor]:
        """(B, n) vectors of any length -> (B,) which of the first `num` rows has the largest inner product, and (B,) its cosine.

        Exact: the answer is that of all cosines in float64, and of those that are equal up to rounding the lowest index.
        A query of zeros has cosine 0 with every row. The work of a query grows with num log n; memory does not grow with num.
        """
        num = self.num if num is None else num
        if not 1 <= num <= self.num:
            raise ValueError(f"{self.name}: num came as {num}, must lie in 1..{self.num}")
        queries = unit(check_matrix(self.name, "queries", queries, self.dim).detach().double())
        with full_precision(queries), threads_for(float(len(queries)) * num * self.log_dim):
            found = [self._nearest(part, num) for part in queries.split(QUERIES)]
        return torch.cat([index for index, _ in found]), torch.cat([cosine for _, cosine in found])

    def _nearest(self, queries: Tensor, num: int) -> tuple[Tensor, Tensor]:
        """Every form in float32, to learn its largest cosine; forms that come within SLACK of the best again in float64. The
        standard basis and the forms that `num` cuts go to float64 at once, where rows beyond num are left out."""
        n, last, device = self.dim, self._num_forms, queries.device
        block = CACHED * torch.get_num_threads() if device.type == "cpu" else PARALLEL
        plus, minus = min(num, self.num // 2), max(0, num - self.num // 2)  # how many rows of either sign

        found = torch.full((len(queries),), num, device=device), queries.new_full((len(queries),), -torch.inf)
        everyone = torch.arange(len(queries), device=device)
        for form in {plus // n, minus // n, last} - {last + 1}:
            found = self._compare(found, num, queries, everyone, torch.full_like(everyone, form))

        whole = min(plus // n, last), min(minus // n, last)
        for start, stop, signed in ((0, whole[1], True), (whole[1], whole[0], False)):
            for first in range(start, stop, block // n):
                forms = torch.arange(first, min(stop, first + block // n), device=device)
                signs = self._signs(forms, torch.zeros_like(forms), torch.float32) * n**-0.5  # (F, n)
                parts = queries.float().split(max(1, block // signs.numel()))
                peaks = torch.cat([_peaks(part[:, None] * signs, signed) for part in parts])  # (B, F)
                enough = torch.maximum(found[1], peaks.amax(dim=1).double()) - SLACK
                pairs = (peaks >= enough[:, None]).nonzero()
                for query, place in (part.unbind(1) for part in pairs.split(block // n)):
                    found = self._compare(found, num, queries, query, forms[place])
        return found

    def _compare(
        self, found: tuple[Tensor, Tensor], num: int, queries: Tensor, query: Tensor, form: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The better of `found`, (B,) indices and cosines, and the rows below num of form[p] for queries[query[p]], p < P."""
        n, half = self.dim, self.num // 2
        cosines = walsh_hadamard(queries[query] * self._signs(form, torch.zeros_like(form), torch.float64)) * n**-0.5
        cosines = torch.where((form == self._num_forms)[:, None], queries[query], cosines)  # (P, n)
        rows = form[:, None] * n + torch.arange(n, device=form.device)
        rows, cosines = torch.cat([rows, rows + half], dim=1), torch.cat([cosines, -cosines], dim=1)  # (P, 2n)
        cosines.masked_fill_(rows >= num, -torch.inf)

        index, cosine = found
        top = cosine.scatter_reduce(0, query, cosines.amax(dim=1), "amax")  # (B,)
        lowest = torch.where(cosines >= top[query, None] - TIE, rows, self.num).amin(dim=1)  # (P,)
        index = torch.where(cosine >= top - TIE, index, self.num)
        return index.scatter_reduce(0, query, lowest, "amin"), top

    @property
    def _even(self) -> bool:
        return self.log_dim % 2 == 0

    @property
    def _degree(self) -> int:  # q
        return self.log_dim - self._even

    @property
    def _terms(self) -> int:  # r
        return (self.log_dim + 1) // 2 - self.delta

    @property
    def _num_forms(self) -> int:
        return 2 ** (self._degree * (self._terms + self._even))

    def _signs(self, form: Tensor, functional: Tensor, dtype: torch.dtype) -> Tensor:
        """(N,) forms and functionals -> (N, n) values of (-1)^{Q(x) + l.x}; the standard basis gets those of some form."""
        coefficients = form >> self._degree if self._even else form
        bits = functional | coefficients << self.log_dim
        bits = bits[:, None] >> torch.arange(len(self._linear), device=form.device) & 1
        exponent = (bits.float() @ self._linear.to(form.device)).to(torch.uint8)  # (N, n), at most 55
        if self._even:
            exponent += self._kerdock.to(form.device)[form % 2**self._degree]
        return 1 - 2 * (exponent & 1).to(dtype)

    @cached_property
    def _linear(self) -> Tensor:
        """(m + qr, n): what the bits of l, b_1, .., b_r contribute at x, which is linear in them: the bits of x, then
        Tr(t^i x^{2^j + 1}) for bit i of b_j."""
        q, x = self._degree, torch.arange(self.dim)
        rows = [x >> i & 1 for i in range(self.log_dim)]
        for j in range(1, self._terms + 1):
            power = gold(x % 2**q, j, q)
            rows += [trace(times(power, torch.tensor(1 << i), q), q) for i in range(q)]
        return torch.stack(rows).float()

    @cached_property
    def _kerdock(self) -> Tensor:
        """(2^q, n): the part of a form that hangs on a; half a megabyte at n = 1024, the largest."""
        q = self._degree
        y = torch.arange(2**q)
        g, t = torch.zeros_like(y), trace(y, q)
        for j in range(1, (q - 1) // 2 + 1):
            g ^= trace(gold(y, j, q), q)
        product = times(y[:, None], y, q)  # a x
        return torch.cat([g[product], g[product] ^ t[product]], dim=1).to(torch.uint8)


@dataclass(frozen=True)
class ShortenedCode:
    """The words of a code, less its standard basis, that are + at s places, without these places: fewer points, further apart.

    Two words whose product over all n places is at most n c have one of at most n c - s over the others: their cosine is
    at most (n c - s) / (n - s). The places are x = 0, 1, 2, 4, ..: there a word is + when e = 0 and the first s - 1 bits of
    l make up for Q, so that each form keeps 2^(m + 1 - s) words. Row i is of form i // 2^(m + 1 - s).

    >>> code = ShortenedCode(AlgebraicCode(log_dim=6, delta=3), 2)
    >>> code.name, code.num, code.dim, round(code.cosine, 4)
    ('Kerdock 64 shortened 2 times', 1024, 62, 0.0968)
    >>> rows = code.rows(torch.arange(1024))
    >>> bool((rows @ rows.T).triu(1).max() < code.cosine + 1e-12)
    True
    """

    code: AlgebraicCode
    places: int  # s, 1 to m + 1

    symmetry = ""

    @property
    def name(self) -> str:
        return f"{self.code.name} shortened {self.places} time{'s' if self.places > 1 else ''}"

    @property
    def num(self) -> int:
        return self.code._num_forms * self._words

    @property
    def dim(self) -> int:
        return self.code.dim - self.places

    @property
    def cosine(self) -> float:
        """No two different rows have a larger one."""
        return (self.code.dim * self.code.cosine - self.places) / self.dim

    @property
    def source(self) -> str:
        return self.code.source

    @property
    def _words(self) -> int:  # of a form
        return 2 ** (self.code.log_dim + 1 - self.places)

    def rows(self, index: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """(N,) integers in 0..num-1 -> (N, n - s) unit rows."""
        form, word = index // self._words, index % self._words
        places = torch.tensor([0, *(1 << i for i in range(self.places - 1))], device=index.device)
        free = word << (self.places - 1)  # the bits of l that are not needed
        minus = (self.code._signs(form, free, dtype)[:, places[1:]] < 0).long()  # (N, s - 1)
        signs = self.code._signs(form, free | (minus * places[1:]).sum(dim=1), dtype)
        left = torch.ones(self.code.dim, dtype=torch.bool, device=index.device)
        left[places] = False
        return signs[:, left].mul_(self.dim**-0.5)


def candidates(num: int, dim: int) -> list[AlgebraicCode | ShortenedCode]:
    """All codes with room for `num` points in at most `dim` dimensions, best cosine first, then the smallest.

    >>> [code.name for code in candidates(40_000, 300)][:3]
    ['Kerdock 256', 'Delsarte-Goethals 256/3 shortened 7 times', 'Delsarte-Goethals 256/3 shortened 6 times']
    """
    for name, value in (("num", num), ("dim", dim)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"candidates: {name} came as {value!r}, must be an integer of at least 1")
    whole = [AlgebraicCode(m, delta) for m in LOG_DIMS for delta in range(m // 2, 0, -1) if (m, delta) != TOO_LARGE]
    cut = [ShortenedCode(code, s) for code in whole for s in range(1, code.log_dim + 2) if code.log_dim > 3]
    every: list[AlgebraicCode | ShortenedCode] = [*whole, *cut]
    fit = [code for code in every if code.num >= num and code.dim <= dim]
    return sorted(fit, key=lambda code: (code.cosine, code.num))


def walsh_hadamard(x: Tensor) -> Tensor:
    """(.., n) -> (.., n), sum_x (-1)^{l.x} f(x) at l. As two matrix products, H_n = H_a (x) H_b with a b = n, a and b near sqrt(n),
    which pass over the numbers twice, where a butterfly passes log2 n times (benchmarks/search.py measures both).

    >>> walsh_hadamard(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([10., -2., -4.,  0.])
    """
    m = x.shape[-1].bit_length() - 1
    left, right = _sylvester(m // 2).to(x), _sylvester(m - m // 2).to(x)
    inner = x.reshape(-1, len(right)) @ right
    return (left @ inner.view(-1, len(left), len(right))).view(x.shape)


@cache
def _sylvester(k: int) -> Tensor:
    matrix = torch.ones(1, 1)
    for _ in range(k):
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix


def _peaks(signed_queries: Tensor, signed: bool) -> Tensor:
    """(b, F, n) -> (b, F) largest of the transform, with `signed` of either sign."""
    cosines = walsh_hadamard(signed_queries)
    return (cosines.abs_() if signed else cosines).amax(dim=-1)


def times(x: Tensor, y: Tensor, q: int) -> Tensor:
    """Products in the field with 2^q elements, polynomials over F_2 modulo IRREDUCIBLE[q] written as the bits of integers."""
    product = torch.zeros_like(x * y)
    for i in range(q):
        product ^= x * (y >> i & 1)
        x = x << 1
        x = x ^ (x >> q) * IRREDUCIBLE[q]
    return product


def gold(x: Tensor, j: int, q: int) -> Tensor:
    """x^{2^j + 1}"""
    power = x
    for _ in range(j):
        power = times(power, power, q)
    return times(power, x, q)


def trace(x: Tensor, q: int) -> Tensor:
    """x + x^2 + x^4 + .. + x^{2^{q-1}}: 0 or 1."""
    total = torch.zeros_like(x)
    for _ in range(q):
        total ^= x
        x = times(x, x, q)
    return total
