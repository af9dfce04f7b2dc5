"""The plan of an adversarial benchmark set. It refuses requests that do not fit, before any query."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.attacks.rlab import RLAB
from brinell.core.contracts import Dataset
from brinell.core.criterion import MISCLASSIFIED, Criterion, Probability, Threshold
from brinell.core.data import Task
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.patches import PatchGrid
from brinell.core.record import Array
from brinell.core.version import VERSION
from brinell.engine.cells import content_hash
from brinell.engine.class_counts import check_classes
from brinell.engine.dense_outputs import DenseSubject, check_criterion, open_subject
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import TRIAL_SAMPLES, choose_device, model_facts, model_opener, unreadable_samples
from brinell.engine.selection import Selection, choose_samples
from brinell.engine.sources import open_data
from brinell.engine.thresholds import check_threshold, parse_threshold
from brinell.rlab.variants import Variant
from brinell.studies.benchmark.records import LAYOUT, Form
from brinell.studies.benchmark.request import BenchmarkRequest

PART_SAMPLES = 128
"""Largest number of samples in a part."""
MAX_LEVELS = 1000
"""Largest number of levels of a set."""
PART_BYTES = 16 * 2**20
"""Largest size of the clean inputs of a part, in bytes; levels and search need about ten times as much memory."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan:
    """All that determines the content of a benchmark set."""

    request: BenchmarkRequest
    dataset: Dataset
    data_digest: str
    model: Model
    facts: dict[str, Any]
    selection: Selection
    """The samples that the request selects."""
    ids: Array
    """(n,) int64 positions in the data of the readable samples, ascending."""
    labels: Array
    """(n,) int64 true classes."""
    attack: RLAB
    grid: PatchGrid
    variants: tuple[Variant, ...]
    criterion: Callable[[Sequence[int]], Criterion]
    """The criterion of some samples, by their positions in the data."""
    criterion_settings: dict[str, Any]
    """Thresholds of the criterion and its text; None for those that it does not have."""
    task: Task | None
    """Kind of the truth, masks or boxes; None for one class for each input."""
    levels: tuple[float, ...]
    """Multiples of the L2 distance of the adversarial example, ascending from 1."""
    eps: float | None
    training_queries: int | None
    device: torch.device
    unreadable: Mapping[int, str]
    """Samples whose input cannot be read, with the reason; `ids` does not contain them."""

    @property
    def form(self) -> Form:
        """The format of inputs."""
        domain = self.dataset.domain
        return Form(domain.kind, domain.shape, domain.low, domain.high, self.dataset.classes, self.task)

    @property
    def part_size(self) -> int:
        """Number of samples in a part."""
        return max(1, min(PART_SAMPLES, PART_BYTES // (4 * math.prod(self.dataset.domain.shape))))

    @property
    def parts(self) -> int:
        """Number of parts."""
        return math.ceil(len(self.ids) / self.part_size)

    @property
    def distortions(self) -> dict[int, str]:
        """Spec of each distortion, by the identity of the object."""
        return {
            id(distortion): text.strip()
            for distortion, text in zip(self.attack.distortions, self.request.distortions.split("+"), strict=True)
        }

    @property
    def cell(self) -> str:
        """Hash of all that the content depends on."""
        domain = self.dataset.domain
        return content_hash(
            format=LAYOUT.version,
            brinell=VERSION,
            model=self.facts["digest"],
            data=self.data_digest,
            samples=len(self.ids),
            **({} if self.selection.method in ("all", "first") else {"ids": self.ids.tolist()}),
            domain=list(domain.to_json().values()),
            attack=plugins.settings_of(self.attack),
            criterion=self.criterion_settings,
            levels=self.levels,
            eps=self.eps,
            seed=self.request.seed,
            part=self.part_size,
        )


def make_plan(request: BenchmarkRequest, *, dataset: Dataset | None = None, model: Model | None = None) -> BenchmarkPlan:
    """Resolve a request, and check that it fits before any query.

    Args:
        request: the settings.
        dataset: data in memory, which replace `request.data`.
        model: a model in memory, which replaces `request.model`.

    Raises:
        RequestError: a setting that does not fit.
        ContractError: a distortion that breaks its contract.
    """
    levels, eps = parse_levels(request.levels), _parse_cap(request.eps)
    settings = {name: getattr(request, name) for name in ("distortions", "policy", "patch", "stride", "steps", "refine")}
    attack: RLAB = plugins.build("attack", "rlab", settings)
    device = choose_device(request.device)
    dataset = open_data(request.data, truth=True) if dataset is None else dataset
    threshold = _parse_criterion(request, dataset)
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    selection = choose_samples(request, dataset)
    unreadable = unreadable_samples(dataset, selection.ids.tolist())
    ids = np.array([sample for sample in selection.ids.tolist() if sample not in unreadable], dtype=np.int64)
    domain = dataset.domain.free
    grid, variants = attack.grid(domain), attack.variants(domain)
    if attack.access > Access.SCORES:
        raise RequestError("a benchmark set uses only scores: leave out distortions that need gradients, such as gradient-sign")
    attack.try_on(dataset.domain.part(dataset.load(ids[:: max(1, len(ids) // TRIAL_SAMPLES)][:TRIAL_SAMPLES].tolist())), domain)
    model = model_opener(request.model, dataset)() if model is None else model
    truth, subject = dataset.info.truth, None
    check_classes(model, labels[ids], dataset if truth else None)
    if truth is not None:
        subject = open_subject(dataset, model, request.criterion, ids[:1].tolist(), device)
        model, unreadable = subject.model, dict(unreadable) | subject.hopeless(ids.tolist())
        ids = np.array([sample for sample in ids.tolist() if sample not in unreadable], dtype=np.int64)
        if not len(ids):
            raise RequestError(f"no picture has what {subject.text} counts: choose another {option('criterion')} or other data")
    facts = {"name": model.name} | model_facts(model)
    if model.access < Access.SCORES:
        raise RequestError(
            f"model {model.name} answers {model.access.name.lower()} only, but the agent needs scores: choose a model that "
            "answers logits"
        )
    if threshold is not None:
        check_threshold(threshold, model.name, facts["classes"], facts["access"])
    if subject is not None:
        subject.criterion(ids[:1].tolist()).check(model.classes)
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
        criterion=(lambda samples: _class_criterion(threshold)) if subject is None else subject.criterion,
        criterion_settings=_describe_criterion(threshold, subject),
        task=None if truth is None else truth.task,
        levels=levels,
        eps=eps,
        training_queries=_count_training_queries(metadata) if (metadata := attack.agent(domain.kind).about) else 0,
        device=device,
        unreadable=unreadable,
    )


def parse_levels(text: str) -> tuple[float, ...]:
    """Parse multiples of the distance of the adversarial example; returns them ascending, always with 1.

    Raises:
        RequestError: a multiple is not a number, below 1, or not finite.
    """
    levels = {1.0}
    if text.count(",") >= MAX_LEVELS:
        raise RequestError(f"levels has more than {MAX_LEVELS} values: leave some out")
    for field in text.split(","):
        try:
            value = float(field)
        except ValueError:
            raise RequestError(
                f"level {field.strip()!r} is not a number: write multiples of the adversarial example's L2, such as 1,2,4"
            ) from None
        if not 1 <= value < math.inf:
            raise RequestError(
                f"level {field.strip()!r} is not possible: a level is a multiple of the adversarial example's L2 and at least 1"
            )
        levels.add(value)
    return tuple(sorted(levels))


def _parse_cap(eps: str | None) -> float | None:
    """Largest L2 distance of a request; None for no limit."""
    if eps is None:
        return None
    values = parse_eps(eps).values
    if len(values) != 1 or not values[0] > 0:
        raise RequestError(
            f"eps is {eps!r}: a benchmark set has one cap on the L2 distance, above 0: give a single value, or leave it out"
        )
    return values[0]


def _parse_criterion(request: BenchmarkRequest, dataset: Dataset) -> Threshold | None:
    """The threshold that a request names for classes; None for misclassification, and for masks and boxes.

    Raises:
        RequestError: the data do not have such a criterion.
    """
    if dataset.info.truth is None:
        return parse_threshold(request.criterion, dataset.classes)
    check_criterion(request.criterion, dataset)
    return None


def _describe_criterion(threshold: Threshold | None, subject: DenseSubject | None) -> dict[str, Any]:
    """The criterion as the manifest holds it."""
    settings = {} if threshold is None else threshold.describe()
    thresholds = {name: settings.get(name) for name in ("true_below", "wrong_class", "wrong_above")}
    return thresholds | {"text": settings.get("text") if subject is None else subject.text}


def _class_criterion(threshold: Threshold | None) -> Criterion:
    """The criterion of classes, under which the agent sees the model's own answers, which the rows hold."""
    if threshold is None:
        return MISCLASSIFIED
    return Probability(true_below=threshold.true_below, wrong_class=threshold.wrong_class, wrong_above=threshold.wrong_above)


def _count_training_queries(metadata: dict[str, Any]) -> int | None:
    """Forwards of a policy's training according to its file; None if the file does not record them."""
    queries = metadata.get("training_queries")
    if isinstance(queries, dict):
        return sum(int(value) for value in queries.values())
    return None if queries is None else int(queries)
