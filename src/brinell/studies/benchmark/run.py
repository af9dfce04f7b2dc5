"""Plans a benchmark set, refusing requests that do not fit before any query, and makes it piece by
piece.

rows.parquet                             a row for each sample, also without an adversarial example
data/test-00000-of-00005.parquet         a row for each sample and level, pictures in 8 bits
arrays/test-00000-of-00005.safetensors   "<sample_id>/<level>/input" float32,
                                         "<sample_id>/<level>/mask" bool,
                                         "<sample_id>/way" float32: how the agent came to the
                                         example (`core.record.WAY`), and for masks
and boxes "<sample_id>/truth": uint8 classes, 255 for none, or float64 rows of
x0, y0, x1, y1, class, 1 for a crowd
README.md                                the data card of the Hugging Face hub
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import torch

from brinell import plugins
from brinell.attacks.rlab import RLAB, public_names
from brinell.core.criterion import Probability, WrittenProbability
from brinell.core.data import DenseTask
from brinell.core.errors import RequestError, option
from brinell.core.model import Access
from brinell.core.record import Array
from brinell.core.threat import Threat, extent
from brinell.engine.criteria import check_threshold, parse_threshold
from brinell.engine.eps_grid import parse_budget
from brinell.engine.plan import TRIAL_SAMPLES, model_facts
from brinell.rlab.agent import choose_policy
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.studies.benchmark import BenchmarkRequest
from brinell.studies.benchmark.result import BenchmarkFacts
from brinell.studies.benchmark.rows import BenchmarkRows, Form, arrays_file, data_file
from brinell.studies.benchmark.search import BenchmarkPlan, BenchmarkSearch
from brinell.studies.kit import Call, Piece
from brinell.studies.tasks import open_task
from brinell.studies.work import open_plan

PIECE_SAMPLES = 64
"""Largest number of samples in a piece."""
PIECE_BYTES = 16 * 2**20
"""Largest size of the clean inputs of a piece, in bytes; levels and search need about ten times
as much memory."""
MAX_LEVELS = 1000
"""Largest number of levels of a set."""


def make_plan(call: Call) -> BenchmarkPlan:
    """Resolve a request, and check that it fits before any query."""
    request: BenchmarkRequest = call.request
    levels = parse_levels(request.levels)
    eps = None if request.eps is None else parse_budget(request.eps)
    attack = _open_attack(request)
    audit_plan = open_plan(call, truth=True)
    dataset = audit_plan.dataset
    (model,) = audit_plan.models.values()
    truth = dataset.info.truth
    task: Any = None if truth is None else truth.task
    if task is not None and task not in get_args(DenseTask):
        raise RequestError(
            f"a benchmark set holds classes, masks or boxes, and {dataset.name} has the truth of "
            f"{task}: audit it"
        )

    # An attack places distortions on the values that may change.
    domain = dataset.domain.free
    grid = attack.grid(domain)
    policy = choose_policy(request.policy, domain.kind)
    shapes = (" x ".join(map(str, numbers)) for numbers in (grid.lattice, grid.patch))
    training = (attack.agent(domain.kind).about or {}).get("training_queries", {})
    facts = BenchmarkFacts(
        levels=levels,
        criterion="the model is wrong",
        task=task,
        patches=f"{' patches of '.join(shapes)} values",
        policy=f"{policy.name} ({policy.reason})",
        training_queries=sum(training.values()),
    )
    common: dict[str, Any] = vars(audit_plan) | {
        "facts": facts,
        "identity": {"attack": plugins.settings_of(attack)},
    }
    plan = BenchmarkPlan(
        **common,
        request=request,
        attack=attack,
        grid=grid,
        variants=attack.variants(domain),
        names=public_names(attack.placed(domain)),
        form=Form(dataset.domain, dataset.classes, task),
        eps=eps,
    )
    plan = _with_class_criterion(plan) if truth is None else _with_dense_criterion(plan)

    # The attack is tried on a few samples: what it cannot do shows before the first query.
    for line in _try_attack(plan, audit_plan.ids):
        call.progress.note(line)
    if model.access < Access.SCORES:
        raise RequestError(
            f"model {model.name} answers {model.access.name.lower()} only, but "
            "the agent needs scores: choose a model that "
            "answers logits"
        )
    call.say_samples(plan)
    return plan


def _open_attack(request: BenchmarkRequest) -> RLAB:
    """The attack of a request; the default distortions are those of the attack itself."""
    settings = {
        name: getattr(request, name)
        for name in ("distortions", "policy", "patch", "steps", "refine")
    }
    if request.distortions == "default":
        del settings["distortions"]
    attack: RLAB = plugins.build("attack", "rlab", settings)
    return attack


def _try_attack(plan: BenchmarkPlan, ids: Array) -> list[str]:
    """The remarks of the attack on a few samples, spread over all of them."""
    domain = plan.dataset.domain
    trial = ids[:: max(1, len(ids) // TRIAL_SAMPLES)][:TRIAL_SAMPLES]
    x = domain.part(plan.dataset.load(trial.tolist()))
    distance = plugins.build("distance", "l2")
    # Without a cap every input within the bounds is allowed.
    eps = torch.full((len(x),), plan.eps or extent(distance, domain.free))
    threat = Threat(distance=distance, eps=eps, domain=domain.free)
    return plan.attack.try_on(x, threat)


def _with_class_criterion(plan: BenchmarkPlan) -> BenchmarkPlan:
    """The plan with the criterion of classes, under which the agent sees the model's own answers,
    which the rows hold.
    """
    (model,) = plan.models.values()
    classes = plan.dataset.classes
    threshold = parse_threshold(plan.request.criterion, classes)
    if threshold is None:
        return plan
    if not isinstance(threshold, WrittenProbability):
        raise RequestError(
            f"criterion {threshold.text} is for brinell audit: name a threshold "
            "on a probability, or leave it out"
        )

    facts = model_facts(model)
    check_threshold(threshold, model.name, facts["classes"], facts["access"])
    if (wrong := threshold.wrong_class) is None:
        text = (
            "the model is wrong, and the probability of the true class falls below "
            f"{threshold.true_below:g}"
        )
    else:
        name = classes[wrong] if wrong < len(classes) else str(wrong)
        text = (
            f"the probability of class {name}, which is not the true one, exceeds "
            f"{threshold.wrong_above:g}"
        )

    criterion = Probability(
        true_below=threshold.true_below,
        wrong_class=threshold.wrong_class,
        wrong_above=threshold.wrong_above,
    )
    return replace(
        plan,
        criterion=lambda samples: criterion,
        wrong_class=threshold.wrong_class,
        facts=plan.facts.model_copy(update={"criterion": text}),
    )


def _with_dense_criterion(plan: BenchmarkPlan) -> BenchmarkPlan:
    """The plan with the criterion of masks or boxes, the model fitted to them, and the samples that
    can meet it.
    """
    (model,) = plan.models.values()
    dataset = plan.dataset
    task = open_task(dataset, model, plan.request.criterion, plan.ids[:1].tolist(), plan.device)

    # Nothing is searched for a picture that has nothing of what the criterion counts.
    hopeless = task.hopeless(plan.ids.tolist())
    eligible = np.array([sample not in hopeless for sample in plan.ids.tolist()], dtype=bool)
    if not eligible.any():
        raise RequestError(
            f"no picture has what {task.text} counts: choose another "
            f"{option('criterion')} or other data"
        )

    # One sample is enough to see whether the criterion fits the model.
    task.criterion(plan.ids[eligible][:1].tolist()).check(task.model.classes)
    return replace(
        plan,
        models={task.model.name: task.model},
        ids=plan.ids[eligible],
        labels=plan.labels[eligible],
        criterion=task.criterion,
        task=task,
        facts=plan.facts.model_copy(update={"criterion": f"the criterion {task.text} is met"}),
    )


def parse_levels(text: str) -> list[float]:
    """Multiples of the distance of the adversarial example, at least 1, ascending,
    always with 1.
    """
    try:
        levels = sorted({1.0, *map(float, text.split(","))})
    except ValueError:
        levels = [math.nan]
    if not all(1 <= level < math.inf for level in levels) or len(levels) > MAX_LEVELS:
        raise RequestError(
            f"levels is {text!r}: write multiples of the adversarial example's "
            "L2, at least 1, such as 1,2,4"
        )
    return levels


def pieces(plan: BenchmarkPlan, call: Call) -> list[Piece]:
    """Some samples each."""
    call.progress.note(
        f"at most {len(plan.ids) * plan.request.steps:,} queries, "
        f"{plan.request.steps:,} for each sample"
    )

    # A piece is at most so many samples and so many bytes of float32: a file of data/ holds its
    # inputs.
    size = max(1, min(PIECE_SAMPLES, PIECE_BYTES // (4 * math.prod(plan.form.domain.shape))))
    starts = range(0, len(plan.ids), size)
    return [
        Piece(
            name=f"samples {start + 1} to {min(start + size, len(plan.ids))} of {len(plan.ids)}",
            make=partial(_make, plan, call, slice(start, start + size), number, len(starts)),
            files=(data_file(number, len(starts)), arrays_file(number, len(starts))),
        )
        for number, start in enumerate(starts)
    ]


def _make(plan: BenchmarkPlan, call: Call, span: slice, number: int, total: int) -> BenchmarkRows:
    """Make some samples, and write their files."""
    search = BenchmarkSearch(plan, span, call.progress)
    write_arrays(plan.folder / arrays_file(number, total), search.arrays)
    plan.form.write(plan.folder / data_file(number, total), search.rows)
    return rows.build(BenchmarkRows, len(search.ids), **search.samples)
