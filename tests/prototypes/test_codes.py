import functools
import itertools
import math

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from asterism.prototypes import bounds, codes, energy
from asterism.prototypes.codes import CODES, candidates

ROOT5 = math.sqrt(5)

# What mathematics knows of these codes: how many points lie at each cosine from any point, and their strength as a design.
# Levenshtein 1992, tables 9.1 and 9.2; Cohn, Kumar 2007, table 1; for the graphs, their parameters.
KNOWN = {
    (12, 3): ({-1: 1, -1 / ROOT5: 5, 1 / ROOT5: 5}, 5),
    (120, 4): (
        {-1: 1, -(1 + ROOT5) / 4: 12, -1 / 2: 20, (1 - ROOT5) / 4: 12, 0: 30}
        | {(ROOT5 - 1) / 4: 12, 1 / 2: 20, (1 + ROOT5) / 4: 12},
        11,
    ),
    (24, 4): ({-1: 1, -1 / 2: 8, 0: 6, 1 / 2: 8}, 5),
    (10, 4): ({-2 / 3: 3, 1 / 6: 6}, 2),
    (16, 5): ({-3 / 5: 5, 1 / 5: 10}, 3),
    (40, 5): ({-1: 1, -1 / 2: 12, 0: 14, 1 / 2: 12}, 3),
    (27, 6): ({-1 / 2: 10, 1 / 4: 16}, 4),
    (72, 6): ({-1: 1, -1 / 2: 20, 0: 30, 1 / 2: 20}, 5),
    (56, 7): ({-1: 1, -1 / 3: 27, 1 / 3: 27}, 5),
    (126, 7): ({-1: 1, -1 / 2: 32, 0: 60, 1 / 2: 32}, 5),
    (240, 8): ({-1: 1, -1 / 2: 56, 0: 126, 1 / 2: 56}, 7),
    (756, 12): ({-1: 1, -1 / 2: 82, -1 / 4: 160, 0: 270, 1 / 4: 160, 1 / 2: 82}, 5),
    (4320, 16): ({-1: 1, -1 / 2: 280, -1 / 4: 1024, 0: 1710, 1 / 4: 1024, 1 / 2: 280}, 7),
    (256, 16): ({-1: 1, -1 / 4: 112, 0: 30, 1 / 4: 112}, 3),
    (128, 15): ({-1 / 3: 42, -1 / 15: 15, 1 / 5: 70}, 3),
    (64, 14): ({-3 / 7: 14, -1 / 7: 7, 1 / 7: 42}, 3),
    (56, 20): ({-2 / 5: 10, 1 / 15: 45}, 2),
    (81, 20): ({-7 / 20: 20, 1 / 10: 60}, 2),
    (105, 20): ({-5 / 16: 32, 1 / 8: 72}, 2),
    (50, 21): ({-3 / 7: 7, 1 / 21: 42}, 2),
    (77, 21): ({-3 / 8: 16, 1 / 12: 60}, 2),
    (112, 21): ({-1 / 3: 30, 1 / 9: 81}, 3),
    (162, 21): ({-2 / 7: 56, 1 / 7: 105}, 3),
    (100, 22): ({-4 / 11: 22, 1 / 11: 77}, 3),
    (275, 22): ({-1 / 4: 112, 1 / 6: 162}, 4),
    (891, 22): ({-1 / 2: 42, -1 / 8: 512, 1 / 4: 336}, 5),
    (552, 23): ({-1: 1, -1 / 5: 275, 1 / 5: 275}, 5),
    (4600, 23): ({-1: 1, -1 / 3: 891, 0: 2816, 1 / 3: 891}, 7),
    (165, 44): ({-1 / 4: 36, 1 / 16: 128}, 2),
    (243, 110): ({-5 / 22: 22, 1 / 55: 220}, 2),
    (729, 112): ({-23 / 112: 112, 1 / 28: 616}, 2),
    **{
        ((q + 1) * (q**3 + 1), q * (q * q - q + 1)): ({-1 / q: q * (q * q + 1), 1 / q**2: q**4}, 3)
        for q in (3, 4, 5, 7)
    },
}
SHARP = {(16, 5), (27, 6), (56, 7), (240, 8), (162, 21), (100, 22), (275, 22), (891, 22), (552, 23), (4600, 23)}
SHARP |= {(196560, 24)} | {((q + 1) * (q**3 + 1), q * (q * q - q + 1)) for q in (3, 4, 5, 7, 8, 9, 11, 13)}


def label(code):
    return f"{code.num}x{code.dim}"


def off_diagonal(points):
    return (points @ points.T)[~torch.eye(len(points), dtype=torch.bool)]


@pytest.mark.parametrize("code", [code for code in CODES if code.num <= 5000], ids=label)
def test_small_codes_are_what_the_table_says(code):
    points = code.build()
    assert points.shape == (code.num, code.dim) and points.dtype == torch.float64
    assert (points.norm(dim=1) - 1).abs().max() < 1e-14
    assert energy.max_cosine(points) == pytest.approx(code.cosine, abs=1e-12)
    check_order(points)


@pytest.mark.parametrize("code", [code for code in CODES if 5000 < code.num <= 50_000 and code.dim < 500], ids=label)
def test_large_codes_are_what_the_table_says_seen_from_some_points(code):
    points = code.build()
    assert points.shape == (code.num, code.dim) and points.dtype == torch.float64
    assert (points.norm(dim=1) - 1).abs().max() < 1e-14
    assert largest_from_some(points) == pytest.approx(code.cosine, abs=1e-12)
    check_order(points, some=50)


def largest_from_some(points):
    rows = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:30]
    return (points[rows] @ points.T).scatter_(1, rows[:, None], -1.0).max().item()


def check_order(points, some=5000):
    if (points @ points[0]).min() > -1 + 1e-6:
        return  # not antipodal
    half, negative = points.chunk(2)
    assert torch.equal(negative, -half)
    assert (half[:some] @ half.T).min() > -1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("code", [code for code in CODES if code.num > 5000], ids=label)
def test_large_codes_are_what_the_table_says(code):
    points = code.build()
    assert points.shape == (code.num, code.dim) and points.dtype == torch.float64
    assert (points.norm(dim=1) - 1).abs().max() < 1e-14
    few = code.num**2 * code.dim < 1e10
    largest = energy.max_cosine(points) if few else largest_from_some(points)
    assert largest == pytest.approx(code.cosine, abs=1e-12)
    check_order(points, some=50)


@pytest.mark.parametrize("size", KNOWN, ids=lambda size: f"{size[0]}x{size[1]}")
def test_every_point_sees_the_known_cosines_and_the_code_is_a_design(size):
    counts, strength = KNOWN[size]
    cosines = codes._table(*size).build()
    cosines = cosines @ cosines.T
    assert sum(counts.values()) == len(cosines) - 1
    for cosine, count in counts.items():
        assert (((cosines - cosine).abs() < 1e-12).sum(dim=1) == count).all()
    sums = [  # of a t-design they are zero for k = 1..t
        1 + sum(count * reference.gegenbauer(k, size[1], cosine) for cosine, count in counts.items())
        for k in range(1, strength + 2)
    ]
    assert max(map(abs, sums[:-1])) < 1e-9 < 1e-3 < abs(sums[-1])


@pytest.mark.parametrize("size", [(12, 3), (16, 5), (27, 6), (24, 4)])
def test_cosines_counted_one_by_one(size):
    points = codes._table(*size).build().numpy()
    expected = {round(cosine, 10) + 0.0: count for cosine, count in KNOWN[size][0].items()}
    for i in range(len(points)):
        assert reference.cosine_counts(points, i) == expected


@pytest.mark.parametrize("size", sorted(SHARP), ids=lambda size: f"{size[0]}x{size[1]}")
def test_sharp_codes_meet_the_levenshtein_bound(size):
    assert codes._table(*size).cosine == pytest.approx(bounds.levenshtein(*size), abs=1e-12)


def test_no_code_beats_the_bound_or_is_beaten_by_another():
    assert len({(code.num, code.dim) for code in CODES}) == len(CODES)
    for code in CODES:
        assert code.cosine >= bounds.best_bound(code.num, code.dim)[0] - 1e-12, code
        for other in CODES:
            beaten = other.num >= code.num and other.dim <= code.dim and other.cosine <= code.cosine + 1e-12
            assert other is code or not beaten, (other, code)


@given(st.integers(2, 5000), st.integers(1, 300))
def test_candidates_are_all_that_fit_and_sorted(num, dim):
    found = candidates(num, dim)
    assert {label(code) for code in found} == {label(code) for code in CODES if code.num >= num if code.dim <= dim}
    assert [code.cosine for code in found] == sorted(code.cosine for code in found)


def test_candidates_reach_what_is_expected():
    for num, dim, cosine in [(150, 24, 1 / 7), (100, 16, 1 / 5), (200, 50, 1 / 18), (1000, 128, 1 / 15)]:
        assert candidates(num, dim)[0].cosine == cosine
    assert candidates(196_561, 24) == [] and candidates(2, 2) == []


@pytest.mark.parametrize("size", [(275, 22), (325, 52), (165, 44), (1224, 34), (4600, 23)])
def test_the_same_bits_every_time(size):
    code = codes._table(*size)
    first, second = code.build(), code.build()
    assert torch.equal(first, second) and first.data_ptr() != second.data_ptr()
    assert torch.equal(first.signbit(), second.signbit())


BASES = [(24, 4), (120, 4), (126, 7), (240, 8), (306, 9), (500, 10), (256, 16), (4320, 16), (196560, 24), (1224, 34)]


@pytest.mark.parametrize("num, dim", BASES)
def test_codes_that_open_with_an_orthonormal_basis(num, dim):
    points = codes._table(num, dim).build()[:dim]
    assert (points @ points.T - torch.eye(dim)).abs().max() < 1e-14


@given(st.integers(3, 12), st.integers(1, 24))
def test_simplex_circle_and_orthoplex(dim, num):
    assert off_diagonal(codes.simplex(dim + 1, dim)) == pytest.approx(-1 / dim, abs=1e-14)
    assert energy.max_cosine(codes.circle(num + 2)) == pytest.approx(math.cos(2 * math.pi / (num + 2)), abs=1e-14)
    points = codes.orthoplex(min(num, 2 * dim), dim)
    antipodes = int(((points @ points.T) == -1).sum()) // 2
    assert antipodes == max(0, len(points) - dim)
    assert len(points) < 2 or set(off_diagonal(points).tolist()) <= {0.0, -1.0}


# Sections


@given(st.integers(2, 6), st.integers(0, 10**6), st.data())
def test_a_section_is_that_of_the_twin(dim, seed, data):
    """Points with coordinates +-1, 0 of one length; poles with small integers."""
    weight = data.draw(st.integers(1, dim))
    points = codes._tuples(3, dim).double() - 1
    points = points[points.square().sum(dim=1) == weight]
    generator = torch.Generator().manual_seed(seed)
    poles = torch.randint(-2, 3, (data.draw(st.integers(1, dim - 1)), dim), generator=generator).double()
    if torch.linalg.matrix_rank(poles) < len(poles):
        return
    at = points[data.draw(st.integers(0, len(points) - 1))]
    products = (poles @ at).tolist()
    basis = torch.linalg.qr(poles.T).Q
    if (at - basis @ (basis.T @ at)).norm() < 1e-6:
        return  # the points are multiples of the poles, and nothing is left of them
    ours = codes._section(points, poles, products)
    twin = torch.from_numpy(reference.section(points.numpy(), poles.numpy(), products))
    assert ours.shape == (len(twin), dim - len(poles))
    assert torch.allclose((ours @ ours.T).flatten().sort().values, (twin @ twin.T).flatten().sort().values, atol=1e-12)
    check_order(ours)


def test_antipodes_come_last_and_orthogonal_rows_first():
    points = torch.tensor([[0.0, -2.0], [0.0, 2.0], [3.0, 4.0], [-3.0, -4.0], [2.0, 0.0], [-2.0, 0.0]]).double()
    expected = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]]).double()
    assert torch.allclose(codes._arranged(points), torch.cat([expected, -expected]))
    assert torch.allclose(codes._arranged(points[1::2]), expected * torch.tensor([[1.0], [-1.0], [-1.0]]))


# Golay code, Leech lattice


def test_golay_code():
    golay = codes._golay()
    weights, counts = golay.sum(dim=1).unique(return_counts=True)
    assert dict(zip(weights.tolist(), counts.tolist(), strict=True)) == {0: 1, 8: 759, 12: 2576, 16: 759, 24: 1}
    words = {tuple(word) for word in golay.tolist()}
    assert len(words) == 4096
    assert all(tuple(a ^ b for a, b in zip(*pair, strict=True)) in words for pair in itertools.pairwise(sorted(words)))
    octads = [word for word in golay.tolist() if sum(word) == 8]
    assert [1] * 8 + [0] * 16 in octads
    assert any(sum(word[:8]) == 4 and sum(word[8:12]) == 4 for word in octads)


@functools.cache
def leech():
    return (codes._leech() * math.sqrt(32)).round().float()


def test_leech_lattice():
    """Integer vectors of one length, all different; each sees the others at the known products."""
    points = leech()
    assert (codes._leech() * math.sqrt(32) - points).abs().max() < 1e-14
    assert points.shape == (196560, 24) and (points.square().sum(dim=1) == 32).all()
    assert torch.equal(points[98280:], -points[:98280])
    assert len((points.double() @ torch.rand(24, dtype=torch.float64)).unique()) == 196560
    expected = {-32: 1, -16: 4600, -8: 47104, 0: 93150, 8: 47104, 16: 4600, 32: 1}
    rows = torch.randperm(196560, generator=torch.Generator().manual_seed(0))[:20]
    products = points[torch.cat([torch.tensor([0]), rows])] @ points.T
    for product, count in expected.items():
        assert ((products == product).sum(dim=1) == count).all()
    sums = [
        sum(count * reference.gegenbauer(k, 24, product / 32) for product, count in expected.items())
        for k in range(1, 13)
    ]
    assert max(map(abs, sums[:11])) < 1e-7 < 1 < abs(sums[11])  # an 11-design


@pytest.mark.slow
def test_all_products_of_the_leech_lattice():
    half = leech()[:98280]
    for start in range(0, len(half), 2000):
        products = half[start : start + 2000] @ half.T
        rows = torch.arange(len(products))
        assert (products[rows, rows + start] == 32).all()
        products[rows, rows + start] = 0
        assert products.abs().max() == 16


def test_nordstrom_robinson_code():
    for shortened, num in enumerate([256, 128, 64, 32]):
        points = codes._nordstrom_robinson(shortened)()
        n = 16 - shortened
        assert points.shape == (num, n)
        assert energy.max_cosine(points) == pytest.approx(1 - 2 * 6 / n, abs=1e-14)  # distance 6


# Finite fields


PRIME_POWERS = [2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 25, 27, 49, 81, 121, 125]


@given(st.sampled_from(PRIME_POWERS), st.data())
def test_fields(q, data):
    plus, times = (table.tolist() for table in codes._field(q))
    a, b, c = (data.draw(st.integers(0, q - 1)) for _ in range(3))
    assert plus[a][b] == plus[b][a] and times[a][b] == times[b][a]
    assert plus[a][plus[b][c]] == plus[plus[a][b]][c] and times[a][times[b][c]] == times[times[a][b]][c]
    assert times[a][plus[b][c]] == plus[times[a][b]][times[a][c]]
    assert plus[a][0] == a and times[a][1] == a and times[a][0] == 0
    assert sorted(plus[a]) == list(range(q)) and (a == 0 or sorted(times[a]) == list(range(q)))


def test_there_is_no_field_of_six():
    with pytest.raises(ValueError, match="no field has 6 elements, must be a prime power"):
        codes._field(6)


@given(st.sampled_from([2, 3, 4, 5]), st.integers(0, 10**6))
def test_scalar_products_over_a_field(q, seed):
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randint(q, (3, 4), generator=generator) for _ in range(2))
    plus, times = codes._field(q)
    for i, j in itertools.product(range(3), repeat=2):
        total = 0
        for a, b in zip(left[i], right[j], strict=True):
            total = int(plus[total, times[a, b]])
        assert codes._products(left, right, q)[i, j] == total


@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 10**6))
def test_words_are_as_far_apart_as_their_letters_say(q, n, seed):
    words = torch.randint(q, (7, n), generator=torch.Generator().manual_seed(seed))
    points = codes._words(words, q)
    assert points.shape == (7, n * (q - 1))
    for i, j in itertools.product(range(7), repeat=2):
        agree = sum(int(a == b) for a, b in zip(words[i], words[j], strict=True))
        assert points[i] @ points[j] == pytest.approx((q * agree / n - 1) / (q - 1), abs=1e-14)


@pytest.mark.parametrize("q", [3, 4, 5, 7])
def test_planes_hold_one_point_of_the_ovoid_or_q_plus_one(q):
    cosines = codes._ovoid(q) @ codes._ovoid(q)[0]
    agree = ((cosines * (q - 1) + 1) * (q * q + 1) / q).round().int()  # places where a word and the word of zeros agree
    planes, counts = agree.unique(return_counts=True)
    assert planes.tolist() == [1, q + 1, q * q + 1]
    assert counts.tolist() == [(q - 1) * (q * q + 1), (q - 1) * (q**3 + q), 1]


@given(st.sampled_from([3, 5, 7, 11]), st.data())
def test_chirps_are_those_of_the_twin(p, data):
    points = codes._chirps(p)
    assert points.shape == (4 * p * (p + 1), 2 * p)
    picks = [tuple(data.draw(st.integers(0, n - 1)) for n in (p, p, 4)) for _ in range(2)]
    rows = [  # a basis is p vectors, then i times them; the first p are the axes, the negatives come last
        (k // 2) * 2 * p * (p + 1) + (a + 1) * 2 * p + (k % 2) * p + b for a, b, k in picks
    ]
    ours = (points[rows[0]] @ points[rows[1]]).item()
    assert ours == pytest.approx(reference.chirp_cosine(p, *picks), abs=1e-12)


@pytest.mark.parametrize("q", [7, 9])
def test_chirps_are_unbiased_bases(q):
    points = codes._chirps(q)
    half = points[: len(points) // 2].view(q + 1, 2 * q, 2 * q)
    for basis in half:
        assert (basis @ basis.T - torch.eye(2 * q)).abs().max() < 1e-14
    v = torch.view_as_complex(half[:, :q].reshape(-1, q, 2))
    products = (v @ v.T.conj()).abs().view(q + 1, q, q + 1, q)
    for i, j in itertools.combinations(range(q + 1), 2):
        assert products[i, :, j] == pytest.approx(1 / math.sqrt(q), abs=1e-14)


# Graphs


def test_hoffman_singleton_and_hermitian_graphs_are_strongly_regular(monkeypatch):
    graphs = []
    monkeypatch.setattr(codes, "_spectral", lambda near, *_: graphs.append(near.double()))
    codes._hoffman_singleton()
    codes._hermitian()
    for near, (k, both, apart) in zip(graphs, [(7, 0, 1), (36, 3, 9)], strict=True):
        eye = torch.eye(len(near))
        assert torch.equal(near, near.T)
        assert torch.equal(near @ near, k * eye + both * near + apart * (1 - eye - near))


@pytest.mark.parametrize("sides", [5, 7, 9])
def test_a_spectral_embedding_is_the_projection_on_the_eigenspace(sides):
    """Of the complement of disjoint edges, whose least eigenvalue is -2."""
    near = ~torch.block_diag(*[torch.ones(2, 2)] * sides).bool()
    values, vectors = np.linalg.eigh(near.numpy().astype(float))
    space = vectors[:, values < -2 + 1e-9]
    points = codes._spectral(near, -2, sides - 1)
    twin = space @ space.T * len(near) / (sides - 1)
    assert np.abs(np.sort((points @ points.T).numpy().ravel()) - np.sort(twin.ravel())).max() < 1e-12


def test_symmetry_groups_of_the_isotropic_codes():
    orders = {2: 51_840, 3: 26_127_360, 4: 4_073_472_000}  # W(E6), U4(3).D8, U4(4).4
    for q, order in orders.items():
        assert codes._unitary(q) == f"PGammaU(4, {q}), order {order:,}"
