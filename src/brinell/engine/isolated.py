"""The child process of an attack that is a file: it builds the attack, and asks about inputs over a pipe.

`python -m brinell.engine.isolated`, started by `engine.isolation`: frames (`core.frames`) come on standard input and go to
standard output, which the attack itself does not get to see. It holds neither the model, nor the data beside the samples of a
group, nor the ledger. The loss that an attack gives to the oracle is a function of the attack's own, so it is computed here: the
other process sends logits, and is sent back values with their derivatives.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import Attack, ChoosesData, Extras, Filed, LooksBeyond, TriesInputs
from brinell.core.criterion import MISCLASSIFIED, Criterion, NotRejected, Targeted
from brinell.core.domain import Domain
from brinell.core.errors import one_line
from brinell.core.frames import Frame, Pipe
from brinell.core.oracle import Batch, Differences, Gradient, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat

MOST = 1 << 34
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
"""Of Linux's prctl.h."""


def main() -> None:
    """Build the attack that is asked for, and do what is asked of it until nobody asks."""
    _confine()
    pipe = _pipe()
    asked = pipe.receive()
    torch.set_num_threads(asked.told["threads"])
    try:
        attack = plugins.build("attack", asked.told["name"], asked.told["options"])
        pipe.send("described", _description(attack))
        while True:
            _DO[(asked := pipe.receive()).op](pipe, attack, asked)
    except (Exception, SystemExit) as error:
        pipe.send("failed", {"why": one_line(error), "kind": type(error).__name__})


def _confine() -> None:
    """No file may grow, nothing is dumped, no rights are gained, and the process ends with the one that started it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _pipe() -> Pipe:
    """The pipe on other descriptors, and nothing on those of standard input and output."""
    reader, writer = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return Pipe(reader, writer, most=MOST)


def _description(attack: Attack) -> dict[str, Any]:
    """What the other process must know of the attack."""
    return {
        "access": int(attack.access),
        "distances": sorted(attack.distances),
        "domains": sorted(attack.domains),
        "family": attack.family,
        "targeted": bool(attack.targeted),
        "settings": plugins.written(attack),
        "filed": isinstance(attack, Filed),
        "reach": {name: attack.reach(name) for name in attack.distances} if isinstance(attack, LooksBeyond) else {},
    }


def _cost(pipe: Pipe, attack: Attack, asked: Frame) -> None:
    pipe.send("cost", {"cost": [int(one) for one in attack.cost(asked.told["classes"])]})


def _check(pipe: Pipe, attack: Attack, asked: Frame) -> None:
    if isinstance(attack, ChoosesData):
        attack.check(Domain.from_json(asked.told["domain"]))
    pipe.send("checked")


def _try_on(pipe: Pipe, attack: Attack, asked: Frame) -> None:
    domain = Domain.from_json(asked.told["domain"])
    odd = attack.try_on(asked.arrays["x"], domain) if isinstance(attack, TriesInputs) else []
    pipe.send("tried", {"odd": [str(one) for one in odd]})


def _attack(pipe: Pipe, attack: Attack, asked: Frame) -> None:
    held = asked.arrays
    batch = Batch(ids=torch.arange(len(held["x"])), x=held["x"], y=held["y"])
    threat = Threat(
        distance=plugins.build("distance", asked.told["distance"], asked.told["settings"]),
        eps=held["eps"],
        domain=Domain.from_json(asked.told["domain"]),
        criterion=_criterion(asked),
    )
    told = attack(_oracle(pipe, asked.told["classes"]), batch, threat, Streams(held["keys"])) or Extras()
    remarks = [[str(one.code), str(one.text)] for one in told.remarks]
    pipe.send("done", {"remarks": remarks, "legend": dict(told.legend)}, told.arrays)


def _criterion(asked: Frame) -> Criterion:
    if "targets" in asked.arrays:
        return Targeted(asked.arrays["targets"])
    reject = asked.told["reject"]
    return MISCLASSIFIED if reject is None else NotRejected(reject)


def _oracle(pipe: Pipe, classes: int) -> Oracle:
    """The oracle, each of whose questions goes over the pipe."""

    def ask(op: str, loss: Callable[..., Tensor] | None = None, *extra: Tensor, **arrays: Tensor) -> dict[str, Tensor]:
        named = {f"extra{number}": one for number, one in enumerate(extra)}
        pipe.send(op, {"loss": loss is not None, "extra": len(extra)}, arrays | named)
        while (answer := pipe.receive()).op == "loss":
            assert loss is not None, "the other process asks for a loss only where there is one"
            _differentiate(pipe, loss, answer.arrays)
        return answer.arrays

    def active(ids: Tensor, stop_at_eps: bool = False) -> Tensor:
        return ask("stopped" if stop_at_eps else "active", ids=ids)["found"]

    return Oracle(
        scores=lambda ids, x: ask("scores", ids=ids, x=x)["found"],
        loss=lambda ids, x, loss=None: ask("loss", loss, ids=ids, x=x)["found"],
        labels=lambda ids, x: ask("labels", ids=ids, x=x)["found"],
        gradient=lambda ids, x, loss=None, *extra: Gradient(**ask("gradient", loss, *extra, ids=ids, x=x)),
        differences=lambda ids, x, classes: Differences(**ask("differences", ids=ids, x=x, classes=classes)),
        active=active,
        affordable=lambda ids: ask("affordable", ids=ids)["found"],
        classes=classes,
    )


def _differentiate(pipe: Pipe, loss: Callable[..., Tensor], given: dict[str, Tensor]) -> None:
    """Send the values (m,) of a loss of logits (m, classes), and the derivatives (m, classes) of their sum."""
    extra = [given[name] for name in sorted(given, key=lambda name: (len(name), name)) if name.startswith("extra")]
    with torch.enable_grad():
        logits = given["logits"].requires_grad_()
        value = loss(logits, given["y"], *extra)
        grad = torch.autograd.grad(value.sum(), logits, allow_unused=True)[0] if value.requires_grad else None
    pipe.send("value", None, {"value": value, "grad": torch.zeros_like(logits) if grad is None else grad})


_DO = {"cost": _cost, "check": _check, "try_on": _try_on, "attack": _attack}

if __name__ == "__main__":
    main()
