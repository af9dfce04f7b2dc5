"""The searches that probe, on targets where every step can be worked out by hand."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from _helpers import Recorder, batch_of, threat_of
from brinell.core.domain import KINDS, Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.user_files import import_file
from brinell.rlab.distort import variants

_searches = import_file(Path(__file__).parents[2] / "benchmarks" / "rlab" / "search.py")
TreeSearch, published, search, dilution = (
    _searches.TreeSearch,
    _searches.published,
    _searches.search,
    _searches.dilution,
)

FOUR = Domain(kind="vector", shape=(4,))
WEIGHT = torch.tensor([1.0, 3.0, 2.0, -1.0])


@dataclass(frozen=True, kw_only=True)
class Raise:
    """Every value grows by a tenth of the range for each severity."""

    domains: ClassVar[frozenset[Any]] = frozenset(KINDS)
    access: ClassVar[Access] = Access.LABELS

    def draws(self, shape: tuple[int, ...]) -> int | None:
        return 1

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        return (x + 0.1 * severity[:, None]).clamp(0, 1)


def needs(gain: float) -> Any:
    """A linear model whose wrong class wins once the weighted change exceeds `gain`; a patch brings
    0.1, 0.3, 0.2 or -0.1.
    """

    def logits(x: Tensor) -> Tensor:
        way = (x - 0.5) @ WEIGHT - gain
        return torch.stack([-way / 2, way / 2], 1)

    return logits


def run(
    function: Any,
    settings: Any,
    *,
    eps: float = 9.0,
    severities: tuple[int, ...] = (1,),
    queries: int | None = None,
) -> Any:
    model = Recorder(function, FOUR)
    batch, threat = batch_of(torch.full((1, 4), 0.5), [0]), threat_of(eps, "l2", FOUR)
    ledger = Ledger(model, batch, threat, access=Access.SCORES, queries=queries)
    result = search(
        ledger.oracle(),
        batch,
        threat,
        Streams.of(0, batch.ids),
        grid=PatchGrid.over(FOUR, 1),
        variants=variants([Raise()], FOUR, severities),
        settings=settings,
    )
    assert model.queries == int(ledger.costs.forwards.sum())
    return result, ledger


def standing(result: Any) -> list[int]:
    return (result.variant[0] >= 0).nonzero()[:, 0].tolist()


def test_depth_one_adds_the_best_patch_of_each_full_probe() -> None:
    # Look, 4 probes: patch 1. 3 probes: patch 2. Patch 0 is probed first and brings 0.6.
    result, ledger = run(needs(0.55), TreeSearch(batch_size=1))
    assert int(ledger.best.first_success[0]) == int(ledger.costs.forwards[0]) == 1 + 4 + 3 + 1
    assert standing(result) == [0, 1, 2]
    assert bool(result.success[0]) and int(result.steps[0]) == 3


def test_depth_two_asks_about_every_pair_makes_one_move_and_looks_again() -> None:
    # 4 single patches, then 01, 02, 03, 12, which brings 0.5.
    result, ledger = run(needs(0.45), TreeSearch(depth=2, batch_size=1))
    assert int(ledger.best.first_success[0]) == 1 + 4 + 4 and standing(result) == [1, 2]
    # All 4 + 6 in vain; patch 1 stands, the better one of the best pair; 3 singles, then 02 with it
    # brings 0.6.
    result, ledger = run(needs(0.55), TreeSearch(depth=2, batch_size=1))
    assert int(ledger.best.first_success[0]) == 1 + 4 + 6 + 3 + 1 and standing(result) == [0, 1, 2]
    assert standing(run(needs(0.9), TreeSearch(depth=2, steps=1))[0]) == [1]


def test_a_set_never_holds_one_patch_twice() -> None:
    # 8 moves and, on 6 pairs of patches, 4 pairs of variants.
    _, ledger = run(needs(9.0), TreeSearch(depth=2, steps=1), severities=(1, 2))
    assert int(ledger.costs.forwards[0]) == 1 + 8 + 24
    result, _ = run(needs(0.9), TreeSearch(adds=2, steps=1), severities=(1, 2))
    assert result.variant.tolist() == [[-1, 1, 1, -1]]


def test_depth_two_sees_what_only_two_patches_do_together() -> None:
    def pair_model(x: Tensor) -> Tensor:
        change = (x - 0.5) * 10
        way = change[:, 0] * change[:, 1] + 0.3 * change[:, 2] - 0.9
        return torch.stack([-way, way], 1)

    assert standing(run(pair_model, TreeSearch(depth=2))[0]) == [0, 1]
    assert standing(run(pair_model, TreeSearch(depth=1))[0]) == [0, 1, 2]


def test_published_loop_adds_two_and_asks_about_them_together() -> None:
    # Look, 4 probes, patches 1 and 2 together (0.5), then patch 0.
    result, ledger = run(needs(0.55), published())
    assert int(ledger.best.first_success[0]) == 1 + 4 + 1 + 1
    assert standing(result) == [0, 1, 2]


def test_moves_are_patches_with_each_variant() -> None:
    # At severity 2 patch 1 alone brings 0.6; it is the fourth move.
    result, ledger = run(needs(0.55), TreeSearch(batch_size=1), severities=(1, 2))
    assert int(ledger.best.first_success[0]) == 1 + 4
    assert result.variant.tolist() == [[-1, 1, -1, -1]]


def test_budgets_of_queries_and_distance_hold() -> None:
    result, ledger = run(needs(0.55), TreeSearch(), queries=6)
    assert not result.success[0] and int(ledger.costs.forwards[0]) == 6
    # Three patches scaled to length 0.1 bring 0.6 / 3**0.5: the ledger refuses what is farther.
    result, ledger = run(needs(0.55), TreeSearch(), eps=0.1)
    assert not result.success[0] and not ledger.fooled[0]
    assert bool(run(needs(0.34), TreeSearch(), eps=0.1)[0].success[0])


def logits_of(p, classes=2):
    """(1, classes): probability p for class 0, the rest shared."""
    return (
        torch.tensor([[p, *[(1 - p) / (classes - 1)] * (classes - 1)]], dtype=torch.float64)
        .log()
        .float()
    )


def test_dilution_against_its_formula(subtests):
    """1 / log10 p, divided by the value at p = 1 of the line that touches it at 0.9."""
    for p in [0.9, 0.5, 0.1, 1e-3, 1e-9]:
        with subtests.test(p=p):
            slope = (1 / math.log10(0.9 + 1e-6) - 1 / math.log10(0.9 - 1e-6)) / 2e-6
            end = 1 / math.log10(0.9) + slope * 0.1
            assert dilution(logits_of(p), torch.tensor([0])).item() == pytest.approx(
                1 / math.log10(p) / -end, rel=1e-3
            )


def test_dilution_is_monotone_finite_and_has_no_corner():
    p = torch.linspace(1e-6, 1 - 1e-6, 4001, dtype=torch.float64)
    values = dilution(torch.stack([p, 1 - p], 1).log(), torch.zeros(len(p), dtype=torch.int64))
    assert values.isfinite().all() and (values.diff() < 0).all()
    assert values[-1].item() == pytest.approx(-1, abs=1e-3) and values[0].item() == pytest.approx(
        0, abs=0.01
    )
    slopes = values.diff() / p.diff()
    position = int((p < 0.9).sum())
    assert slopes[position - 3].item() == pytest.approx(slopes[position + 3].item(), rel=0.05)
