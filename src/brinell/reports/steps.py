"""What to do about the result of an audit: at most three commands, ordered by what they would
change.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brinell.analysis.indicators import not_made
from brinell.analysis.judgements import ENOUGH, lower_end
from brinell.analysis.results import ModelResult, Rate
from brinell.analysis.verdict import BROKEN, UNSTEADY
from brinell.core.checks import DETACHED, TOO_FEW, Code
from brinell.reports.statements import subject_names
from brinell.reports.values import Step

MOST = 3
IN_MEMORY = "in-memory:"
"""Beginning of specs of objects that nobody can name on a command line."""
AGAIN = "brinell audit FOLDER/run.toml"
PER_CLASS = 20
"""Samples of a class that are proposed where there are too few."""
NEED_ANOTHER = (Code.BLACK_BOX, Code.PROBE_AHEAD, Code.INCOMPLETE)
"""Checks that are made where the cascade `fast` runs."""


def next_steps(manifest: Mapping[str, Any], model: ModelResult, index: int) -> list[Step]:
    """What to do about one model of a run.

    Args:
        manifest: the run's.
        model: the figures.
        index: position of the eps at which classes are told apart.
    """
    return list(_steps(manifest, model, index))[:MOST]


def _steps(manifest: Mapping[str, Any], model: ModelResult, index: int) -> Iterator[Step]:
    """All steps that make sense for a model, the one that would change most first."""
    failed = {Code(check.code) for check in model.checks if check.passed is False}
    # As long as figures mean nothing, no further step makes sense.
    if (mending := _mending(model, failed)) is not None:
        yield mending
        return

    yield from _harder_attack(manifest, model, failed)
    yield from _more_samples(manifest, model)
    # Else rates are of inputs that miss a threshold.
    if model.meaning is None:
        yield from _explaining(manifest, model)
        yield from _hardening(manifest, model)
    yield from _gating(manifest, model, index)


def _mending(model: ModelResult, failed: set[Code]) -> Step | None:
    """The step that mends what makes all figures meaningless; None for none."""
    last = model.robust_accuracy[-1]
    if Code.CLEAN in failed:
        return Step(
            "Compare the order of classes and the preparation of inputs with "
            "those of the training, then audit again.",
            AGAIN,
        )
    if last.value is None or last.eps == 0:
        return Step("Name a budget above 0.", f"{AGAIN} --eps 8/255")
    if UNSTEADY.keys() & failed:
        return Step("Mend what the failed checks name, then audit again.", AGAIN)
    return None


def _harder_attack(
    manifest: Mapping[str, Any], model: ModelResult, failed: set[Code]
) -> Iterator[Step]:
    """The attack that may find what the ones of the run did not."""
    missing = not_made(model.checks)
    if Code.RANDOM in failed:
        yield Step(
            "Attack the mean of several answers: the model answers at random.",
            f"{AGAIN} --attack rand",
        )
    # Where no sample is robust, a stronger attack has nothing left to break.
    elif not model.robust_accuracy[-1].k:
        return
    elif DETACHED & failed:
        yield Step(
            "Attack by labels alone: the scores do not lead to the boundary.",
            f"{AGAIN} --attack 'ray-s?steps=100000'",
        )
    elif BROKEN.keys() & failed and _entry(manifest, model)["access"] == "labels":
        yield Step(
            "Attack by labels in another way: the model gives no scores.",
            f"{AGAIN} --attack hop-skip-jump",
        )
    elif BROKEN.keys() & failed:
        yield Step(
            "Attack harder: the failed checks say that attacks were misled.",
            f"{AGAIN} --attack plus",
        )
    elif model.weak or any(check.code in NEED_ANOTHER for check in missing):
        yield Step("Stronger attacks may lower the figure.", f"{AGAIN} --attack fast")


def _more_samples(manifest: Mapping[str, Any], model: ModelResult) -> Iterator[Step]:
    """More samples where they are too few for a check or for the classes, as far as
    there are any.
    """
    total = manifest["data"]["total"]
    most_of_a_class = max((c.n for c in model.per_class), default=ENOUGH)
    is_small = most_of_a_class < ENOUGH or any(
        check.reason == TOO_FEW for check in not_made(model.checks)
    )
    if is_small and model.n < total:
        samples = min(total, max(4 * model.n, PER_CLASS * len(manifest["data"]["classes"])))
        yield Step(
            "The samples are too few to tell classes apart, or for some checks.",
            f"{AGAIN} --samples {samples}",
        )


def _gating(manifest: Mapping[str, Any], model: ModelResult, index: int) -> Iterator[Step]:
    """A gate at the lower end of today's interval, at the budget that the page tells classes apart
    at, or the largest one that has such an end.
    """
    floors = [at for at, rate in enumerate(model.robust_accuracy) if rate.eps > 0 and floor(rate)]
    if not floors:
        return
    at = index if index in floors else floors[-1]
    text = model.eps_text[at]
    name = f" --model {shlex.quote(model.name)}" if len(manifest["models"]) > 1 else ""
    metric = "robust" if model.meaning is None else "unmet"
    yield Step(
        f"Keep later models from falling below today's interval at {text}.",
        f"brinell gate FOLDER{name} --{metric} {floor(model.robust_accuracy[at]):g} --eps {text}",
    )


def _explaining(manifest: Mapping[str, Any], model: ModelResult) -> Iterator[Step]:
    """Explain the class that falls behind: the weakest one, if it is shown to be weaker than half
    of the others or more.
    """
    weakest = [entry for entry in model.statements if entry.kind == "weakest" and entry.supported]
    if not weakest or len(manifest["models"]) > 1:
        return
    if 2 * len(weakest[0].rivals) <= weakest[0].compared:
        place = f"at {weakest[0].eps_text}" if weakest[0].eps_text else "on clean inputs"
        yield Step(
            f"See on what {subject_names(weakest[0])} depends, which falls behind {place}.",
            "brinell explain --run FOLDER",
        )


def _hardening(manifest: Mapping[str, Any], model: ModelResult) -> Iterator[Step]:
    """Harden at the smallest budget at which less than half of the clean accuracy is left."""
    half = (model.clean_accuracy.value or 0.0) / 2
    broken = [
        text
        for rate, text in zip(model.robust_accuracy, model.eps_text, strict=True)
        if rate.eps > 0 and (rate.value or 0.0) < half
    ]
    entry = _entry(manifest, model)
    spec = str(entry["spec"])
    data = str(manifest["data"]["spec"])
    trains = model.distance in ("linf", "l2") and entry["access"] == "gradients"
    # Objects of a Python program cannot be named on a command line.
    if broken and trains and not (spec + data).count(IN_MEMORY):
        norm = "" if model.distance == "linf" else " --norm l2"
        train = " --train TRAINING_DATA" if ":" in data else ""
        command = (
            f"brinell harden --data {shlex.quote(data)}{train} --model "
            f"{shlex.quote(spec)}{norm} --eps {broken[0]}"
        )
        yield Step(
            f"Train the model to be robust at {broken[0]}, where less than half "
            "of its accuracy is left.",
            command,
        )


def _entry(manifest: Mapping[str, Any], model: ModelResult) -> Mapping[str, Any]:
    """The entry of a model in the manifest."""
    entries: Sequence[Mapping[str, Any]] = manifest["models"]
    return next(entry for entry in entries if entry["name"] == model.name)


def floor(rate: Rate) -> float:
    """The lower end of a rate by which a gate judges it, rounded down to whole percent,
    as a share.
    """
    return int(100 * max(0.0, lower_end(rate))) / 100
