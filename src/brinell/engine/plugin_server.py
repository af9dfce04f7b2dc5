"""What the child process of a plug-in does: it builds the plug-in, and answers requests about it over a pipe.

Frames (`core.frames`) arrive on standard input and leave on standard output, which are hidden from the plug-in. This process
holds neither the model nor the ledger, and of the data only what a call needs. A loss that a plug-in passes to the oracle is
computed here: the parent sends logits and receives values with their derivatives.
"""

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import ChoosesData, Extras, LooksBeyond, OpensModel, Suspicion, TriesInputs
from brinell.core.criterion import MISCLASSIFIED, Criterion, NotRejected, Targeted
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError, RequestError, one_line, option
from brinell.core.frames import Frame, Pipe
from brinell.core.model import Access, ModelInfo
from brinell.core.oracle import Batch, Differences, Gradient, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat

MOST = 1 << 34


def serve() -> None:
    """Build the requested plug-in and serve requests until the parent closes the pipe."""
    pipe = _pipe()
    frame = pipe.receive()
    torch.set_num_threads(frame.fields["threads"])
    sys.path += [folder for folder in frame.fields["path"] if folder not in sys.path]
    try:
        kind, name = frame.fields["kind"], frame.fields["name"]
        plugin = plugins.build(kind, name, frame.fields["options"], in_process=True)
        pipe.send("described", _describe(kind, name, plugin))
        while True:
            HANDLERS[(frame := pipe.receive()).op](pipe, plugin, frame)
    except (Exception, SystemExit) as error:
        reason = error.line if isinstance(error, BrinellError) else one_line(error)
        pipe.send("failed", {"why": reason, "kind": type(error).__name__})


def _pipe() -> Pipe:
    """Move the pipe to other descriptors and connect standard input and output to the null device."""
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    return Pipe(reader, writer, most=MOST)


def _describe(kind: str, name: str, plugin: Any) -> dict[str, Any]:
    """Properties of the plug-in that the parent process needs."""
    if isinstance(plugin, OpensModel):
        raise RequestError(
            f"{kind} {name} opens the network, which a process of its own does not get: read its file, then add "
            f"{option('in_process')}"
        )
    needs = ("access", "domains", *(("distances", "family", "targeted", "cost") if kind == "attack" else ()))
    if missing := [attribute for attribute in needs if attribute not in dir(plugin)]:
        raise RequestError(f"{type(plugin).__name__} is no {kind}: it must have {missing[0]}")
    properties = {
        "name": type(plugin).__name__,
        "summary": (inspect.getdoc(type(plugin)) or "").partition("\n")[0],
        "defaults": {field.name: " ".join(repr(field.default).split()) for field in dataclasses.fields(plugin)},
        "settings": plugins.settings_of(plugin),
        "access": int(plugin.access),
        "domains": sorted(plugin.domains),
    }
    if kind != "attack":
        return properties
    distances = sorted(plugin.distances)
    reach = {distance: plugin.reach(distance) for distance in distances} if isinstance(plugin, LooksBeyond) else {}
    own = {"distances": distances, "family": plugin.family, "targeted": bool(plugin.targeted), "reach": reach}
    return properties | own


def _cost(pipe: Pipe, attack: Any, frame: Frame) -> None:
    """Send the most forwards and backwards that the attack may cost on one sample."""
    pipe.send("done", {"cost": [int(passes) for passes in attack.cost(frame.fields["classes"])]})


def _check(pipe: Pipe, attack: Any, frame: Frame) -> None:
    """Check that the settings of the attack fit the data."""
    if isinstance(attack, ChoosesData):
        attack.check(Domain.from_json(frame.fields["domain"]))
    pipe.send("done")


def _try_on(pipe: Pipe, attack: Any, frame: Frame) -> None:
    """Try the attack on real inputs and send what is odd."""
    domain = Domain.from_json(frame.fields["domain"])
    odd = attack.try_on(frame.arrays["x"], domain) if isinstance(attack, TriesInputs) else []
    pipe.send("done", {"odd": [str(sentence) for sentence in odd]})


def _attack(pipe: Pipe, attack: Any, frame: Frame) -> None:
    """Run the attack on a batch and send its remarks, legend and arrays."""
    threat = Threat(
        distance=plugins.build("distance", frame.fields["distance"], frame.fields["settings"]),
        eps=frame.arrays["eps"],
        domain=Domain.from_json(frame.fields["domain"]),
        criterion=_criterion(frame),
    )
    oracle, streams = _oracle(pipe, frame.fields["classes"]), Streams(frame.arrays["keys"])
    extras = attack(oracle, _batch(frame), threat, streams) or Extras()
    remarks = [[str(remark.code), str(remark.text)] for remark in extras.remarks]
    pipe.send("done", {"remarks": remarks, "legend": dict(extras.legend)}, extras.arrays)


def _explain(pipe: Pipe, explainer: Any, frame: Frame) -> None:
    """Run the explainer on a batch and send its maps."""
    oracle, domain = _oracle(pipe, frame.fields["classes"]), Domain.from_json(frame.fields["domain"])
    maps = explainer(oracle, _batch(frame), domain, Streams(frame.arrays["keys"]))
    pipe.send("done", None, {"maps": maps})


def _draws(pipe: Pipe, distortion: Any, frame: Frame) -> None:
    """Send the number of versions of one input."""
    pipe.send("done", {"draws": distortion.draws(tuple(frame.fields["shape"]))})


def _distort(pipe: Pipe, distortion: Any, frame: Frame) -> None:
    """Distort inputs and send them."""
    arrays = frame.arrays
    arguments = [arrays["x"], arrays["severity"], Streams(arrays["keys"]), arrays["draw"]]
    pipe.send("done", None, {"x": distortion(*arguments, *([arrays["gradient"]] if "gradient" in arrays else []))})


def _fit(pipe: Pipe, detector: Any, frame: Frame) -> None:
    """Fit the detector on clean inputs and keep it under a number."""
    suspicion = detector.fit(frame.arrays["x"], frame.arrays["labels"], RemoteModel(pipe, frame.fields))
    FITTED.append(suspicion)
    pipe.send("done", {"number": len(FITTED) - 1})


def _score(pipe: Pipe, detector: Any, frame: Frame) -> None:
    """Send the scores of inputs by a fitted detector, and the derivatives of their sum if asked for."""
    suspicion, x, gradient = FITTED[frame.fields["number"]], frame.arrays["x"], frame.fields["gradient"]
    with torch.set_grad_enabled(gradient):
        value = suspicion(x.requires_grad_(gradient))
    arrays = {"value": value}
    if gradient:
        grad = torch.autograd.grad(value.sum(), x, allow_unused=True)[0] if value.requires_grad else None
        arrays["grad"] = torch.zeros_like(x) if grad is None else grad
    pipe.send("done", None, arrays)


FITTED: list[Suspicion] = []
"""The fitted detectors of this process."""


class RemoteModel:
    """The guarded model, which answers over the pipe; its weights stay in the parent process."""

    def __init__(self, pipe: Pipe, facts: dict[str, Any]) -> None:
        self._pipe = pipe
        self.name, self.classes, self.access = str(facts["name"]), int(facts["classes"]), Access(facts["access"])
        self.domain = Domain.from_json(facts["domain"])
        self.info = ModelInfo(features=(lambda x: self._answer("features", x)) if facts["features"] else None)

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits, differentiable."""
        return self._answer("predict", x)

    def digest(self) -> str:
        """Nothing: a detector does not see the weights."""
        return ""

    def _answer(self, op: str, x: Tensor) -> Tensor:
        """The model's answers or features."""
        return cast(Tensor, _RemoteCall.apply(x, self._pipe, op))


class _RemoteCall(torch.autograd.Function):
    """A call of the model in the parent process, which computes the derivatives as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pipe: Pipe, op: str) -> Tensor:
        """The answers to inputs."""
        ctx.save_for_backward(x)
        ctx.pipe, ctx.op = pipe, op
        pipe.send(op, None, {"x": x})
        return pipe.receive().arrays["found"]

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        """The derivatives that pass back through the answers."""
        (x,) = ctx.saved_tensors
        ctx.pipe.send(f"{ctx.op}-back", None, {"x": x, "grad": outer[0]})
        return ctx.pipe.receive().arrays["found"], None, None


def _batch(frame: Frame) -> Batch:
    x, y = frame.arrays["x"], frame.arrays["y"]
    return Batch(ids=torch.arange(len(x)), x=x, y=y)


def _criterion(frame: Frame) -> Criterion:
    if "targets" in frame.arrays:
        return Targeted(frame.arrays["targets"])
    reject = frame.fields["reject"]
    return MISCLASSIFIED if reject is None else NotRejected(reject)


def _oracle(pipe: Pipe, classes: int) -> Oracle:
    """An oracle that sends each query over the pipe."""

    def ask(op: str, loss: Callable[..., Tensor] | None = None, *extra: Tensor, **arrays: Tensor) -> dict[str, Tensor]:
        """Ask the oracle in the other process and return the arrays of its answer."""
        extra_arrays = {f"extra{number}": array for number, array in enumerate(extra)}
        pipe.send(op, {"loss": loss is not None, "extra": len(extra)}, arrays | extra_arrays)
        while (answer := pipe.receive()).op == "loss":
            assert loss is not None, "the other process asks for a loss only where there is one"
            _differentiate(pipe, loss, answer.arrays)
        return answer.arrays

    def active(ids: Tensor, stop_at_eps: bool = False) -> Tensor:
        """(n,) bool: the samples that are still worth a query, as the ledger says."""
        return ask("stopped" if stop_at_eps else "active", ids=ids)["found"]

    def remaining(ids: Tensor, stop_at_eps: bool = False) -> Tensor | None:
        """The active rows; None where all are."""
        keep = active(ids, stop_at_eps)
        return None if bool(keep.all()) else keep.nonzero()[:, 0]

    return Oracle(
        scores=lambda ids, x: ask("scores", ids=ids, x=x)["found"],
        loss=lambda ids, x, loss=None: ask("loss", loss, ids=ids, x=x)["found"],
        labels=lambda ids, x: ask("labels", ids=ids, x=x)["found"],
        gradient=lambda ids, x, loss=None, *extra: Gradient(**ask("gradient", loss, *extra, ids=ids, x=x)),
        differences=lambda ids, x, classes: Differences(**ask("differences", ids=ids, x=x, classes=classes)),
        active=active,
        remaining=remaining,
        affordable=lambda ids: ask("affordable", ids=ids)["found"],
        classes=classes,
    )


def _differentiate(pipe: Pipe, loss: Callable[..., Tensor], arrays: dict[str, Tensor]) -> None:
    """Send the values (m,) of a loss of logits (m, classes), and the derivatives of their sum; of maps, those of each pixel."""
    extra = [arrays[name] for name in sorted(arrays, key=lambda name: (len(name), name)) if name.startswith("extra")]
    with torch.enable_grad():
        logits = arrays["logits"].requires_grad_()
        value = loss(logits, arrays["y"], *extra)
        grad = torch.autograd.grad(value.sum(), logits, allow_unused=True)[0] if value.requires_grad else None
    pipe.send("value", None, {"value": value, "grad": torch.zeros_like(logits) if grad is None else grad})


HANDLERS: dict[str, Callable[[Pipe, Any, Frame], None]] = {
    "cost": _cost,
    "check": _check,
    "try_on": _try_on,
    "attack": _attack,
    "explain": _explain,
    "draws": _draws,
    "distort": _distort,
    "fit": _fit,
    "score": _score,
}
