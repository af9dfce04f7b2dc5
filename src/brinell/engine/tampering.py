"""Detection of tampering by an attack in this process, by comparison with copies after it returns.

Python cannot restrict code that runs in this process, but changes can be detected: of clean inputs, labels, budgets, the ledger's
own counts and finds, the weights and hooks of the model, the functions that judge; and what the model was asked is counted at the
model and compared with what the ledger counted (docs/reference/trust.md).
"""

import hashlib
from collections.abc import Callable, Mapping
from inspect import getattr_static
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
    *(criterion.Probability, criterion.Threshold),
    torch,
    torch.Tensor,
    nn.functional,
    nn.Module,
)
"""Modules and classes whose functions decide the records."""


class CountingModel:
    """A model that counts all forwards and backwards."""

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
        """Count gradients that passed through the model."""
        self.backwards += len(grad)


class TamperCheck:
    """Copies made before an attack of all that its judgement uses: model, clean inputs (n, *shape) and arrays of the rows."""

    def __init__(self, model: Model, x: Tensor, arrays: Mapping[str, Array | None]) -> None:
        self._model, self._x, self._arrays = model, x, arrays
        self._x_before = x.clone()
        self._copies = {name: None if array is None else array.copy() for name, array in arrays.items()}
        self._code = _judging_functions()
        self._state, self._weights = _model_state(model), hash_weights(model)

    def check(
        self, attack: str, ledger_: Ledger, counted: CountingModel, judge: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> None:
        """Raise ContractError if anything changed.

        Args:
            attack: name of the attack, for the message.
            ledger_: the ledger.
            counted: the model that the ledger queried.
            judge: maps rows (m,), logits (m, classes) and inputs (m, *shape) to margins (m,).

        Raises:
            ContractError: something changed or does not agree.
        """
        change = next(iter(self._changes(ledger_, counted, judge)), None)
        if change is not None:
            raise ContractError(f"while {attack} ran, {change}: what it found is not recorded; look at the attack's file")

    def _changes(self, ledger_: Ledger, counted: CountingModel, judge: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[str]:
        """Sentences on everything that the attack changed."""
        changes = [f"{name} was replaced" for name in _replaced_functions(self._code)]
        if not torch.equal(self._x, self._x_before):
            changes.append("the clean inputs were written into")
        for name, copy in self._copies.items():
            array = self._arrays[name]
            if copy is not None and (array is None or not np.array_equal(array, copy)):
                changes.append(f"the {name} of the samples were written into")
        if not ledger_.untouched():
            changes.append("the ledger was written into")
        elif not self._agree(ledger_, judge):
            changes.append("the ledger's successes came to be by another measure than the audit's")
        counts = int(ledger_.costs.forwards.sum()), int(ledger_.costs.backwards.sum())
        if counted.forwards != counts[0] or counted.backwards > counts[1]:
            changes.append(
                f"the model was asked {counted.forwards:,} times forwards and {counted.backwards:,} backwards, and the ledger "
                f"counted {counts[0]:,} and {counts[1]:,}"
            )
        if _model_state(self._model) != self._state:
            changes.append("the model was given other code, hooks or modes")
        if hash_weights(self._model) != self._weights and not self._changes_itself():
            changes.append("the model's weights were written into")
        return changes

    def _agree(self, ledger_: Ledger, judge: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
        """True if each success has a positive margin and the distance that the ledger recorded."""
        index = ledger_.fooled.nonzero()[:, 0]
        if not len(index):
            return True
        distance = size(ledger_.threat.distance, ledger_.best.closest[index], self._x_before[index])
        return bool(
            (judge(index, ledger_.best.answer[index], ledger_.best.closest[index]) > 0).all()
            and torch.allclose(distance, ledger_.best.distance[index], rtol=1e-4)
        )

    def _changes_itself(self) -> bool:
        """True if a query alone changes the weights or buffers, as in a model with running statistics."""
        first = hash_weights(self._model)
        with torch.no_grad():
            self._model.predict(self._x_before[:2])
        return hash_weights(self._model) != first


def hash_weights(model: Model) -> str:
    """Hash of all parameters and buffers; empty if the model has no torch module."""
    module = model.info.module
    hashed = hashlib.blake2b(digest_size=16)
    for tensor in [] if module is None else [*module.parameters(), *module.buffers()]:
        hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return "" if module is None else hashed.hexdigest()


def _model_state(model: Model) -> list[Any]:
    """State of a model besides weights that decides its answers: replaced methods, hooks and modes."""
    module = model.info.module
    state: list[Any] = [type(model).predict, getattr(model, "__dict__", {}).get("predict")]
    for part in [] if module is None else module.modules():
        attributes = vars(part)
        hooks = [list(attributes[name].values()) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]
        methods = [
            getattr_static(type(part), name, None) for name in ("forward", "__call__")
        ]  # TorchScript has no class of its own
        state.append([*methods, attributes.get("forward"), getattr(part, "training", None), hooks])
    return state


def _judging_functions() -> list[tuple[Any, dict[str, Any]]]:
    return [(owner, {name: value for name, value in vars(owner).items() if callable(value)}) for owner in JUDGES]


def _replaced_functions(before: list[tuple[Any, dict[str, Any]]]) -> list[str]:
    """Names of judging functions that were replaced or added."""
    names = []
    for owner, functions in before:
        current = vars(owner)
        names += [f"{owner.__name__}.{name}" for name, value in functions.items() if current.get(name) is not value]
        if isinstance(owner, type):  # a module may load what it names only now
            names += [f"{owner.__name__}.{name}" for name in current if name not in functions and callable(current[name])]
    return names
