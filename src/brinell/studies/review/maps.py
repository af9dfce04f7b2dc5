"""Pairs of maps of one input by two methods, from a study of maps.

Methods meet each other equally often, each pair on other inputs as long as there are any; the order
of the pairs and the sides are drawn.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.store import rows
from brinell.studies.explain import STUDY as EXPLAIN
from brinell.studies.explain.result import ExplainResult, ExplainRows, load_arrays
from brinell.studies.review import ReviewRequest
from brinell.studies.review.choices import MEASURES, MethodMeasure, ReviewFacts
from brinell.studies.review.result import Trials

STREAM = 0xB13
"""The number of the random numbers of pairs of maps, another than that of pairs of pictures."""


def pair_maps(
    request: ReviewRequest, dataset: Dataset
) -> tuple[Trials, Mapping[str, Array], ReviewFacts]:
    """Draw pairs of maps; returns them, the arrays that show them, and the measures of
    the methods.
    """
    if request.run is not None:
        raise RequestError(
            f"{option('run')} and {option('maps')} do not go together: changes and maps need a "
            "review each"
        )
    path = Path(str(request.maps))
    content = EXPLAIN.table().read(path)
    if content.manifest["data"]["digest"] != dataset.digest():
        raise RequestError(
            f"{path} was made from other data than {dataset.name}: give the data of the study"
        )
    study: ExplainResult = EXPLAIN.open(path)
    methods = [method.name for method in study.facts.methods]
    if len(methods) < 2:
        raise RequestError(
            f"{path} has maps by {methods[0]} alone: explain with two methods or more"
        )

    trials = _draw_trials(request, content.rows, methods)
    if not len(trials):
        raise RequestError(f"{path} has no sample with two maps that are not constant")

    stored = load_arrays(path, np.unique(trials.sample_id).tolist())
    names = {f"input/{sample}" for sample in trials.sample_id.tolist()}
    for column in (trials.left_method, trials.right_method):
        names |= {
            f"map/{method}/{sample}"
            for method, sample in zip(column, trials.sample_id.tolist(), strict=True)
        }
    return trials, {name: stored[name] for name in sorted(names)}, _facts(study, methods)


def _draw_trials(request: ReviewRequest, measured: ExplainRows, methods: list[str]) -> Trials:
    """The comparisons in the order in which they are shown; none without two maps of a sample."""
    rng = np.random.default_rng(np.random.SeedSequence([request.seed, STREAM]))
    comparisons = [*itertools.islice(_draw(measured, methods, rng), request.trials)]
    samples = np.array([sample for sample, *_ in comparisons], dtype=np.int64)
    pairs = np.array([pair for _, *pair in comparisons], dtype=object).reshape(-1, 2)
    swapped = rng.random(len(pairs)) < 0.5
    pairs[swapped] = pairs[swapped, ::-1]

    first = measured.method == methods[0]
    columns = measured.sample_id[first].tolist(), measured.explained[first].tolist()
    explained = dict(zip(*columns, strict=True))
    trials = rows.build(
        Trials,
        len(samples),
        sample_id=samples,
        label=[explained[sample] for sample in samples.tolist()],
        eps=0.0,
        changed_left=False,
        left_method=pairs[:, 0],
        right_method=pairs[:, 1],
    )
    return rows.take(trials, rng.permutation(len(samples)))


def _draw(
    measured: ExplainRows, methods: list[str], rng: np.random.Generator
) -> Iterator[tuple[int, str, str]]:
    """A sample and two methods, without end of rounds but that of all samples: in each round every
    two methods meet once, and no two methods meet twice on a sample.
    """
    samples = rng.permutation(np.unique(measured.sample_id)).tolist()
    constant = set(
        zip(
            measured.method[measured.blank].tolist(),
            measured.sample_id[measured.blank].tolist(),
            strict=True,
        )
    )

    pairs = [*itertools.combinations(methods, 2)]
    # A step without a common factor leads to every sample, and a round goes on where one ended.
    step = next(k for k in itertools.count(len(pairs)) if math.gcd(k, len(samples)) == 1)

    for shift in range(len(samples)):
        for number in rng.permutation(len(pairs)).tolist():
            first, second = pairs[number]
            sample = samples[(shift * step + number) % len(samples)]
            if not constant & {(first, sample), (second, sample)}:
                yield sample, first, second


def _facts(study: ExplainResult, methods: list[str]) -> ReviewFacts:
    """The measures of the methods."""
    figures = {}
    for method in study.methods:
        means = {key: getattr(method, key) for key in MEASURES}
        figures[method.name] = {
            key: MethodMeasure(value=mean.value, low=mean.low, high=mean.high)
            for key, mean in means.items()
            if mean is not None
        }
    return ReviewFacts(methods={name: figures[name] for name in methods})
