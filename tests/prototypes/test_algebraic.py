import itertools

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from asterism.prototypes import algebraic, energy
from asterism.prototypes.algebraic import AlgebraicCode, ShortenedCode, candidates, walsh_hadamard
from asterism.prototypes.bounds import best_bound

CODES = [code for code in candidates(1, 2048) if isinstance(code, AlgebraicCode)]
SMALL = [code for code in CODES if code.num <= 5000]
KERDOCK = [code for code in CODES if code.name.startswith("Kerdock")]


def named(code):
    return code.name


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_codes_have_the_sizes_that_mathematics_gives_them():
    sizes = {code.name: (code.num, code.dim, code.cosine) for code in CODES}
    assert len(sizes) == len(CODES) == 29
    assert sizes["Kerdock 4"] == (24, 4, 1 / 2)
    assert sizes["Kerdock 16"] == (288, 16, 1 / 4)
    assert sizes["Kerdock 64"] == (4224, 64, 1 / 8)
    assert sizes["Kerdock 256"] == (66048, 256, 1 / 16)
    assert sizes["Kerdock 1024"] == (1_050_624, 1024, 1 / 32)
    assert sizes["dual BCH 128"] == (32768 + 256, 128, 1 / 8)
    assert sizes["Delsarte-Goethals 256/3"] == (2**23 + 512, 256, 1 / 8)
    for code in CODES:
        # Delsarte and Goethals: no more alternating matrices whose differences have rank >= 2 delta.
        forms = code.num // (2 * code.dim) - 1
        half, c = divmod(code.log_dim, 2)
        assert forms == 2 ** ((code.log_dim if c else code.log_dim - 1) * (half - code.delta + 1))


@given(st.data())
@settings(deadline=None)
def test_entries_are_those_of_the_twin(data):
    code = data.draw(st.sampled_from(CODES))
    row = data.draw(st.integers(0, code.num - 1))
    entries = code.rows(torch.tensor([row]))[0]
    for x in data.draw(st.lists(st.integers(0, code.dim - 1), min_size=4, max_size=4)):
        assert entries[x] == pytest.approx(reference.algebraic_entry(code.log_dim, code.delta, row, x), abs=1e-15)


@pytest.mark.parametrize("log_dim, delta", [(2, 1), (3, 1)])
def test_every_entry_is_that_of_the_twin(log_dim, delta):
    code = AlgebraicCode(log_dim, delta)
    expected = [[reference.algebraic_entry(log_dim, delta, i, x) for x in range(code.dim)] for i in range(code.num)]
    assert torch.allclose(code.rows(torch.arange(code.num)), torch.tensor(expected, dtype=torch.float64), atol=1e-15)


@pytest.mark.parametrize("degree", algebraic.IRREDUCIBLE)
def test_the_field_is_a_field(degree):
    modulus = algebraic.IRREDUCIBLE[degree]
    assert modulus == reference.smallest_irreducible(degree) or degree == 1
    x = torch.randint(0, 2**degree, (50,), generator=generator())
    y = torch.randint(0, 2**degree, (50,), generator=generator(1))
    expected = [reference.field_times(int(a), int(b), modulus) for a, b in zip(x, y, strict=True)]
    assert algebraic.times(x, y, degree).tolist() == expected
    nonzero = torch.arange(1, 2**degree)
    inverse = nonzero  # x^(2^q - 2), the product of x^2, x^4, .., x^(2^(q-1))
    power, inverse = nonzero, torch.ones_like(nonzero)
    for _ in range(degree - 1):
        power = algebraic.times(power, power, degree)
        inverse = algebraic.times(inverse, power, degree)
    assert (algebraic.times(nonzero, inverse, degree) == 1).all()


# The largest cosine, by all pairs


@pytest.mark.parametrize("code", SMALL, ids=named)
def test_the_largest_cosine_of_all_pairs(code):
    assert energy.max_cosine(code.rows(torch.arange(code.num))) == pytest.approx(code.cosine, abs=1e-14)


def test_the_largest_cosine_of_all_pairs_of_the_dual_bch_code():
    code = AlgebraicCode(7, 3)
    points = code.rows(torch.arange(code.num), torch.float32)
    half = code.num // 2
    assert torch.equal(points[half:], -points[:half])
    largest = 0.0
    for start in range(0, half, 2048):
        cosines = points[start : start + 2048] @ points[start:half].T
        assert (cosines.diagonal() > 0.9999).all()
        cosines.fill_diagonal_(0)
        largest = max(largest, cosines.abs().max().item())
    assert largest == pytest.approx(1 / 8, abs=1e-5)  # multiples of 1/128 in exact numbers


@pytest.mark.parametrize("code", [c for c in CODES if c not in SMALL], ids=named)
def test_no_sampled_pair_of_rows_is_closer(code):
    index = torch.randint(0, code.num, (600,), generator=generator()).unique()
    near = torch.arange(300) * code.dim % code.num  # the first rows of the first bases
    points = code.rows(torch.cat([index, near]).unique())
    assert energy.max_cosine(points) <= code.cosine + 1e-14


# The largest cosine, by ranks: what proves it for codes of any size


def forms_of(code):
    """How many values a takes (1: there is none), and how many the coefficients b together."""
    num_a = 2**code._degree if code.log_dim % 2 == 0 else 1
    return num_a, (code.num // (2 * code.dim) - 1) // num_a


def alternating(code, forms):
    """(F,) forms -> (F, m) alternating matrices, a row the bits of an integer, read off the signs of the rows."""
    m, q = code.log_dim, (code.rows(torch.as_tensor(forms) * code.dim) < 0).numpy().astype(np.int64)  # Q(x)
    matrices = np.zeros((len(q), m), dtype=np.int64)
    for i, j in itertools.permutations(range(m), 2):
        matrices[:, i] |= (q[:, 1 << i | 1 << j] ^ q[:, 1 << i] ^ q[:, 1 << j] ^ q[:, 0]) << j
    return matrices


class Matrices:
    """Alternating matrices of many forms from those of a few: the sum of one for a and one for every bit of b."""

    def __init__(self, code):
        self.num_a, self.num_b = forms_of(code)
        self.of_a = alternating(code, np.arange(self.num_a))
        self.of_bits = alternating(code, self.num_a << np.arange(self.num_b.bit_length() - 1))

    def __call__(self, a, b):
        total = self.of_a[a].copy()
        for i, matrix in enumerate(self.of_bits):
            total ^= (b >> i & 1)[:, None] * matrix
        return total


def ranks(matrices):
    """Gauss: each row in turn clears its lowest bit in all later rows."""
    matrices, rank = matrices.copy(), 0
    for i in range(matrices.shape[1]):
        row = matrices[:, i]
        rank = rank + (row != 0)
        later = matrices[:, i + 1 :]
        later ^= row[:, None] * ((later & (row & -row)[:, None]) != 0)
    return rank


@given(st.lists(st.integers(0, 2**8 - 1), min_size=8, max_size=8))
def test_ranks_are_those_of_counting(rows):
    span = {0}
    for row in rows:
        span |= {row ^ s for s in span}
    assert 2 ** ranks(np.array([rows]))[0] == len(span)


@pytest.mark.parametrize("code", CODES, ids=named)
def test_words_are_quadratic_forms(code):
    """Q(x) is rebuilt from its values at unit vectors and the alternating matrix, which is a sum over a and the bits of b."""
    num_a, num_b = forms_of(code)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, num_a, 20), rng.integers(0, num_b, 20)
    forms = a + num_a * b
    matrices = alternating(code, forms)
    assert (matrices == Matrices(code)(a, b)).all()
    x = np.arange(code.dim)
    bits = x >> np.arange(code.log_dim)[:, None] & 1  # (m, n)
    for sign, matrix in zip((code.rows(torch.as_tensor(forms) * code.dim) < 0).numpy(), matrices, strict=True):
        products = sum((matrix[i] >> j & 1) * bits[i] * bits[j] for i in range(code.log_dim) for j in range(i))
        linear = sum(bits[i] * (sign[1 << i] ^ sign[0]) for i in range(code.log_dim))
        assert ((products + linear + sign[0]) % 2 == sign).all()


@pytest.mark.parametrize("code", CODES, ids=named)
def test_differences_of_forms_have_the_rank_that_is_claimed(code):
    """All of them, up to a million, else so many at random. What hangs on b is linear in it: two b count by their difference."""
    matrices, rng = Matrices(code), np.random.default_rng(0)
    num_a, num_b = matrices.num_a, matrices.num_b
    b = np.arange(1, num_b) if num_b <= 2**17 else rng.integers(1, num_b, 2**17)
    found = ranks(matrices(np.zeros_like(b), b))  # equal a
    if num_a > 1:
        pairs = np.array(list(itertools.combinations(range(num_a), 2)))
        if len(pairs) * num_b <= 2**20:
            pairs, b = np.repeat(pairs, num_b, axis=0), np.tile(np.arange(num_b), len(pairs))
        else:
            pairs, b = pairs[rng.integers(0, len(pairs), 2**17)], rng.integers(0, num_b, 2**17)
        found = np.concatenate([found, ranks(matrices.of_a[pairs[:, 0]] ^ matrices(pairs[:, 1], b))])
    assert found.min() >= 2 * code.delta
    assert (found % 2 == 0).all()


def gauss_binomial(n, k):
    """Subspaces of dimension k in n dimensions over the field of four elements."""
    above, below = (np.prod([4.0 ** (t - i) - 1 for i in range(k)]) for t in (n, k))
    return round(above / below)


@pytest.mark.parametrize("code", [c for c in CODES if forms_of(c)[0] * forms_of(c)[1] <= 2**20], ids=named)
def test_as_many_forms_have_the_least_rank_as_delsarte_and_goethals_count(code):
    """More than none: the cosine is reached. All have b_r != 0, as the others are a better code, and x -> c x maps each b_r
    to each: those with b_r = 1, and with them a prefix of two times the better code's forms, hold their share."""
    num_a, num_b = forms_of(code)
    form = np.arange(num_a * num_b)
    least = ranks(Matrices(code)(form % num_a, form // num_a)) == 2 * code.delta
    count = gauss_binomial(code.log_dim // 2, code.delta)
    assert least.sum() == count * (2**code._degree - 1)
    if code.delta < code.log_dim // 2:
        better = len(form) >> code._degree
        assert least[better : 2 * better].sum() == count


@pytest.mark.parametrize("code", [c for c in CODES if c.delta == c.log_dim // 2], ids=named)
def test_the_second_basis_reaches_the_cosine_of_the_best_codes(code):
    points = code.rows(torch.arange(code.dim + 1))
    assert (points[:-1] @ points[-1]).max() == pytest.approx(code.cosine, abs=1e-14)


# The order of the rows


@pytest.mark.parametrize("code", CODES, ids=named)
def test_bases_are_orthonormal_and_signs_come_last(code):
    half, n = code.num // 2, code.dim
    for basis in (0, half // n // 2, half // n - 2, half // n - 1):
        place = torch.arange(n)[:: max(1, n // 64)]
        points = code.rows(basis * n + place)
        assert torch.allclose(points @ points.T, torch.eye(len(place), dtype=torch.float64), atol=1e-13)
    assert torch.equal(points, torch.eye(n, dtype=torch.float64)[place])  # the last one
    index = torch.randint(0, half, (20,), generator=generator())
    assert torch.equal(code.rows(index + half), -code.rows(index))


@pytest.mark.parametrize("code", KERDOCK[:4], ids=named)
def test_kerdock_bases_are_mutually_unbiased_and_no_more_lines_fit(code):
    n, half = code.dim, code.num // 2
    assert half == n * (n + 2) // 2  # Delsarte, Goethals, Seidel 1975: lines at 0 or 1/sqrt(n)
    points = code.rows(torch.arange(half, dtype=torch.int64)[:: max(1, half // 2000)])
    basis = torch.arange(half)[:: max(1, half // 2000)] // n
    apart = basis[:, None] != basis
    assert torch.allclose((points @ points.T).abs()[apart], torch.tensor(n**-0.5, dtype=torch.float64), atol=1e-14)


@pytest.mark.parametrize("code", [c for c in CODES if c.num < 10**7], ids=named)
def test_no_code_beats_the_bound(code):
    assert code.cosine >= best_bound(code.num, code.dim)[0] - 1e-12


@given(st.sampled_from(CODES), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_rows_in_any_order_are_the_same_rows(code, seed):
    start = int(torch.randint(0, code.num - 20, (1,), generator=generator(seed)))
    together, order = code.rows(start + torch.arange(20)), torch.randperm(20, generator=generator(seed))
    assert torch.equal(code.rows(start + order), together[order])
    assert torch.equal(code.rows(start + order, torch.float32), together[order].float())


@given(st.sampled_from(CODES), st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_the_symmetries_map_rows_to_rows(code, seed):
    m, n, q = code.log_dim, code.dim, code._degree
    if code.num > 10**6:
        code = AlgebraicCode(m, m // 2)
    c, t, b = (int(torch.randint(1, high, (1,), generator=generator(seed))) for high in (max(2, 2**q), n, max(2, 2**q)))
    x = torch.arange(n)
    low, high = x % 2**q, x >> q << q
    images = [x ^ t, algebraic.times(low, torch.tensor(c), q) | high, algebraic.times(low, low, q) | high]
    rows = code.rows(torch.randint(0, code.num, (3,), generator=generator(seed)))
    moved = [rows[:, image] for image in images]
    if code._terms:
        form = code._signs(torch.tensor([forms_of(code)[0] * b]), torch.tensor([0]), torch.float64)
        moved.append(rows * form)
    _, cosines = code.nearest(torch.cat(moved))
    assert torch.allclose(cosines, torch.ones(1, dtype=torch.float64), atol=1e-13)


# The nearest row


def literal_nearest(points, queries):
    """The lowest index among cosines equal up to 1e-12."""
    queries = torch.nn.functional.normalize(queries.double(), dim=1)
    cosines = queries @ points.T
    top = cosines.amax(dim=1)
    return (cosines >= top[:, None] - 1e-12).int().argmax(dim=1), top


@st.composite
def searches(draw):
    code = draw(st.sampled_from(SMALL))
    half, n = code.num // 2, code.dim
    num = draw(st.one_of(st.integers(1, code.num), st.sampled_from([1, n, n + 1, half - n, half, half + 1, code.num])))
    return code, num, draw(st.integers(0, 10**6))


@given(searches())
@settings(deadline=None)
def test_nearest_is_that_of_all_cosines(search):
    code, num, seed = search
    points, g = code.rows(torch.arange(num)), generator(seed)
    some, others = (points[torch.randint(0, num, (4,), generator=g)] for _ in range(2))
    noise = torch.randn(4, code.dim, generator=g, dtype=torch.float64)
    queries = [noise, 7 * some, some + 0.05 * noise, some + others, some - others, some + others * (1 + 1e-9)]
    queries = torch.cat([*queries, torch.zeros(1, code.dim)])
    index, cosine = code.nearest(queries, num)
    expected, top = literal_nearest(points, queries)
    assert index.tolist() == expected.tolist()
    assert torch.allclose(cosine, top, atol=1e-13, rtol=0)
    assert index.dtype == torch.int64 and cosine.dtype == torch.float64


@pytest.mark.parametrize("num", [66_047, 66_048 // 2 + 700, 20_000])
def test_nearest_of_many_rows(num):
    code = AlgebraicCode(8, 4)
    queries = torch.randn(300, 256, generator=generator())  # two groups of queries, many blocks
    index, cosine = code.nearest(queries, num)
    expected, top = literal_nearest(code.rows(torch.arange(num)), queries)
    assert index.tolist() == expected.tolist()
    assert torch.allclose(cosine, top, atol=1e-13, rtol=0)


def test_nearest_finds_rows_of_the_largest_code():
    code = AlgebraicCode(8, 3)
    index = torch.randint(0, code.num, (5,), generator=generator())
    noise = 0.1 * torch.randn(5, 256, generator=generator(), dtype=torch.float64) / 16
    assert code.nearest(code.rows(index) + noise)[0].tolist() == index.tolist()


def test_nearest_does_not_hang_on_blocks_or_on_the_precision_of_products(monkeypatch):
    code, num = AlgebraicCode(6, 2), 100_000
    points = code.rows(torch.arange(num))
    queries = torch.randn(40, 64, generator=generator())
    first, second = (points[torch.randint(0, num, (200,), generator=generator(i))] for i in range(2))
    apart, both = first - second, first + second + 0.02 * torch.randn(200, 64, generator=generator())
    both -= ((both * apart).sum(dim=1, keepdim=True) / 2 - 1e-5) * apart  # two cosines that bfloat16 cannot tell apart
    queries = torch.cat([queries, both])
    expected, _ = literal_nearest(points, queries)
    assert code.nearest(queries, num)[0].tolist() == expected.tolist()
    with torch.autocast("cpu", torch.bfloat16):
        assert code.nearest(queries, num)[0].tolist() == expected.tolist()

    def coarse(x):
        return walsh_hadamard(x.bfloat16().to(x) if x.dtype == torch.float32 else x)

    monkeypatch.setattr(algebraic, "CACHED", 2**12)
    monkeypatch.setattr(algebraic, "QUERIES", 50)
    assert code.nearest(queries, num)[0].tolist() == expected.tolist()
    monkeypatch.setattr(algebraic, "walsh_hadamard", coarse)
    assert code.nearest(queries, num)[0].tolist() == expected.tolist()


def test_nearest_of_nothing_and_of_half_precision():
    code = AlgebraicCode(4, 2)
    index, cosine = code.nearest(torch.empty(0, 16))
    assert index.shape == cosine.shape == (0,)
    index, _ = code.nearest(code.rows(torch.arange(288), torch.bfloat16))
    assert index.tolist() == list(range(288))


@given(st.integers(1, 9), st.integers(0, 10**6))
@settings(deadline=None)
def test_walsh_hadamard_is_the_product_with_the_matrix(m, seed):
    x = torch.randn(2, 3, 2**m, generator=generator(seed), dtype=torch.float64)
    assert torch.allclose(walsh_hadamard(x), x @ torch.tensor(hadamard(2**m), dtype=torch.float64), atol=1e-11)


# Which code for which size


SIZES = [(1000, 64, 6 / 62), (256, 16, 1 / 4), (66_048, 256, 1 / 16), (66_049, 256, 26 / 250), (10_000, 128, 15 / 127)]
SIZES += [
    (10**5, 256, 26 / 250),
    (10**6, 256, 29 / 253),
    (10**6, 1024, 1 / 32),
    (10**6, 1500, 1 / 32),
    (25, 7, None),
    (3, 3, None),
]


@pytest.mark.parametrize("num, dim, cosine", SIZES)
def test_the_best_code_for_a_size(num, dim, cosine):
    found = candidates(num, dim)
    assert (found[0].cosine if found else None) == cosine
    assert [c.cosine for c in found] == sorted(c.cosine for c in found)
    whole = {c for c in found if isinstance(c, AlgebraicCode)}
    assert whole == {c for c in CODES if c.num >= num and c.dim <= dim}


@pytest.mark.parametrize("log_dim, delta", [(1, 1), (12, 6), (8, 0), (8, 5), (7, 4), (11, 1)])
def test_codes_that_there_are_not(log_dim, delta):
    with pytest.raises(ValueError, match=r"must lie in|use delta"):
        AlgebraicCode(log_dim, delta)


def test_bad_input():
    code = AlgebraicCode(4, 2)
    for index in (torch.tensor([0.5]), torch.tensor([[1]]), torch.tensor(3)):
        with pytest.raises(ValueError, match="must be integers"):
            code.rows(index)
    for index in ([-1], [288]):
        with pytest.raises(ValueError, match=r"must lie in 0\.\.287"):
            code.rows(torch.tensor(index))
    for num in (0, 289):
        with pytest.raises(ValueError, match=r"must lie in 1\.\.288"):
            code.nearest(torch.ones(1, 16), num)
    with pytest.raises(ValueError, match="must have 16"):
        code.nearest(torch.ones(1, 8))
    with pytest.raises(ValueError, match="NaN"):
        code.nearest(torch.full((1, 16), torch.nan))
    for num, dim in ((0, 4), (4, 2.0)):
        with pytest.raises(ValueError, match="integer of at least 1"):
            candidates(num, dim)


@pytest.mark.parametrize(
    "log_dim, delta, places",
    [(4, 2, 1), (4, 1, 3), (5, 2, 2), (6, 3, 1), (6, 3, 2), (6, 3, 7), (6, 2, 4), (7, 3, 3), (8, 4, 5)],
)
def test_a_shortened_code_is_what_is_left_of_the_words_that_are_plus_there(log_dim, delta, places):
    code = AlgebraicCode(log_dim, delta)
    short = ShortenedCode(code, places)
    index = torch.arange(short.num)[:4000]
    rows = short.rows(index)
    assert rows.shape == (len(index), code.dim - places) and (rows.norm(dim=1) - 1).abs().max() < 1e-14
    assert (rows @ rows.T).fill_diagonal_(-1).max() <= short.cosine + 1e-12
    where = [0, *(2**i for i in range(places - 1))]
    words = code.rows(
        torch.arange(code.num // 2 - code.dim)[: 4000 * 2 ** (places - 1)]
    )  # without the standard basis and signs
    words = words * words[:, :1].sign()
    kept = words[(words[:, where] > 0).all(dim=1)]
    rest = [x for x in range(code.dim) if x not in where]
    literal = torch.nn.functional.normalize(kept[:, rest])
    full = min(len(literal), len(rows))
    order = lambda m: sorted(map(tuple, m.sign().int().tolist()))  # noqa: E731
    assert order(literal[:full]) == order(rows[:full])
    assert short.num == (code.num // (2 * code.dim) - 1) * 2 ** (log_dim + 1 - places)
