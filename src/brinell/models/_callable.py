"""Any function of Python as a model: asked with torch tensors or numpy arrays, answering scores or labels.

Which arrays it takes is found out by asking it: first with a tensor whose gradient is wanted, then with an array, then with a
plain tensor; what answers is taken, and the run says which it was. A function whose answers to tensors can be differentiated
gives gradients, so that a closure around torch modules is attacked like a module. Modules that the function refers to are in
evaluation mode while it is asked.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.errors import BrinellError, RequestError, one_line
from brinell.core.model import Access, ModelInfo
from brinell.models._answers import of_labels, random_inputs
from brinell.models._content import digest_of, modules_in
from brinell.models._torch_model import affine, evaluating, home_of, logits_of

Asked = Literal["tensors with gradients", "numpy arrays", "tensors"]
WAYS: tuple[Asked, ...] = ("tensors with gradients", "numpy arrays", "tensors")
PROBES = 3
"""Random inputs by which it is found out what a function takes and answers."""
COMPARED = 16
"""Random inputs whose classes are part of the digest."""


class CallableModel:
    """A model around a function of inputs (n, *shape), in the layout in which the data were given.

    Args:
        function: answers (n, classes) scores, (n,) labels, or (n,) one score of two classes; torch, numpy, or anything that numpy
            makes an array of; also an object whose `logits` are the scores.
        domain: where the inputs live.
        classes: how many classes there are, for a function that answers with labels.
        name: how reports call it.
        as_given: (n, *shape) inputs in the layout that the function takes; by default as the domain has them.
        preprocessing: as in foolbox, `dict(mean=..., std=..., axis=-3)`, applied to every input before the function.
        labels: whether it answers with labels, where whole numbers leave that open.

    Raises:
        RequestError: the function fails on the data, or its answers are none of these.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        domain: Domain,
        *,
        classes: int,
        name: str,
        as_given: Callable[[Tensor], Tensor] = lambda x: x,
        preprocessing: Mapping[str, Any] | None = None,
        labels: bool | None = None,
    ) -> None:
        self.name, self.domain = name, domain
        self._function, self._as_given = function, as_given
        if preprocessing and preprocessing.get("flip_axis") is not None:
            raise RequestError(f"flip_axis is for modules: reverse the channels inside {name}")
        scale, shift = affine(domain, preprocessing or {}, None)
        self._affine = None if bool((scale == 1).all() and (shift == 0).all()) else (scale, shift)
        self._modules = modules_in(function)
        self._asked, self._labels = self._probe(labels)
        with torch.no_grad():
            found = self._answer(random_inputs(self.domain, PROBES))
        self.classes = classes if self._labels else found.shape[1]
        gradients = self._asked == WAYS[0] and not self._labels
        self.access = Access.LABELS if self._labels else Access.GRADIENTS if gradients else Access.SCORES
        self.info = ModelInfo(
            architecture=type(function).__name__,
            answers="one-hot" if self._labels else None,
            session=self._session,
            notes=(f"{name} is asked with {self._asked} of shape {self._shape}, and gives {self.access.name.lower()}",),
        )

    @property
    def _shape(self) -> str:
        """That of the inputs which the function is given."""
        sides = self._as_given(random_inputs(self.domain, 1)).shape[1:]
        return f"(n, {', '.join(map(str, sides))})"

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits, differentiable where the function is."""
        found = self._answer(x)
        return of_labels(found[:, 0], self.classes).to(x.device) if self._labels else found.to(x.device)

    def digest(self) -> str:
        """Hash of the function's source, of what it refers to, and of what it answers to some random inputs."""
        with torch.no_grad(), self._session(torch.device("cpu")):
            found = [self._classes_at(random_inputs(self.domain, COMPARED)) for _ in range(2)]
        told = found[0] if found[0] == found[1] else "random"
        parts = (self._affine, self._asked, self.domain.text())
        return digest_of(self._function, told, *parts)

    def _classes_at(self, x: Tensor) -> list[int]:
        found = self._answer(x)
        return [int(one) for one in (found[:, 0] if found.shape[1] == 1 else found.argmax(1))]

    def _session(self, device: torch.device) -> AbstractContextManager[None]:
        """The modules that the function refers to in evaluation mode; they stay on their device, where they are asked."""
        return evaluating(*self._modules)

    def _given(self, x: Tensor, way: Asked) -> Any:
        if self._affine is not None:
            x = x * self._affine[0].to(x.device) + self._affine[1].to(x.device)
        x = self._as_given(x)
        if way == "numpy arrays":
            return np.ascontiguousarray(x.detach().cpu().numpy())
        home = next((device for module in self._modules if (device := home_of(module)) is not None), None)
        return x if home is None else x.to(home)

    def _answer(self, x: Tensor, way: Asked | None = None) -> Tensor:
        """(n, classes) scores or (n, 1) labels, as a tensor."""
        with evaluating(*(self._modules if any(module.training for module in self._modules) else ())):
            found = self._function(self._given(x, way or self._asked))
        return as_rows(found, len(x), self.name)

    def _probe(self, labels: bool | None) -> tuple[Asked, bool]:
        """What the function takes, and whether it answers with labels."""
        failures: list[str] = []
        for way in WAYS:
            x = random_inputs(self.domain, PROBES).requires_grad_(way == WAYS[0])
            try:
                with torch.set_grad_enabled(way == WAYS[0]):
                    found = self._answer(x, way)
            except BrinellError:
                raise
            except Exception as error:
                failures.append(f"with {way}: {type(error).__name__}: {one_line(error, 90)}")
                continue
            whole = not found.is_floating_point()
            if way == WAYS[0] and not found.requires_grad and not whole:
                continue  # perhaps a function of arrays that takes tensors as well
            return way, self._says_labels(found, whole, labels)
        raise RequestError(
            f"{self.name} cannot take the data, arrays of shape {self._shape} ({'; '.join(failures)}): give it its own shape"
        )

    def _says_labels(self, found: Tensor, whole: bool, labels: bool | None) -> bool:
        if labels is not None:
            return labels
        single = found.shape[1] == 1
        values = found.detach()
        if single and not whole and bool((values == values.round()).all()) and bool((values.abs() > 0).any()):
            raise RequestError(
                f"{self.name} answers one whole number for each input, as labels or as scores: say which by answers='labels' or "
                "answers='logit'"
            )
        return single and whole


def as_rows(found: Any, n: int, name: str) -> Tensor:
    """The answer of a function to `n` inputs as (n, columns), of any library that numpy can read; any other form is refused."""
    found = logits_of(found)
    if not isinstance(found, Tensor):
        try:
            found = torch.as_tensor(np.array(found, copy=True))
        except (TypeError, ValueError, RuntimeError) as error:
            raise RequestError(
                f"{name} answers with a {type(found).__name__} ({one_line(error, 100)}), not with numbers: one row of "
                "scores, or one label, for each input"
            ) from None
    if found.dtype == torch.bool:
        found = found.long()
    found = found[:, None] if found.shape == (n,) else found
    if found.ndim != 2 or len(found) != n:
        raise RequestError(f"{name} answers {n} inputs with shape {tuple(found.shape)}: it must give a row of scores for each")
    rows: Tensor = found.float() if found.is_floating_point() else found
    return rows
