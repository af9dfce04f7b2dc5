"""`--isolate`: an attack that is a file runs in a process of its own, which has the oracle over a pipe and nothing else of ours.

The ledger, the model and the clean inputs stay here. What the child sends is held against the form that it must have before it
reaches the oracle; the ledger judges it as it judges any attack. A child that ends, is silent for too long, asks for more than it
declared or says what makes no sense has failed: one line, and nothing of it is recorded. The questions are those of an attack in
this process, and so are the answers, so the records are the same (design/0021-isolation.md).
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from torch import Tensor

from brinell.core.contracts import Access, Domain, Extras, Family, Kind, Oracle, Remark, Streams, Threat
from brinell.core.criterion import NotRejected, Targeted
from brinell.core.errors import ContractError, RequestError, option
from brinell.core.frames import EndedError, Frame, Pipe, PipeError
from brinell.core.oracle import Batch
from brinell.core.settings import MOST_COUNT
from brinell.manifest import Content, Listing, Named, fault

OWN_TIME = 3600.0
"""Seconds that the child may take for itself in one group of samples, all waits for it together."""
START_TIME = 120.0
"""Seconds until it has built the attack, and for each question about it."""
KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TMPDIR")
"""Variables of the environment that the child gets. No token is among them."""
TIMES = 64
"""A frame may hold so many times the clean inputs of a group."""
FLOOR = 1 << 26
"""Bytes that a frame may hold in any case."""


Passes = Annotated[int, Field(ge=0, le=MOST_COUNT**2)]


class Description(Content):
    """What the child says of the attack that it has built."""

    access: Annotated[int, Field(ge=1, le=3)]
    """What the attack needs of a model."""
    distances: Listing[str]
    """The distances that it works in."""
    domains: Listing[Kind]
    """The kinds of data that it works on."""
    family: Family
    """Whether one run gives the whole curve."""
    targeted: bool
    """Whether it can aim at a class."""
    settings: dict[str, Any]
    """Its settings."""
    filed: bool
    """Whether it is a file."""
    reach: Named[Annotated[float, Field(ge=1, le=1e6)]]
    """By distance, the largest multiple of eps that it asks about."""


class Done(Content):
    """What the child says at the end of a group."""

    remarks: Listing[Annotated[tuple[str, str], Field(strict=False)]]
    """What the attack remarked, each as a code and a sentence."""
    legend: dict[str, Any]
    """What the numbers mean that it keeps of samples."""


class Question(Content):
    """What the child says beside the arrays of a question."""

    loss: bool
    """Whether the attack has a loss of its own."""
    extra: Annotated[int, Field(ge=0, le=64)]
    """How many arrays its loss takes besides."""


class CostAnswer(Content):
    """What the attack says of its cost."""

    cost: Annotated[tuple[Passes, Passes], Field(strict=False)]
    """The most forwards and backwards of a sample."""


class OddAnswer(Content):
    """What the attack finds odd about inputs."""

    odd: Listing[str]
    """A sentence each."""


class Isolated:
    """An attack in a process of its own; it has the members of `core.contracts.Attack`.

    Args:
        name: the attack as `plugins.build` takes it.
        options: its settings.

    Raises:
        RequestError: the child cannot build it; the line says why.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._name, self._options = name, dict(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._costs: dict[int, tuple[int, int]] = {}
        told = self._start()
        self.access, self.targeted = Access(told["access"]), bool(told["targeted"])
        self.distances, self.family = frozenset(told["distances"]), cast(Family, told["family"])
        self.domains: frozenset[Kind] = frozenset(told["domains"])
        self._settings, self._reach = told["settings"], told["reach"]

    def __deepcopy__(self, memo: object) -> "Isolated":
        return Isolated(self._name, self._options)

    def __del__(self) -> None:
        try:
            self._end()
        except Exception:
            pass

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._settings:
            return self._settings[name]
        raise AttributeError(name)

    def written(self) -> dict[str, Any]:
        """Its settings as `plugins.written` has them."""
        return dict(self._settings)

    def cost(self, classes: int) -> tuple[int, int]:
        """The most forwards and backwards of a sample, as the attack says."""
        if classes not in self._costs:
            told = self._ask("cost", {"classes": classes}, CostAnswer)
            self._costs[classes] = (told["cost"][0], told["cost"][1])
        return self._costs[classes]

    def reach(self, distance: str) -> float:
        """The largest multiple of eps that it asks about."""
        return float(self._reach.get(distance, 1.0))

    def check(self, domain: Domain) -> None:
        """Whatever the attack says against data of this kind."""
        self._ask("check", {"domain": domain.to_json()}, Content)

    def try_on(self, x: Tensor, domain: Domain) -> list[str]:
        """What the attack finds odd about these inputs."""
        odd: list[str] = self._ask("try_on", {"domain": domain.to_json()}, OddAnswer, x=x)["odd"]
        return odd

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> Extras:
        """Hand over the group, answer what is asked, and take what the attack says at the end."""
        talk = _Talk(oracle, batch, self.cost(oracle.classes)[0])
        pipe = self._running()
        pipe.left, pipe.most = OWN_TIME, FLOOR + TIMES * batch.x.element_size() * batch.x.numel()
        criterion = threat.criterion
        held = {"x": batch.x, "y": batch.y, "eps": threat.eps, "keys": rng.keys}
        held |= {"targets": criterion.classes} if isinstance(criterion, Targeted) else {}
        told = _distance(threat.distance) | {
            "domain": threat.domain.to_json(),
            "classes": oracle.classes,
            "reject": criterion.reject if isinstance(criterion, NotRejected) else None,
        }
        try:
            pipe.send("attack", told, held)
            while (asked := self._receive(pipe)).op != "done":
                found = talk.answer(asked, lambda **arrays: self._loss(pipe, arrays))
                pipe.send("answer", None, found)
        except PipeError as error:
            raise self._failed(error) from None
        except BaseException:
            self._end()  # it waits for an answer that does not come
            raise
        if why := fault(asked.told, Done):
            raise self._failed(f"it ended with something in which {why}")
        return Extras([Remark(*one) for one in asked.told["remarks"]], asked.arrays, asked.told["legend"])

    def _loss(self, pipe: Pipe, arrays: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The values of the attack's own loss (m,) and the derivatives (m, classes) of their sum."""
        pipe.send("loss", None, arrays)
        answer, logits = self._receive(pipe), arrays["logits"]
        value, grad = (answer.arrays.get(name) for name in ("value", "grad"))
        if answer.op != "value" or value is None or grad is None:
            raise PipeError("it was asked for a loss and said something else")
        if (
            value.shape != logits.shape[:1]
            or grad.shape != logits.shape
            or not (grad.dtype == logits.dtype and value.is_floating_point())
        ):
            raise PipeError(f"its loss of {tuple(logits.shape)} logits has shape {tuple(value.shape)}")
        return value.to(logits.device), grad.to(logits.device)

    # The process

    def _start(self) -> dict[str, Any]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        threads = str(torch.get_num_threads())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "brinell.engine.isolated"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C of the terminal is for this process, which ends the child
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._pipe = Pipe(self._process.stdout.fileno(), self._process.stdin.fileno(), most=FLOOR, left=START_TIME)
        told = {"name": self._name, "options": self._options, "threads": torch.get_num_threads()}
        try:
            self._pipe.send("build", told)
            described = self._pipe.receive()
        except PipeError as error:
            raise RequestError(str(self._failed(error))) from None
        if described.op == "failed":
            self._end()
            raise RequestError(str(described.told.get("why", "it fails without a word"))[:400])
        if why := fault(described.told, Description):
            raise RequestError(str(self._failed(f"it describes itself by something in which {why}")))
        return described.told

    def _running(self) -> Pipe:
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        return self._pipe

    def _ask(self, op: str, told: Mapping[str, Any], form: type[Content], **arrays: Tensor) -> dict[str, Any]:
        pipe = self._running()
        pipe.left = START_TIME
        try:
            pipe.send(op, told, arrays)
            answer = self._receive(pipe)
        except PipeError as error:
            raise self._failed(error) from None
        if why := fault(answer.told, form):
            raise self._failed(f"it answers {op} by something in which {why}")
        return answer.told

    def _receive(self, pipe: Pipe) -> Frame:
        frame = pipe.receive()
        if frame.op == "failed":
            kind, why = (str(frame.told.get(name, ""))[:300] for name in ("kind", "why"))
            raise PipeError(f"it ended with {kind}: {why}")
        return frame

    def _failed(self, why: str | PipeError) -> ContractError:
        """The line about a child that failed, which is ended."""
        code = self._end()
        ended = f" (exit code {code})" if isinstance(why, EndedError) else ""
        return ContractError(f"attack {self._name}, in a process of its own, failed: {why}{ended}; nothing of it is recorded")

    def _end(self) -> int | None:
        process, self._process, self._pipe = self._process, None, None
        if process is None:
            return None
        ended = None
        with suppress(subprocess.TimeoutExpired):
            ended = process.wait(0.2 if process.poll() is None else 0)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        return ended


def _distance(distance: Any) -> dict[str, Any]:
    """The name and the settings by which the child builds the distance, which must be one of Brinell's own."""
    module = type(distance).__module__
    if not module.startswith("brinell.distances.") or not is_dataclass(distance):
        raise RequestError(
            f"{option('isolate')} takes the distances of Brinell, and {distance.name} is a file: leave one of both out"
        )
    return {"distance": module.rpartition(".")[2].replace("_", "-"), "settings": asdict(cast(Any, distance))}


class _Talk:
    """Questions of the child about one group, held against their form and put to the oracle."""

    def __init__(self, oracle: Oracle, batch: Batch, most: int) -> None:
        self._oracle, self._batch, self._most = oracle, batch, most
        self._asked = torch.zeros(len(batch), dtype=torch.int64)

    def answer(self, asked: Frame, loss: Callable[..., tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        """What the oracle says; a PipeError where the question makes no sense, or is one more than the attack declared."""
        op, oracle = asked.op, self._oracle
        if why := fault(asked.told, Question):
            raise PipeError(f"it asked by something in which {why}")
        ids = self._ids(asked.arrays.get("ids"))
        if op in ("active", "stopped"):
            return {"found": oracle.active(ids, op == "stopped")}
        if op == "affordable":
            return {"found": oracle.affordable(ids)}
        x = self._inputs(asked.arrays.get("x"), len(ids))
        self._count(ids)
        if op in ("scores", "labels"):
            return {"found": oracle.scores(ids, x) if op == "scores" else oracle.labels(ids, x)}
        if op == "differences":
            return oracle.differences(ids, x, self._classes(asked.arrays.get("classes"), len(ids)))._asdict()
        own = (lambda logits, y, *extra: _own_loss(logits, y, extra, loss)) if asked.told["loss"] else None
        if op == "loss":
            return {"found": oracle.loss(ids, x, own)}
        if op == "gradient":
            return cast(dict[str, Tensor], oracle.gradient(ids, x, own, *self._extra(asked, len(ids)))._asdict())
        raise PipeError(f"it asked for {op[:40]!r}, which no oracle answers")

    def _ids(self, ids: Tensor | None) -> Tensor:
        if ids is None or ids.dtype != torch.int64 or ids.ndim != 1 or not len(ids):
            raise PipeError("it asked without the ids of samples")
        if int(ids.min()) < 0 or int(ids.max()) >= len(self._batch):
            raise PipeError("it asked about a sample that is none of its group")
        return ids.to(self._batch.x.device)

    def _inputs(self, x: Tensor | None, n: int) -> Tensor:
        if x is None or x.dtype != self._batch.x.dtype or x.shape != (n, *self._batch.x.shape[1:]):
            raise PipeError("it asked about inputs of another shape or type than its samples")
        return x.to(self._batch.x.device)

    def _classes(self, classes: Tensor | None, n: int) -> Tensor:
        if classes is None or classes.dtype != torch.int64 or classes.ndim != 2 or len(classes) != n or not classes.shape[1]:
            raise PipeError("it asked for differences without classes")
        if int(classes.min()) < 0 or int(classes.max()) >= self._oracle.classes:
            raise PipeError("it asked about a class that there is not")
        return classes.to(self._batch.x.device)

    def _extra(self, asked: Frame, n: int) -> list[Tensor]:
        found = [asked.arrays.get(f"extra{number}") for number in range(asked.told["extra"])]
        if any(one is None or not one.ndim or len(one) != n for one in found):
            raise PipeError("what it gave to its loss has not a row for each input")
        return [one.to(self._batch.x.device) for one in found if one is not None]

    def _count(self, ids: Tensor) -> None:
        """Refuse a question about a sample that was asked about as often as the attack declared."""
        self._asked.index_add_(0, ids.cpu(), torch.ones(len(ids), dtype=torch.int64))
        if int(self._asked.max()) > self._most:
            raise PipeError(f"it asks about a sample more often than the {self._most} times that it declares as its cost")


class _OwnLoss(torch.autograd.Function):
    """A loss that another process computes, with its derivatives."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(grad)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return outer[0][:, None].to(grad.dtype) * grad, None, None


def _own_loss(logits: Tensor, y: Tensor, extra: tuple[Tensor, ...], ask: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
    named = {f"extra{number}": one for number, one in enumerate(extra)}
    value, grad = ask(logits=logits.detach(), y=y, **named)
    return cast(Tensor, _OwnLoss.apply(logits, value, grad))
