"""Carries out studies of the kit: opens what they name, begins or resumes, writes rows and page.

`kit` names this module and does not import it, since it needs torch.
"""

import itertools
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell.core import bounded
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, StoppedError, TimeUpError, option
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.version import VERSION
from brinell.engine import fit, provenance
from brinell.engine.answers import all_with_logits
from brinell.engine.class_counts import check_classes
from brinell.engine.executor import Channel
from brinell.engine.group_attack import predict
from brinell.engine.piece import Pieces
from brinell.engine.plan import (
    check_names,
    choose_device,
    model_facts,
    model_opener,
    unreadable_samples,
)
from brinell.engine.request import BaseRequest, FitOptions, count_samples
from brinell.engine.selection import Select, Selection, choose_samples
from brinell.engine.sources import open_data
from brinell.engine.time_limit import TimeLimit
from brinell.reports.numbers import counted, listed
from brinell.store import rows
from brinell.store.folder import MANIFEST, PAGE
from brinell.store.parts import PieceResult
from brinell.store.table import FolderTable
from brinell.studies.job import Job, filled
from brinell.studies.kit import Call, Piece, Plan, Study
from brinell.studies.pieces import Driver, ServedDriver, as_cut


def open_plan(
    call: Call,
    *,
    truth: bool = False,
    usual_samples: int | str | None = None,
    usual_method: Select = "stratified",
    more_models: Sequence[str] = (),
) -> Plan:
    """A plan over the samples and models that a call gives or names.

    Args:
        call: its request has data; model and device are optional, samples too, without which
            all are taken; seed is 0 where there is none.
        truth: whether the study understands data with masks or boxes.
        usual_samples: number of samples where the request names none, or all; by default 1000.
        usual_method: how samples of data that are no published test set are selected where the
            request does not say.
        more_models: settings that name the further models of the plan.
    """
    request = call.request
    if (dataset := call.dataset(truth=truth)) is None and request.data is None:
        raise RequestError(f"no data are named: add {option('data')}")

    dataset = dataset or open_data(request.data, truth=truth)
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    models = _open_models(call, "model", dataset, labels)
    further = {setting: _open_models(call, setting, dataset, labels) for setting in more_models}
    if not hasattr(request, "samples"):
        selection = Selection(ids=np.arange(len(labels), dtype=np.int64), method="all")
    else:
        if request.samples is None and usual_samples is not None:
            request = request.model_copy(
                update={"samples": count_samples(usual_samples, len(dataset))}
            )
        seed = getattr(request, "seed", 0)
        selection = choose_samples(request.samples, seed, dataset, default=usual_method)

    unreadable = unreadable_samples(dataset, selection.ids.tolist())
    for sample, reason in unreadable.items():
        call.progress.warn(f"sample {sample} is left out: {reason}")
    ids = np.array(
        [sample for sample in selection.ids.tolist() if sample not in unreadable], dtype=np.int64
    )

    return Plan(
        dataset=dataset,
        selection=selection,
        ids=ids,
        labels=labels[ids],
        models=models,
        more_models={
            f"{setting} {name}": model
            for setting, group in further.items()
            for name, model in group.items()
        },
        device=choose_device(getattr(request, "device", "cpu")),
    )


def _open_models(call: Call, setting: str, dataset: Dataset, labels: Array) -> dict[str, Model]:
    """The models of a setting by name, checked against the data."""
    specs = getattr(call.request, setting, None) or ()
    specs = (specs,) if isinstance(specs, str) else specs
    models = call.models(setting) or tuple(model_opener(spec, dataset)() for spec in specs)
    for model in models:
        check_classes(model, labels, dataset)
    check_names([model.name for model in models])
    return {model.name: model for model in models}


def check_alike(first: Dataset, second: Dataset) -> None:
    """Refuse two data sets whose inputs differ in kind, shape or bounds, or that have other
    classes, or in another order.
    """
    forms = [
        (
            data.domain.kind,
            data.domain.shape,
            data.domain.low,
            data.domain.high,
            tuple(data.classes),
        )
        for data in (first, second)
    ]
    if forms[0] != forms[1]:
        one, other = (
            f"{kind}s of shape {shape} from {low} to {high} in "
            f"{counted(len(names), 'class', 'classes')} ({listed(list(names))})"
            for kind, shape, low, high, names in forms
        )

        raise RequestError(
            f"{first.name} has {one}, but {second.name} has {other}: both need "
            "inputs of one form and "
            "the same classes in one order"
        )


def classes(model: Model, x: torch.Tensor, batch_size: int) -> Array:
    """(n,) int64: the class that a model predicts for each input."""
    predicted: Array = predict(model, x, batch_size).argmax(1).cpu().numpy()
    return predicted


def carry_out(call: Call, pieces_of: Callable[[Any, Call], Sequence[Piece]] | None = None) -> Any:
    """Compute what a folder lacks, and write its rows, its manifest and its page.

    Returns:
        The result, summarised from the records.

    Raises:
        RequestError: what cannot be carried out, or another request in the folder.
        StoppedError: the folder cannot be written.
    """
    study, request = call.study, call.request
    plan: Plan = (study.function("make_plan") or open_plan)(call)
    table: FolderTable[Any] = study.table()
    about = _known_facts(plan, call)
    job = Job(
        table.layout,
        call.folder(about["data"]["spec"]),
        request,
        cell=_hash_of(table, plan, call, about),
        command=call.command,
        ignored=study.ignored,
    )

    pool = call.pool()
    if isinstance(pool, Channel):
        with ExitStack() as stack:
            worker = ServedDriver(job.path, pool)
            ready, _ = _ready(plan, worker, stack)
            pieces = _pieces(study, ready, call, pieces_of)
            worker.serve(pieces.__getitem__)  # it ends with the process

    limit = TimeLimit(getattr(call.options, "minutes", None))
    driver = Driver(job.path, pool, limit)

    def make_pieces() -> Pieces:
        with ExitStack() as stack:  # the models are done with after the last piece
            ready, answer_facts = _ready(plan, driver, stack)
            facts = driver.make_once("fit", partial(_check_fit, ready, call, answer_facts))
            for name, text in facts.get("fit", {}).items():
                call.progress.warn(f"{name}: {text}")

            limit.begin_share(models=1)  # all that is left of the time is for the pieces
            pieces = _pieces(study, ready, call, pieces_of)
            try:
                answers = yield from as_cut(pieces, table.of, call.progress.note)
            except TimeUpError:
                raise StoppedError("the time is up; what was computed is kept") from None
        parts = [answer.rows for answer in answers if answer.rows is not None]
        seconds = float(sum(answer.seconds for answer in answers))
        return PieceResult(rows=rows.concatenate(parts), facts={**facts, "seconds": seconds})

    with filled(job, table, driver, make_pieces(), about, resume=call.resume) as content:
        result = study.summarise(content)
        if not (job.path / PAGE).exists():
            # The page comes last: a full disk may have left a complete folder without one.
            result.write()
    return result


def _known_facts(plan: Plan, call: Call) -> dict[str, Any]:
    """The entries of the manifest that follow from the plan."""
    request = call.request
    groups = {"models": plan.models, "more_models": plan.more_models}
    models = {
        key: [{"name": name, **model_facts(model)} for name, model in group.items()]
        for key, group in groups.items()
    }
    data = provenance.data_facts(
        request.data or plan.dataset.name,
        plan.dataset,
        plan.dataset.digest(),
        len(plan.ids),
        plan.selection.method,
    )
    facts = {} if plan.facts is None else {"facts": plan.facts.model_dump(mode="json")}

    return {
        **provenance.machine_facts(plan.device),
        "data": data,
        **models,
        "derived_from": _named_folders(request, call.study.ignored),
        **plan.about,
        **facts,
    }


def _hash_of(table: FolderTable[Any], plan: Plan, call: Call, about: Mapping[str, Any]) -> str:
    """The hash of all that the rows of a plan depend on."""
    ignored = set(call.study.ignored)
    models = {
        key: [[entry["name"], entry["digest"]] for entry in about[key]]
        for key in ("models", "more_models")
    }
    facts = {"facts": about["facts"]} if "facts" in about else {}

    return provenance.content_hash(
        layout=table.layout.version,
        brinell=VERSION,
        request=call.request.model_dump(mode="json", exclude=ignored),
        data=about["data"]["digest"],
        ids=plan.ids.tolist(),
        models=models,
        identity=plan.identity,
        derived_from=about["derived_from"],
        **facts,
    )


def _pieces(
    study: Study, plan: Plan, call: Call, pieces_of: Callable[[Any, Call], Any] | None
) -> Any:
    """The pieces of a study, or of what stands in for them: a list, or a generator of pieces that
    depend on answers.
    """
    pieces = (pieces_of or study.resolve("run:pieces"))(plan, call)
    return pieces if isinstance(pieces, Generator) else list(pieces)


def _check_fit(plan: Plan, call: Call, answer_facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts about the models' answers with what is wrong with models that the data do not fit,
    with the accuracy that their author states, and with the cost of looking.
    """
    info, options, facts = plan.dataset.info, call.options, dict(answer_facts)
    is_asked = isinstance(options, FitOptions) and info.truth is None
    if not is_asked or info.distorted or not len(plan.ids):
        return facts

    faults, probes = dict[str, str](), dict(facts.get("probes", {}))
    facts |= {} if options.expect is None else {"expect": options.expect}
    batch_size = min(getattr(call.request, "batch_size", 128), 128)
    specs = getattr(call.request, "model", ())
    specs = (specs,) if isinstance(specs, str) else specs
    models = plan.models.items()
    # Models in memory have no specs.
    for (name, model), spec in itertools.zip_longest(models, specs[: len(models)]):
        finding, forwards = fit.check_fit(
            model,
            plan.dataset,
            plan.ids,
            plan.labels,
            plan.device,
            spec=spec or "",
            batch_size=batch_size,
            expect=options.expect,
        )
        cost = probes.get(name, {"forwards": 0, "backwards": 0})
        probes[name] = {**cost, "forwards": cost["forwards"] + forwards}
        # None, a check that decides nothing, is no fault.
        if finding is not None and finding.passed is False:
            faults[name] = finding.text
    return {**facts, "probes": probes, **({"fit": faults} if faults else {})}


def _named_folders(request: BaseRequest, ignored: Collection[str]) -> dict[str, str]:
    """The folders that a request names, outside of ignored settings, each with the digest of its
    manifest.
    """
    values = [getattr(request, name) for name in type(request).model_fields if name not in ignored]
    texts = [
        text
        for value in values
        for text in (value if isinstance(value, tuple) else (value,))
        if isinstance(text, str)
    ]
    folders = {
        text.removeprefix("run:"): Path(text.removeprefix("run:")) / MANIFEST
        for text in texts
        if text
    }
    return {name: bounded.digest(file) for name, file in folders.items() if file.is_file()}


def _ready(plan: Plan, driver: Driver, stack: ExitStack) -> tuple[Plan, Mapping[str, Any]]:
    """The plan with its models on the device and their answers as logits, and the kind of answers
    of each model.
    """
    networks = [*plan.models.items(), *plan.more_models.items()]
    for _, model in networks:
        stack.enter_context(model.info.session(plan.device))

    def recognise() -> dict[str, Any]:
        facts: dict[str, Any] = {}
        all_with_logits(networks, plan.dataset, facts, plan.device)
        return facts

    # The driver finds the kinds of answers once and keeps them as data; workers and resumed runs
    # convert the models by these facts, and ask them nothing.
    answer_facts = driver.make_once("answers", recognise)
    answered = all_with_logits(networks, plan.dataset, dict(answer_facts), plan.device)
    # The further models come after the models, to which the shorter zip ends.
    models = dict(zip(plan.models, answered, strict=False))
    further = dict(zip(plan.more_models, answered[len(models) :], strict=True))
    return replace(plan, models=models, more_models=further, folder=driver.folder), answer_facts
