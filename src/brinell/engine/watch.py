"""What an attack in our own process may not have touched, held against copies after it has returned.

Python cannot keep a file that runs in this process from anything. It can be noticed: clean inputs, labels, budgets, the ledger's
own counts and finds, the weights and hooks of the model, the functions that judge; and what the model was asked is counted at the
model and compared with what the ledger counted (docs/trust.md).
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core import costs, criterion, eot, ledger, losses, norms, oracle, threat
from brinell.core.costs import Best, Costs
from brinell.core.eot import EOT
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.threat import size
from brinell.store import parquet, rows

JUDGES = (
    costs,
    criterion,
    eot,
    ledger,
    losses,
    norms,
    oracle,
    threat,
    rows,
    parquet,
    Best,
    Costs,
    EOT,
    Ledger,
    *(criterion.PlainCriterion, criterion.Misclassified, criterion.NotRejected, criterion.Targeted),
    torch,
    torch.Tensor,
    nn.functional,
    nn.Module,
)
"""Modules and classes whose functions decide what is recorded."""


class Counted:
    """A model that counts what it is asked, whoever asks."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.forwards = self.backwards = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits."""
        self.forwards += len(x)
        logits = self._model.predict(x)
        if logits.requires_grad:
            logits.register_hook(self._passed)  # type: ignore[no-untyped-call]
        return logits

    def _passed(self, grad: Tensor) -> None:
        self.backwards += len(grad)


class Watch:
    """Copies of what is judged by, made before an attack: model, clean inputs (n, *shape), arrays that decide what rows say."""

    def __init__(self, model: Model, x: Tensor, held: Mapping[str, Array | None]) -> None:
        self._model, self._x, self._held = model, x, held
        self._x_before = x.clone()
        self._before = {name: None if array is None else array.copy() for name, array in held.items()}
        self._code = _code()
        self._state, self._weights = _state(model), weights(model)

    def check(self, attack: str, book: Ledger, counted: Counted, judge: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        """Refuse to go on where anything was touched.

        Args:
            attack: how the line calls it.
            book: the ledger.
            counted: the model as the ledger asked it.
            judge: rows (m,), logits (m, classes) and inputs (m, *shape) to the margins (m,) of the criterion.

        Raises:
            ContractError: something is not as it was, or does not agree.
        """
        what = next(iter(self._touched(book, counted, judge)), None)
        if what is not None:
            raise ContractError(f"while {attack} ran, {what}: what it found is not recorded; look at the attack's file")

    def _touched(self, book: Ledger, counted: Counted, judge: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[str]:
        found = [f"{name} was replaced" for name in _changed(self._code)]
        if not torch.equal(self._x, self._x_before):
            found.append("the clean inputs were written into")
        for name, before in self._before.items():
            now = self._held[name]
            if before is not None and (now is None or not np.array_equal(now, before)):
                found.append(f"the {name} of the samples were written into")
        if not book.untouched():
            found.append("the ledger was written into")
        elif not self._agree(book, judge):
            found.append("the ledger's successes came to be by another measure than the audit's")
        asked = int(book.costs.forwards.sum()), int(book.costs.backwards.sum())
        if counted.forwards != asked[0] or counted.backwards > asked[1]:
            found.append(
                f"the model was asked {counted.forwards:,} times forwards and {counted.backwards:,} backwards, and the ledger "
                f"counted {asked[0]:,} and {asked[1]:,}"
            )
        if _state(self._model) != self._state:
            found.append("the model was given other code, hooks or modes")
        if weights(self._model) != self._weights and not self._changes_itself():
            found.append("the model's weights were written into")
        return found

    def _agree(self, book: Ledger, judge: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
        """Whether each success is one by its answer, and as far away as the ledger says."""
        at = book.fooled.nonzero()[:, 0]
        if not len(at):
            return True
        far = size(book.threat.distance, book.best.closest[at], self._x_before[at])
        return bool(
            (judge(at, book.best.answer[at], book.best.closest[at]) > 0).all()
            and torch.allclose(far, book.best.distance[at], rtol=1e-4)
        )

    def _changes_itself(self) -> bool:
        """Whether asking alone changes the weights or buffers, as in a model that keeps something of what it sees."""
        before = weights(self._model)
        with torch.no_grad():
            self._model.predict(self._x_before[:2])
        return weights(self._model) != before


def weights(model: Model) -> str:
    """A hash of all parameters and buffers; empty where the model is no torch module."""
    module = model.info.module
    hashed = hashlib.blake2b(digest_size=16)
    for tensor in [] if module is None else [*module.parameters(), *module.buffers()]:
        hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return "" if module is None else hashed.hexdigest()


def _state(model: Model) -> list[Any]:
    """What of a model decides its answers besides weights: code that was put into an object, hooks, modes."""
    module = model.info.module
    told: list[Any] = [type(model).predict, getattr(model, "__dict__", {}).get("predict")]
    for part in [] if module is None else module.modules():
        own = vars(part)
        hooks = [list(own[name].values()) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]
        told.append([type(part).forward, type(part).__call__, own.get("forward"), part.training, hooks])
    return told


def _code() -> list[tuple[Any, dict[str, Any]]]:
    return [(one, {name: value for name, value in vars(one).items() if callable(value)}) for one in JUDGES]


def _changed(before: list[tuple[Any, dict[str, Any]]]) -> list[str]:
    found = []
    for one, held in before:
        now = vars(one)
        found += [f"{one.__name__}.{name}" for name, value in held.items() if now.get(name) is not value]
        if isinstance(one, type):  # a module may load what it names only now
            found += [f"{one.__name__}.{name}" for name in now if name not in held and callable(now[name])]
    return found
