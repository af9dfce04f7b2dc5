"""Makes or reads each source's examples, and evaluates every model on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.attack import attack
from brinell.core.contracts import ChoosesData, Dataset
from brinell.core.criterion import MISCLASSIFIED, Criterion, Worst
from brinell.core.errors import RequestError, option
from brinell.core.norms import l2, linf
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat
from brinell.core.user_files import user_path
from brinell.datasets.bench import Bench, manifest_of, pairs_of
from brinell.engine.cascade import Stage, build_stages
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import check_names, model_facts, open_distance, skip_reason, usual_eps
from brinell.engine.sources import open_data
from brinell.engine.surrogates import mean_of
from brinell.store import rows
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import MANIFEST, verb_of
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.transfer import DIGITS, TransferRequest
from brinell.studies.transfer.result import shortfalls
from brinell.studies.transfer.rows import (
    SLICE,
    ExampleRows,
    SourceFacts,
    TransferFacts,
    example_file,
)
from brinell.studies.work import check_alike, classes, open_plan

USUAL = "mi-fgsm"
"""The attack if nobody names one."""


@dataclass(frozen=True, kw_only=True)
class TransferPlan(Plan):
    """A resolved transfer."""

    request: TransferRequest
    distance: Distance
    stage: Stage | None
    """The attack; None if no source is made here."""
    facts: TransferFacts


def data_of(settings: Mapping[str, Any], trust: Path | None) -> str:
    """The data of models in memory: the clean inputs of the first benchmark set, or digits."""
    source = settings.get("source", ())
    names = (source,) if isinstance(source, str) else source
    sets = [text for text in names if (Path(text) / MANIFEST).exists()]
    return f"bench:{sets[0]}?level=clean" if sets else "digits"


def make_plan(call: Call) -> TransferPlan:
    """Resolve a request; no model is queried."""
    request: TransferRequest = call.request
    if request.criterion is not None:
        raise RequestError(
            f"{option('criterion')} is for masks and boxes, and these data have "
            "classes: leave it out"
        )
    sets = [text for text in request.source if (Path(text) / MANIFEST).exists()]
    dataset = _open_dataset(request, call, sets)
    specs = request.model or (() if call.models() else DIGITS)
    if not request.model and not call.models() and dataset.domain.shape != (1, 8, 8):
        raise RequestError(
            f"a transfer over {dataset.name} needs models: name them with {option('model')}"
        )
    request_of_plan = request.model_copy(update={"model": specs})
    plan = open_plan(replace(call, datasets={"data": dataset}, request=request_of_plan))

    distance = open_distance(request.norm)
    digests = {name: model_facts(model)["digest"] for name, model in plan.models.items()}
    sources = _sources(request, sets, digests, len(plan.ids))
    for folder in dict.fromkeys(source.folder for source in sources if source.folder is not None):
        check_alike(Bench(path=folder, level="clean")(), dataset)
    members = [name for source in sources if source.folder is None for name in source.members]
    stage = _attack_stage(request, plan, distance, members) if members else None
    eps, eps_text = _budget(request, dataset)
    for sentence in shortfalls(sources, list(plan.models), len(plan.ids)):
        call.progress.note(sentence)

    facts = TransferFacts(
        eps=eps,
        eps_text=eps_text,
        attack=None if stage is None else stage.name,
        sources=sources,
        # Models in memory have no specs, and nothing is known of their training; `zip` ends there.
        hardened=[
            name
            for name, spec in zip(plan.models, () if call.models() else specs, strict=False)
            if is_hardened(spec)
        ],
    )
    identity = {
        "stage": None if stage is None else [stage.name, stage.plugin, stage.settings(), stage.eot]
    }
    fields = vars(plan) | {"facts": facts, "identity": identity}
    return TransferPlan(**fields, request=request, distance=distance, stage=stage)


def _open_dataset(request: TransferRequest, call: Call, sets: Sequence[str]) -> Dataset:
    """The data in memory, else those that are named, else the clean inputs of the first set."""
    dataset = call.dataset()
    if dataset is not None:
        return dataset
    if request.data is None and sets:
        return Bench(path=sets[0], level="clean")()
    return open_data(request.data or "digits")


def _budget(request: TransferRequest, dataset: Dataset) -> tuple[float, str]:
    """The budget of the examples, and how it was written; by default the largest usual one."""
    budgets = parse_eps(request.eps or usual_eps(dataset.domain, request.norm))
    if request.eps is not None and len(budgets.values) != 1:
        raise RequestError(
            f"eps is {request.eps}, but a transfer has one budget: write for example 8/255"
        )
    eps = float(budgets.values[-1])
    if not eps > 0:
        raise RequestError("eps is 0: examples at budget 0 are the clean inputs; pass a larger eps")
    return eps, budgets.texts[-1]


def is_hardened(spec: str) -> bool:
    """True if the weights of a model are of a folder of `brinell harden`."""
    weights = plugins.parse(spec).options.get("weights", "")
    return bool(weights) and verb_of(user_path(weights).parent) == "harden"


def _sources(
    request: TransferRequest, sets: Sequence[str], digests: Mapping[str, str], samples: int
) -> list[SourceFacts]:
    """The sources of the matrix: models and sets.

    Digests of the models by name tell retrained models of one name apart.
    """
    sources: list[SourceFacts] = []
    for text in request.source or tuple(digests):
        if text in sets:
            sources += _set_sources(Path(text), digests)
            continue
        members = [part.strip() for part in text.split("+")]
        if unknown := [member for member in members if member not in digests]:
            raise RequestError(
                f"source {unknown[0]!r} is neither a model named with "
                f"{option('model')} nor the folder of a benchmark "
                f"set: the models are {', '.join(digests)}"
            )
        # Another name for the same weights is no other model: its cell is a white-box one, too.
        same = {digests[name] for name in members}
        white_box = [name for name, digest in digests.items() if digest in same]
        sources.append(
            SourceFacts(
                name="+".join(members), members=members, white_box=white_box, samples=samples
            )
        )

    check_names([source.name for source in sources])
    return sources


def _set_sources(folder: Path, digests: Mapping[str, str]) -> list[SourceFacts]:
    """The levels of a benchmark set.

    Its model is found by name too: the domain, which differs, is part of a digest.
    """
    manifest = manifest_of(folder)
    (model,) = manifest["models"]
    samples = len(Bench(path=str(folder), level="clean")().labels())

    return [
        SourceFacts(
            name=f"{folder.name} x{level:g}",
            members=[str(model["name"])],
            white_box=[
                name
                for name, digest in digests.items()
                if digest == model["digest"] or name == model["name"]
            ],
            samples=samples,
            folder=str(folder),
            level=float(level),
        )
        for level in manifest["facts"]["levels"]
        if level > 0
    ]


def _attack_stage(
    request: TransferRequest, plan: Plan, distance: Distance, members: Sequence[str]
) -> Stage:
    """The attack on all members of sources; refuses one that does not fit them."""
    # A cascade gives later attacks what earlier ones left, so its examples are of no one attack.
    stages = build_stages((request.attack or USUAL,))
    if len(stages) != 1 or stages[0].waits:
        raise RequestError(
            f"attack is {request.attack}, which is a cascade: name one attack, "
            "for example mi-fgsm or apgd-ce"
        )

    (stage,) = stages
    for name in dict.fromkeys(members):
        if reason := skip_reason(stage, plan.models[name], distance):
            raise RequestError(
                f"{stage.name} cannot attack {name}: {reason}; name another "
                "attack, or sources without this model"
            )
    if isinstance(distance, ChoosesData):
        distance.check(plan.dataset.domain)

    if isinstance(stage.attack, ChoosesData):
        stage.attack.check(plan.dataset.domain.free)
    return stage


def pieces(plan: TransferPlan, call: Call) -> list[Piece]:
    """Slices of the examples of each source made here, then the answers of each model to all
    sources.
    """
    # Slices, so that a run that is stopped loses one slice at most.
    making = [
        Piece(
            name=f"source {number + 1} of {len(plan.facts.sources)}: {source.name}, "
            f"samples from {start + 1}",
            make=partial(_make_examples, plan, number, start),
            files=(example_file(number, start),),
        )
        for number, source in enumerate(plan.facts.sources)
        if source.folder is None
        for start in range(0, len(plan.ids), SLICE)
    ]

    needs = tuple(piece.name for piece in making)
    return [
        *making,
        *(
            Piece(name=f"answers of {model}", make=partial(_evaluate, plan, model), needs=needs)
            for model in plan.models
        ),
    ]


def _make_examples(plan: TransferPlan, number: int, start: int) -> None:
    """Attack a slice of the samples, and store the strongest input within eps for each of them.

    The strongest input has the largest margin; a minimal attack gives the closest adversarial
    example if it finds one. Several members of a source are attacked as one, by the mean of their
    logits.
    """
    assert plan.stage is not None
    rows = slice(start, start + SLICE)
    model = mean_of([plan.models[name] for name in plan.facts.sources[number].members])
    clean = plan.dataset.load(plan.ids[rows].tolist()).to(plan.device)
    is_minimal = plan.stage.attack.family == "minimal"
    criterion: Criterion = MISCLASSIFIED if is_minimal else Worst(MISCLASSIFIED)
    eps = torch.full((len(clean),), plan.facts.eps, device=plan.device)
    streams = Streams.of(plan.request.seed, torch.as_tensor(plan.ids[rows], device=plan.device))

    ledger, _ = attack(
        model,
        Batch.of(clean, torch.as_tensor(plan.labels[rows], device=plan.device)),
        Threat(distance=plan.distance, eps=eps, domain=plan.dataset.domain, criterion=criterion),
        plan.stage.attack,
        streams.fold(plan.stage.name),
        batch_size=plan.request.batch_size,
        eot=plan.stage.eot,
        strongest=True,
    )

    costs = {
        name: getattr(ledger.costs, name).cpu().numpy().astype(np.int64)
        for name in ("forwards", "backwards")
    }
    arrays = {"x": ledger.strongest.cpu().numpy(), **costs}
    # The page draws clean inputs from the files of the first source that is made here.
    if all(source.folder is not None for source in plan.facts.sources[:number]):
        arrays["clean"] = clean.cpu().numpy()
    write_arrays(plan.folder / example_file(number, start), arrays)


def _evaluate(plan: TransferPlan, name: str) -> ExampleRows:
    """Rows of a model: its answers to the examples of each source and, once, to their
    clean inputs.
    """
    model = plan.models[name]
    size = plan.request.batch_size
    parts = []
    clean_pred: dict[str | None, Array] = {}
    for number, source in enumerate(plan.facts.sources):
        clean, labels, kept, x, costs = (
            _made(plan, number) if source.folder is None else read_set(source)
        )
        # Sources on the same samples share the answers to the clean inputs.
        if source.folder not in clean_pred:
            clean_pred[source.folder] = classes(model, clean.to(plan.device), size)
        change = x - clean[kept]

        parts.append(
            rows.build(
                ExampleRows,
                len(kept),
                source=source.name,
                model=name,
                sample_id=plan.ids if source.folder is None else kept,
                label=labels[kept],
                linf=linf(change).numpy(),
                l2=l2(change).numpy(),
                clean_pred=clean_pred[source.folder][kept],
                pred=classes(model, x.to(plan.device), size),
                **costs,
            )
        )
    return rows.concatenate(parts)


Examples = tuple[Tensor, Array, Array, Tensor, Mapping[str, Array | int]]
"""Clean inputs (n, *shape) and their labels (n,), the positions (k,) of those with an example,
the examples (k, *shape), and the forward and backward evaluations that they cost."""


def _made(plan: TransferPlan, number: int) -> Examples:
    """The examples of a source that was made here, from the files of its slices."""
    arrays = [
        read_arrays(plan.folder / example_file(number, start))
        for start in range(0, len(plan.ids), SLICE)
    ]
    x = np.concatenate([part["x"] for part in arrays])
    forwards = np.concatenate([part["forwards"] for part in arrays])
    backwards = np.concatenate([part["backwards"] for part in arrays])
    costs = {"forwards": forwards, "backwards": backwards}

    return (
        plan.dataset.load(plan.ids.tolist()),
        plan.labels,
        np.arange(len(plan.ids)),
        torch.as_tensor(x),
        costs,
    )


def read_set(source: SourceFacts) -> Examples:
    """The adversarial examples of a benchmark set at the level of the source."""
    assert source.folder is not None and source.level is not None
    pairs = pairs_of(Path(source.folder), source.level)
    if not pairs:
        raise RequestError(
            f"{source.folder} holds no input at level {source.level:g} with a "
            "clean counterpart: create the set again"
        )
    # At multiple 1 of the distance a set calls its inputs adversarial.
    level = "adversarial" if source.level == 1 else f"{source.level:g}"
    clean = Bench(path=source.folder, level="clean")()
    changed = Bench(path=source.folder, level=level)()
    kept = np.array([position for position, _ in pairs], dtype=np.int64)
    places = [place for _, place in pairs]
    inputs = clean.load(list(range(len(clean))))
    return (
        inputs,
        np.asarray(clean.labels()),
        kept,
        changed.load(places),
        {"forwards": 0, "backwards": 0},
    )
