"""A model that answers in a separate process, so that its code runs where nothing is judged.

Inputs, answers and gradients go over a pipe as arrays. The other process keeps the graphs that
gradients need until nobody holds the answers, and records what the contexts around a question
(`core.recorder`) would have recorded here, so that answers, gradients and checks come out as if the
model were in this process. Its name, its digest and its answers are its own word, as they are where
the code of a model runs here.
"""

import builtins
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack as _mode_stack

from brinell import plugins
from brinell.core import errors
from brinell.core.confinement import confine
from brinell.core.contracts import KnowsClasses
from brinell.core.detection import BoxForm
from brinell.core.domain import Domain
from brinell.core.errors import ModelError, one_line
from brinell.core.fresh import OtherProcess, Pipe, Watch, nurse, nursery
from brinell.core.model import Access, MapOutput, Model, ModelInfo
from brinell.core.recorder import Recorder
from brinell.core.streams import seeded
from brinell.engine.consistency import CallRecorder
from brinell.engine.context import FetchRecorder
from brinell.engine.deciding import ClassTensors
from brinell.engine.sources import build_source
from brinell.models._answers import SquashingInputs
from brinell.models._straight_through import StraightThrough

PATIENCE = 600.0
"""Seconds that a model may take for one answer: its code, or a loop of its graph, may not end."""
OF_CODE = ("torch", "onnx")
"""Models that run code of a file, or loops of a graph; those of a scratch plug-in do, too."""
RECORDERS: Mapping[str, type[Recorder]] = {
    kind.__name__: kind
    for kind in (CallRecorder, StraightThrough, ClassTensors, SquashingInputs, FetchRecorder)
}
OUTPUTS = {kind.__name__: kind for kind in (MapOutput, BoxForm)}
FACTS = (
    "class_names",
    "class_order",
    "architecture",
    "parameters",
    "answers",
    "notes",
    "gradients",
)
"""Facts of `ModelInfo` that are JSON."""


class Code(IntEnum):
    """Places of the code that a folder names while the folder is verified."""

    TOGETHER = 0
    """In this process: it is the user's own."""
    MODELS_APART = 1
    """That of models in separate processes."""
    APART = 2
    """Likewise, and other code does not run at all."""


_place: ContextVar[tuple[Code, list[str]]] = ContextVar("place", default=(Code.TOGETHER, []))


@contextmanager
def running(place: Code) -> Iterator[list[str]]:
    """Context that decides the place of the code that is named within it; gives the list of the
    models that it opens in processes apart.
    """
    specs: list[str] = []
    if place == Code.MODELS_APART and not hasattr(os, "fork"):
        place = Code.TOGETHER  # the user's own code, on Windows
    token = _place.set((place, specs))
    try:
        with plugins.refusing_code() if place == Code.APART else ExitStack():
            yield specs
    finally:
        _place.reset(token)


def open_model(spec: str, domain: Domain, classes: int | None) -> Model:
    """Open the model that a spec names, for data with so many classes, in a separate process where
    its code may not run here.
    """
    name = plugins.parse(spec).name
    place, specs = _place.get()
    if place != Code.TOGETHER and (name in OF_CODE or plugins.is_scratch(name)):
        specs.append(spec)
        return ModelElsewhere(spec, domain, classes)
    return _open_here(spec, domain, classes)


def _open_here(spec: str, domain: Domain, classes: int | None) -> Model:
    plugin = build_source("model", spec)
    model: Model = (
        plugin.open_for(domain, classes) if isinstance(plugin, KnowsClasses) else plugin(domain)
    )
    return model


class ModelElsewhere:
    """A model that answers in another process."""

    def __init__(self, spec: str, domain: Domain, classes: int | None) -> None:
        self.domain, self._process = domain, OtherProcess(nursery(__name__))
        began = time.time() if Watch.current is None else Watch.current.began
        self._dropped: list[int] = []
        settings = {"spec": spec, "domain": domain.to_json(), "classes": classes}
        state = {
            "began": began,
            "directory": os.getcwd(),
            "path": sys.path,
            "environment": dict(os.environ),
            "threads": torch.get_num_threads(),
            "seed": torch.initial_seed(),
        }
        self._ask({"do": "begin", **state})
        facts = self._ask({"do": "open", **settings})[0]

        self.name, self.classes = str(facts["name"]), int(facts["classes"])
        self.access = Access(facts["access"])
        self._facts: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in facts["info"].items()
        }
        kind, shape = facts["output"] or ("", {})
        self._output = OUTPUTS[kind](**shape) if kind else None

    @property
    def info(self) -> ModelInfo:
        """The facts that the other process gave."""
        return ModelInfo(
            **self._facts,
            output=self._output,
            session=self._session,
            features=lambda x: self._answer("features", x),
            training=lambda: self._ask({"do": "training"})[0]["parts"],
        )

    def predict(self, x: Tensor) -> Tensor:
        """Answers to inputs (n, *shape), differentiable as in the other process."""
        return self._answer("predict", x)

    def digest(self) -> str:
        """The hash that the other process gives."""
        return str(self._ask({"do": "digest"})[0]["digest"])

    @contextmanager
    def _session(self, device: torch.device | str | None = None) -> Iterator[None]:
        self._ask({"do": "enter", "device": None if device is None else str(device)})
        try:
            yield
        finally:
            if self._process.close.alive:
                self._ask({"do": "leave"})

    def _answer(self, do: str, x: Tensor) -> Tensor:
        modes: list[Any] = _mode_stack()  # type: ignore[no-untyped-call]
        recorders = [mode for mode in modes if isinstance(mode, Recorder)]
        question = {
            "do": do,
            "device": str(x.device),
            "graded": torch.is_grad_enabled(),
            "leaf": torch.is_grad_enabled() and x.requires_grad,
            "recorders": [[type(mode).__name__, mode.settings()] for mode in recorders],
        }

        # What is done with the arrays of the pipe is no part of the model.
        with torch._C.DisableTorchFunction():
            facts: dict[str, Any] = {}
            answers: tuple[Tensor, ...] = _Question.apply(x, self, question, facts)
            answer, *arrays = answers
            # Behind the answer come the arrays of each recorder, as many as its outcome says.
            for mode, outcome in zip(recorders, facts["outcomes"], strict=True):
                count = outcome.pop("arrays")
                mode.accept(outcome, arrays[:count], answer)
                del arrays[:count]
        return answer

    def _ask(
        self, question: Mapping[str, Any], arrays: Sequence[Tensor] = ()
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """An answer of the other process; its errors are raised here by their names."""
        # Graphs of answers that nobody holds any more are let go with the next question.
        dropped = self._dropped[:]
        facts, answers = self._process.ask({**question, "dropped": dropped}, arrays, PATIENCE)
        del self._dropped[: len(dropped)]

        if "error" in facts:
            name, text = facts["error"]
            kind: Any = getattr(errors, name, None) or getattr(builtins, name, None)
            is_known = isinstance(kind, type) and issubclass(kind, Exception)
            # An error that this process does not know keeps its name in a class made for it.
            raise (kind if is_known else type(name, (RuntimeError,), {}))(text)
        if shared := facts.get("shared"):
            # The watch of the audit sees what its own process opens: so it is told here.
            sys.audit("open", shared, "w", 0)
        return facts, answers


class _Graph:
    """A graph that the other process keeps for gradients until this is gone."""

    def __init__(self, number: int, dropped: list[int]) -> None:
        self.number, self._dropped = number, dropped

    def __del__(self) -> None:
        self._dropped.append(self.number)


class _Question(torch.autograd.Function):
    """A question to a model elsewhere, whose gradient is another one."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, model: ModelElsewhere, question: dict[str, Any], facts: dict[str, Any]
    ) -> tuple[Tensor, ...]:
        outcome, arrays = model._ask(question, [x])
        facts |= outcome
        answers = tuple(array.to(x.device) for array in arrays)
        ctx.model, ctx.device = model, x.device
        ctx.graph = _Graph(facts["graph"], model._dropped)
        # Answers that do not depend on the inputs by a graph have no gradient here either.
        constant = (a for a, leads in zip(answers, facts["leads"], strict=True) if not leads)
        ctx.mark_non_differentiable(*constant)
        return answers

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Of the four arguments of `forward` the inputs alone have a gradient.
        question = {"do": "gradient", "graph": ctx.graph.number}
        return ctx.model._ask(question, gradients)[1][0].to(ctx.device), None, None, None


class _Server:
    """The other process: it holds the model, and the graphs of its answers."""

    def __init__(self) -> None:
        self._model: Any = None
        self._sessions: list[ExitStack] = []
        self._graphs: dict[int, tuple[Tensor, list[Tensor]]] = {}
        self._count = self._seed = 0
        self._watch = Watch(time.time())

    def serve(self, pipe: Pipe) -> None:
        """Answer questions until nobody asks."""
        while question := pipe.receive():
            facts, arrays = question
            for number in facts.pop("dropped"):
                self._graphs.pop(number, None)
            try:
                outcome, answers = getattr(self, facts.pop("do"))(*arrays, **facts)
            except BaseException as error:  # the code of a model may raise SystemExit as well
                outcome, answers = {"error": [type(error).__name__, one_line(error, 2000)]}, []
            pipe.send({**outcome, "shared": self._watch.shared}, answers)

    def begin(
        self,
        began: float,
        directory: str,
        path: list[str],
        environment: dict[str, str],
        threads: int,
        seed: int,
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """Be as the process that asks; from now on, note through which files the model may know what
        others did since a time.
        """
        os.chdir(directory)
        sys.path[:] = path
        os.environ.update(environment)
        # As many threads as there: else sums would be made in another order.
        torch.set_num_threads(threads)

        self._seed = seed
        self._watch = Watch(began)
        self._watch.start()
        return {}, []

    def open(
        self, spec: str, domain: Mapping[str, Any], classes: int | None
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """Open the model, and say what it is."""
        with seeded(self._seed):
            self._model = model = _open_here(spec, Domain.from_json(domain), classes)
        output = model.info.output
        facts = {
            "name": model.name,
            "classes": model.classes,
            "access": int(model.access),
            "output": None if output is None else [type(output).__name__, asdict(output)],
        }
        return facts | {"info": {name: getattr(model.info, name) for name in FACTS}}, []

    def enter(self, device: str | None) -> tuple[dict[str, Any], list[Tensor]]:
        """Begin a session of the model."""
        session = ExitStack()
        session.enter_context(
            self._model.info.session(None if device is None else torch.device(device))
        )
        self._sessions.append(session)
        return {}, []

    def leave(self) -> tuple[dict[str, Any], list[Tensor]]:
        """End the last session."""
        self._sessions.pop().close()
        return {}, []

    def digest(self) -> tuple[dict[str, Any], list[Tensor]]:
        """The hash of the model."""
        return {"digest": self._model.digest()}, []

    def training(self) -> tuple[dict[str, Any], list[Tensor]]:
        """The modules in training mode."""
        return {"parts": list(self._model.info.training())}, []

    def predict(self, x: Tensor, **settings: Any) -> tuple[dict[str, Any], list[Tensor]]:
        """The answers of the model."""
        return self._call(self._model.predict, x, **settings)

    def features(self, x: Tensor, **settings: Any) -> tuple[dict[str, Any], list[Tensor]]:
        """Its features, as what a model without any answers in their place."""
        return self._call(self._model.info.features or self._model.predict, x, **settings)

    def _call(
        self,
        function: Any,
        x: Tensor,
        *,
        device: str,
        graded: bool,
        leaf: bool,
        recorders: Sequence[tuple[str, Mapping[str, Any]]],
    ) -> tuple[dict[str, Any], list[Tensor]]:
        x = x.to(device).requires_grad_(leaf)
        modes = [RECORDERS[name](**settings) for name, settings in recorders]
        with torch.set_grad_enabled(graded), ExitStack() as contexts:
            for mode in modes:
                contexts.enter_context(mode)
            answer = function(x)
        if not isinstance(answer, Tensor):
            raise ModelError(
                f"model {self._model.name} answered with a {type(answer).__name__}: "
                "return a tensor of logits"
            )

        # A graph stays in this process; the other one asks for its gradients by number.
        outcomes = [mode.outcome(answer) for mode in modes]
        arrays = [answer, *(array for _, parts in outcomes for array in parts)]
        self._count += 1
        if leaf:
            self._graphs[self._count] = x, arrays
        facts = {
            "outcomes": [{**facts, "arrays": len(parts)} for facts, parts in outcomes],
            "graph": self._count,
            "leads": [leaf and array.requires_grad for array in arrays],
        }
        return facts, arrays

    def gradient(self, *gradients: Tensor, graph: int) -> tuple[dict[str, Any], list[Tensor]]:
        """The gradient at the inputs of a graph, from those at its answers."""
        x, arrays = self._graphs[graph]
        pairs = [
            (array, part.to(array))
            for array, part in zip(arrays, gradients, strict=True)
            if array.requires_grad
        ]
        answers, parts = zip(*pairs, strict=True)
        (gradient,) = torch.autograd.grad(answers, x, parts, retain_graph=True, allow_unused=True)
        return {}, [torch.zeros_like(x) if gradient is None else gradient]


def answer(pipe: Pipe) -> None:
    """Answer over a pipe, and write below a folder of this process alone."""
    with tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        tempfile.tempdir = folder
        confine(Path(folder))
        _Server().serve(pipe)


if __name__ == "__main__":
    nurse(int(sys.argv[1]), answer)
