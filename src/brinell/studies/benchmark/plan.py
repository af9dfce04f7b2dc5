"""The adversarial benchmark set of a model: what is asked for, and whether it can be made. No query is spent here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.attacks.rlab import RLAB
from brinell.core.contracts import Dataset
from brinell.core.criterion import MISCLASSIFIED, Criterion, Probability
from brinell.core.errors import RequestError
from brinell.core.model import Access, Model
from brinell.core.patches import PatchGrid
from brinell.core.record import Array
from brinell.core.version import VERSION
from brinell.engine.cells import cell
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import TRIED, check_classes, choose_device, facts_of, gaps, open_data, opener_of
from brinell.engine.selection import Selection, choose
from brinell.rlab.variants import Variant
from brinell.studies.benchmark.records import LAYOUT, Form
from brinell.studies.benchmark.request import BenchmarkRequest

PART_SAMPLES = 128
"""Samples that one part holds at most."""
MOST_LEVELS = 1000
"""Levels that a set may have."""
PART_BYTES = 16 * 2**20
"""About how much clean input one part may hold; its levels and the search need some ten times that."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan:
    """Everything that determines what a benchmark set holds."""

    request: BenchmarkRequest
    dataset: Dataset
    data_digest: str
    model: Model
    facts: dict[str, Any]
    selection: Selection
    """The samples that were asked for."""
    ids: Array
    """(n,) int64, ascending: those that can be read, as positions in the data set."""
    labels: Array
    """(n,) int64."""
    attack: RLAB
    grid: PatchGrid
    variants: tuple[Variant, ...]
    criterion: Criterion
    levels: tuple[float, ...]
    """Ascending, the first is 1."""
    eps: float | None
    training_queries: int | None
    device: torch.device
    unreadable: Mapping[int, str]
    """Samples whose input cannot be read, with the reason; they are not among `ids`."""

    @property
    def form(self) -> Form:
        """How inputs are written."""
        domain = self.dataset.domain
        return Form(domain.kind, domain.shape, domain.low, domain.high, self.dataset.classes)

    @property
    def part_size(self) -> int:
        """Samples of a part."""
        return max(1, min(PART_SAMPLES, PART_BYTES // (4 * math.prod(self.dataset.domain.shape))))

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return math.ceil(len(self.ids) / self.part_size)

    @property
    def distortions(self) -> dict[int, str]:
        """The name of each distortion, as it was asked for, by its identity."""
        return {
            id(one): text.strip() for one, text in zip(self.attack.distortions, self.request.distortions.split("+"), strict=True)
        }

    @property
    def criterion_settings(self) -> dict[str, Any]:
        """The thresholds of the criterion, None for those that it does not have."""
        about = self.criterion.about()
        return {name: about.get(name) for name in ("true_below", "wrong_class", "wrong_above")}

    @property
    def cell(self) -> str:
        """Hash of all that the content depends on."""
        domain = self.dataset.domain
        return cell(
            format=LAYOUT.version,
            brinell=VERSION,
            model=self.facts["digest"],
            data=self.data_digest,
            samples=len(self.ids),
            **({} if self.selection.how in ("all", "first") else {"ids": self.ids.tolist()}),
            domain=list(domain.to_json().values()),
            attack=plugins.written(self.attack),
            criterion=self.criterion_settings,
            levels=self.levels,
            eps=self.eps,
            seed=self.request.seed,
            part=self.part_size,
        )


def make_plan(request: BenchmarkRequest, *, dataset: Dataset | None = None, model: Model | None = None) -> BenchmarkPlan:
    """Resolve a request, naming whatever does not fit before any query is spent.

    Args:
        request: what is asked for.
        dataset: data already in memory, in place of `request.data`.
        model: a model already in memory, in place of `request.model`.

    Raises:
        RequestError: any part that cannot be carried out.
        ContractError: a distortion that breaks its contract.
    """
    levels, eps = parse_levels(request.levels), _cap(request.eps)
    settings = {name: getattr(request, name) for name in ("distortions", "policy", "patch", "stride", "steps", "refine")}
    attack: RLAB = plugins.build("attack", "rlab", settings)
    device = choose_device(request.device)
    dataset = open_data(request.data) if dataset is None else dataset
    criterion = _criterion(request, dataset.classes)
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    selection = choose(request, dataset)
    lost = gaps(dataset, selection.ids.tolist())
    ids = np.array([sample for sample in selection.ids.tolist() if sample not in lost], dtype=np.int64)
    domain = dataset.domain.free
    grid, variants = attack.grid(domain), attack.variants(domain)
    if attack.access > Access.SCORES:
        raise RequestError(
            "a benchmark set is made from scores alone: leave out distortions that look into the model, as gradient-sign"
        )
    attack.try_on(dataset.domain.part(dataset.load(ids[:: max(1, len(ids) // TRIED)][:TRIED].tolist())), domain)
    model = opener_of(request.model, dataset)() if model is None else model
    check_classes(model, labels[ids], tuple(dataset.classes))
    facts = {"name": model.name} | facts_of(model)
    if model.access < Access.SCORES:
        raise RequestError(
            f"model {model.name} answers {model.access.name.lower()} only, and the agent needs scores: choose a model that "
            "answers logits"
        )
    criterion.check(facts["classes"])
    return BenchmarkPlan(
        request=request,
        dataset=dataset,
        data_digest=dataset.digest(),
        model=model,
        facts=facts,
        selection=selection,
        ids=ids,
        labels=labels[ids],
        attack=attack,
        grid=grid,
        variants=variants,
        criterion=criterion,
        levels=levels,
        eps=eps,
        training_queries=_training(about) if (about := attack.agent(domain.kind).about) else 0,
        device=device,
        unreadable=lost,
    )


def parse_levels(text: str) -> tuple[float, ...]:
    """Multiples of the distance of the adversarial example, ascending, 1 always among them.

    Raises:
        RequestError: no number, below 1, or not finite.
    """
    found = {1.0}
    if text.count(",") >= MOST_LEVELS:
        raise RequestError(f"levels lists more than {MOST_LEVELS}, which is the most: leave some out")
    for item in text.split(","):
        try:
            value = float(item)
        except ValueError:
            raise RequestError(
                f"level {item.strip()!r} is no number: write multiples of the adversarial example's L2, such as 1,2,4"
            ) from None
        if not 1 <= value < math.inf:
            raise RequestError(
                f"level {item.strip()!r} is not possible: a level is a multiple of the adversarial example's L2, at least 1"
            )
        found.add(value)
    return tuple(sorted(found))


def _cap(eps: str | None) -> float | None:
    if eps is None:
        return None
    values = parse_eps(eps).values
    if len(values) != 1 or not values[0] > 0:
        raise RequestError(f"eps is {eps!r}: a benchmark set has one cap on the L2 distance, above 0; or leave it out")
    return values[0]


def _criterion(request: BenchmarkRequest, classes: tuple[str, ...]) -> Criterion:
    wrong_class = _class(request.wrong_class, classes)
    if (request.true_below, wrong_class, request.wrong_above) == (None, None, None):
        return MISCLASSIFIED
    return Probability(true_below=request.true_below, wrong_class=wrong_class, wrong_above=request.wrong_above)


def _class(name: str | None, classes: tuple[str, ...]) -> int | None:
    if name is None or name in classes:
        return None if name is None else classes.index(name)
    try:
        return int(name)
    except ValueError:
        raise RequestError(f"there is no class {name!r}{plugins.nearest(name, classes)}: name one, or give its number") from None


def _training(about: dict[str, Any]) -> int | None:
    """Forwards that a policy was trained with, as its file says; None where it does not."""
    spent = about.get("training_queries")
    if isinstance(spent, dict):
        return sum(int(value) for value in spent.values())
    return None if spent is None else int(spent)
