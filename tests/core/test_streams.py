import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _lazy import library
from brinell.core.streams import Streams

stats = library("scipy.stats")
MASK = (1 << 64) - 1


def splitmix64(state):
    """The finaliser in plain integers: Steele, Lea & Flood 2014, as in Java's SplittableRandom."""
    z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def signed(z):
    return z - (1 << 64) if z >> 63 else z


def test_bits_are_splitmix64_by_counter():
    # The published first outputs of the generator for seed 0: with a key of 0 the counter starts it
    # as a plain one.
    bits = Streams(torch.zeros(1, dtype=torch.int64)).bits(3)[0].tolist()
    assert [b & MASK for b in bits] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    keys = [5, -7, 2**62]
    bits = Streams(torch.tensor(keys)).bits(2, 3)
    gamma = 0x9E3779B97F4A7C15
    expected = [
        [signed(splitmix64((key + gamma * (i + 1)) & MASK)) for i in range(6)] for key in keys
    ]
    assert bits.reshape(3, 6).tolist() == expected


@pytest.mark.parametrize("cached", [1, 7, 40])
def test_how_many_are_drawn_together_does_not_matter(monkeypatch, cached):
    streams = Streams.of(3, torch.arange(9))
    expected = streams.bits(2, 5), streams.uniform(2, 5), streams.uniform(), streams.bits(0)
    monkeypatch.setattr("brinell.core.streams.CACHED", cached)
    parts = streams.bits(2, 5), streams.uniform(2, 5), streams.uniform(), streams.bits(0)
    assert all(torch.equal(first, second) for first, second in zip(expected, parts, strict=True))
    assert expected[3].shape == (9, 0) and expected[2].shape == (9,)


def test_the_streams_of_a_run_never_change():
    """Values written down once: another platform or version that gives others makes runs that
    cannot be repeated.
    """
    streams = Streams.of(7, torch.tensor([0, 1, 1000]))
    assert streams.keys.tolist() == KEYS
    assert streams.fold("apgd").fold(2).keys.tolist() == FOLDED
    assert streams.uniform(2).tolist() == UNIFORM


KEYS = [7367502847023684456, -6633406501450964464, 8926251265141292936]
FOLDED = [2216974707750640571, -3105044274802058287, 94597251122125016]
UNIFORM = [
    [0.33063405752182007, 0.6361691355705261],
    [0.055955350399017334, 0.8889724612236023],
    [0.3073187470436096, 0.7224105000495911],
]


@given(
    st.integers(0, 2**40),
    st.lists(st.integers(0, 2**50), min_size=1, max_size=20, unique=True),
    st.randoms(),
)
def test_order_and_company_change_nothing(seed, ids, shuffle):
    full = Streams.of(seed, torch.tensor(ids)).fold("attack").fold(3).uniform(2, 2)
    order = list(range(len(ids)))
    shuffle.shuffle(order)
    shuffled = (
        Streams.of(seed, torch.tensor([ids[i] for i in order])).fold("attack").fold(3).uniform(2, 2)
    )
    assert torch.equal(shuffled, full[order])
    last = Streams.of(seed, torch.tensor(ids[-1:])).fold("attack").fold(3).uniform(2, 2)
    assert torch.equal(last[0], full[-1])


def test_no_global_generator_is_touched():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    streams = Streams.of(0, torch.arange(8)).fold("x")
    for draw in (streams.uniform, streams.normal, streams.bits):
        draw(5)
    streams.integers(7, 5)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert str(before[2]) == str(np.random.get_state())  # noqa: NPY002


LARGE_STREAMS = Streams.of(12345, torch.arange(400)).fold("test")


def test_uniform():
    u = LARGE_STREAMS.uniform(500).flatten().double().numpy()
    assert 0 < u.min() and u.max() < 1
    assert u.mean() == pytest.approx(0.5, abs=4 / np.sqrt(12 * len(u)))
    assert u.var() == pytest.approx(1 / 12, rel=0.01)
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_normal():
    z = LARGE_STREAMS.normal(500).flatten().double().numpy()
    assert np.isfinite(z).all()
    assert z.mean() == pytest.approx(0, abs=4 / np.sqrt(len(z)))
    assert z.var() == pytest.approx(1, rel=0.02)
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_integers(subtests):
    for high in [1, 2, 7, 10, 1000]:
        with subtests.test(high=high):
            integers = LARGE_STREAMS.integers(high, 50).flatten().numpy()
            assert integers.min() >= 0 and integers.max() == high - 1
            if 1 < high <= 10:
                assert stats.chisquare(np.bincount(integers, minlength=high)).pvalue > 1e-3


def test_streams_are_independent():
    """Across samples, across draws, across folds and across seeds: no correlation beyond chance,
    which is 1 / sqrt(n).
    """
    u = LARGE_STREAMS.uniform(100).double().numpy() - 0.5
    folded = LARGE_STREAMS.fold(1).uniform(100).double().numpy() - 0.5
    refolded = LARGE_STREAMS.fold(2).uniform(100).double().numpy() - 0.5
    seeded = Streams.of(12346, torch.arange(400)).fold("test").uniform(100).double().numpy() - 0.5
    pairs = [(u[:-1], u[1:]), (u[:, :-1], u[:, 1:]), (u, folded), (folded, refolded), (u, seeded)]
    for first, second in pairs:
        correlation = (first * second).mean() * 12
        assert abs(correlation) < 4.5 / np.sqrt(first.size)


@pytest.mark.gpu
def test_the_gpu_draws_the_same():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    on_cpu, on_gpu = Streams.of(0, torch.arange(50)), Streams.of(0, torch.arange(50, device="cuda"))
    assert torch.equal(on_cpu.fold("a").uniform(99), on_gpu.fold("a").uniform(99).cpu())
    assert torch.equal(on_cpu.fold("a").integers(9, 99), on_gpu.fold("a").integers(9, 99).cpu())
