"""Checks after the attacks: whether the model is still the one that was audited, and one that
remembers nothing.

A model may count its questions, remember inputs, adapt to them, or fit itself to its first batch;
then attacks meet another model at each step, and each check that repeats a question meets the model
after it saw clean inputs. So weights and early answers are compared with those of the beginning,
and another process (`core.fresh`) opens the model anew and answers inputs like those of the
run in another order: adversarial ones, robust samples, and points near these, where attacks ended.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.checks import Code, Finding
from brinell.core.errors import BatchError, ModelError, RequestError, SampleError, short
from brinell.core.fresh import Facts, FreshProcess
from brinell.core.model import Model
from brinell.core.record import Records
from brinell.engine.consistency import PREREQUISITES
from brinell.engine.context import ANSWER_TOLERANCE, NotMadeError, answer_difference
from brinell.engine.group_attack import predict
from brinell.engine.plan import ModelSource, Plan
from brinell.models._answers import LogitModel
from brinell.models._content import digest_of

INPUTS = 4
"""Largest number of clean inputs, of adversarial ones, and of points near robust samples that a
fresh process is asked about."""
NEAREST = 0.25
"""A point near a robust sample lies at this share of the budget at least, and at the budget at
most."""


CONFIDENCE_TOLERANCE = 1e-3
"""Tolerance of confidences, and of logits as a share of the largest."""
NOT_ATTACKED = "no attack reached an input"
OF_NOISE = "the same input is answered differently each time"
PATIENCE, SLOWER = 60.0, 30.0
"""A new process has so many seconds for its answer, and so many times what the audited model took."""


class Identity(NamedTuple):
    """The digests of a model, and of its weights and buffers alone if it is a torch module."""

    digest: str
    weights: str

    @classmethod
    def of(cls, model: Model) -> "Identity":
        """The identity of a model now."""
        digest = model.digest()
        module = model.info.module
        return cls(digest, digest if module is None else digest_of(module.state_dict()))


@dataclass(kw_only=True)
class AfterContext:
    """The things that the checks after the attacks compare."""

    model: Model
    """The audited model, which has answered everything."""
    beginning: Identity
    """Its identity before the first question."""
    plan: Plan
    source: ModelSource
    batch_size: int
    checks: Mapping[str, Mapping[str, Any]]
    """The findings before the attacks, as the manifest has them."""
    x: Tensor
    """(n, *shape) clean inputs on the CPU."""
    clean: Records
    """Their rows of the clean check."""
    kept: Tensor
    """(m, *shape) inputs like those of the run, on the device: clean, adversarial, and near robust
    samples."""
    fresh: FreshProcess | None
    """A process that has answered nothing; None where none can be made."""
    forwards: int = 0

    def make(self) -> list[Finding]:
        """Make all checks after the attacks."""
        findings = []
        for code, check in AFTER_ATTACKS.items():
            try:
                findings.append(check(self))
            except (NotMadeError, ModelError, RequestError) as error:
                findings.append(Finding.not_made(code, str(error)))
        return findings

    @property
    def limit(self) -> float:
        """The share of the largest logit by which answers may differ: that which the check of drift
        chose for the precision of the model, if it was made.
        """
        return float(self.checks.get(Code.DRIFT, {}).get("limit") or ANSWER_TOLERANCE)

    def ask(self, model: Model, x: Tensor) -> Tensor:
        """Answers (n, classes), counted."""
        self.forwards += len(x)
        return predict(model, x, self.batch_size)


def changed_weights(context: AfterContext) -> Finding:
    """Weights and buffers at the end are those of the beginning."""
    is_unchanged = context.beginning.weights == Identity.of(context.model).weights
    text = "weights and buffers are those of the beginning"
    if not is_unchanged:
        text = (
            "weights or buffers are no longer those of the beginning: the model "
            "learns, or keeps statistics, of what it is "
            "asked, so the attacks met several models; audit it with its state fixed"
        )
    return Finding(code=Code.WEIGHTS, passed=is_unchanged, text=text)


def drift_until_the_end(context: AfterContext) -> Finding:
    """Clean inputs are answered as at the beginning; what the check before the attacks found stays
    where they are.
    """
    checks = context.checks
    before = Finding.not_made(Code.DRIFT, "no sample")
    if Code.DRIFT in checks:
        before = Finding(**checks[Code.DRIFT])
    # Nothing follows from a second answer of a model whose answers to one input differ anyway.
    is_unsure = any(code in checks and checks[code]["passed"] is False for code in PREREQUISITES)
    if context.plan.eot > 1 or is_unsure or not len(context.x):
        return before

    try:
        logits = context.ask(context.model, context.x.to(context.plan.device))
    except (SampleError, BatchError) as error:
        text = f"the model fails on a clean input that it answered at the beginning: {error}"
        return Finding(code=Code.DRIFT, passed=False, text=text)

    # Rounding decides between classes that are almost tied, so another class must lead clearly, or
    # the confidence differ.
    confidence, pred = losses.decision(logits)
    first_pred = torch.as_tensor(context.clean.clean_pred, device=logits.device).long()
    first_confidence = torch.as_tensor(context.clean.clean_confidence, device=logits.device)
    close = max(CONFIDENCE_TOLERANCE, context.limit)
    lead = logits.gather(1, pred[:, None]) - logits.gather(1, first_pred[:, None])
    changed = lead[:, 0] > close * losses.scale(logits, first_pred)
    changed |= (confidence - first_confidence).abs() > close
    if not changed.any():
        return before

    text = (
        f"at the end the model answers {int(changed.sum())} of {len(changed)} "
        "clean inputs differently than at the beginning: "
        "it keeps something of what it is asked, answers at random, or another "
        "one took its place; audit it with that state fixed"
    )
    return Finding(code=Code.DRIFT, passed=False, text=text)


def fresh_copy(context: AfterContext) -> Finding:
    """A process that has answered nothing gives the audited model's answers to inputs like those of
    the run, in another order.

    A model that depends on the batch is asked in the same order.
    """
    x, limit = context.kept, context.limit
    process = _process_for(context)
    order = torch.arange(len(x), device=x.device)
    if context.checks.get(Code.BATCH, {}).get("passed") is not False:
        order = order.flip(0)

    # How long the audited model takes says how long a new process may.
    start = time.monotonic()
    audited = context.ask(context.model, x)
    seconds = PATIENCE + SLOWER * (time.monotonic() - start)
    settings = {"kind": context.model.info.answers, "batch_size": context.batch_size}
    facts, fresh = process.ask(settings, x[order], seconds)
    context.forwards += len(x)
    # The answers of the new process are in the order in which it was asked.
    difference = answer_difference(audited[order], fresh.to(x.device))
    changed = int((difference > limit).sum())
    if not changed and facts["shared"]:
        raise NotMadeError(
            f"while it answers the model goes to {short(facts['shared'], 200)}, by which a new process may "
            "know what it was asked before"
        )

    # Only a spec is opened anew; an object is copied with the weights that it has in memory.
    cause = None
    text = (
        f"a process that has answered nothing gives the same answers to {len(x)} inputs of the run"
    )
    is_other = bool(context.source.spec) and facts["digest"] != context.beginning.digest
    if changed and is_other:
        cause = "opened anew the model has other weights or other code"
        text = (
            f"{cause}: it draws its weights without a seed, or its file changed "
            "during the run; audit what stays the same"
        )
    elif changed:
        text = (
            f"a process that has answered nothing answers {changed} of "
            f"{len(x)} inputs of the run differently: the "
            "model counts, remembers or adapts; audit it with its state fixed"
        )
    return Finding(
        code=Code.FRESH,
        passed=not changed,
        text=text,
        figure=float(difference.amax()),
        limit=limit,
        cause=cause,
    )


def _process_for(context: AfterContext) -> FreshProcess:
    """The process to compare with; refuses a comparison that would say nothing."""
    if reason := reason_without_process(context.plan, context.model):
        raise NotMadeError(reason)
    if context.checks.get(Code.RANDOM, {}).get("passed") is False:
        raise NotMadeError(OF_NOISE)
    if not len(context.kept) or context.fresh is None:
        raise NotMadeError(NOT_ATTACKED)
    return context.fresh


def reason_without_process(plan: Plan, model: Model) -> str:
    """Why no process could judge a model; empty if one can."""
    if model.info.server is not None:
        return "the model runs on another machine, where it cannot be opened anew"
    if plan.eot > 1:
        return OF_NOISE
    return "" if len(plan.levels) else NOT_ATTACKED


def answer_anew(source: ModelSource, settings: Facts, x: Tensor) -> tuple[dict[str, Any], Tensor]:
    """Answers to inputs (n, *shape) of a model that is opened by its spec, or an object as it was in
    memory, and the digest of it.

    An object that cannot be copied is taken as it lies in the memory of the process that asks.
    """
    try:
        model = source.copy()
    except ModelError:
        model = source.open()
    with model.info.session(x.device):
        if settings["kind"] and model.info.answers is None:
            model = LogitModel(model, settings["kind"])
        return {"digest": model.digest()}, predict(model, x, settings["batch_size"])


AFTER_ATTACKS: dict[Code, Callable[[AfterContext], Finding]] = {
    Code.WEIGHTS: changed_weights,
    Code.DRIFT: drift_until_the_end,
    Code.FRESH: fresh_copy,
}
