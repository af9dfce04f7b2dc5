"""Any Python function as a model. It takes torch tensors or NumPy arrays and returns scores or labels.

The accepted input form is found by trying, in this order, a tensor that requires a gradient, an array, a plain tensor. The
first form that works is used and reported in a note. If the function's answers to tensors are differentiable, it offers
gradients, so a closure around torch modules is attacked like a module. Modules that the function refers to are in evaluation
mode during each call.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.model import Access, ModelInfo, answering, as_logits, check_exit
from brinell.core.values import as_tensor
from brinell.models._answers import logits_of_labels, random_inputs
from brinell.models._containers import evaluation_mode, is_training, uncompiled
from brinell.models._content import digest_of, modules_in
from brinell.models._devices import device_of
from brinell.models._outputs import Output, find_output, has_parts, note_of, pick
from brinell.models._torch_model import affine, logits_of

InputForm = Literal["tensors with gradients", "numpy arrays", "tensors"]
INPUT_FORMS: tuple[InputForm, ...] = ("tensors with gradients", "numpy arrays", "tensors")
PROBES = 3
"""Number of random inputs that show which inputs a function takes and what it answers."""
DIGEST_INPUTS = 16
"""Number of random inputs whose predicted classes are part of the digest."""


class CallableModel:
    """A model around a function of inputs (n, *shape), in the layout in which the user passed the data.

    Args:
        function: returns (n, classes) scores, (n,) labels, or (n,) scores of the second of two classes, as a torch tensor, a
            NumPy array or anything that NumPy converts to one; also an object whose attribute `logits` holds the scores.
        domain: domain of the inputs.
        classes: number of classes, for a function that returns labels.
        name: name in reports.
        user_layout: converts (n, *shape) inputs to the layout that the function takes; by default the layout of the domain.
        preprocessing: as in foolbox, `dict(mean=..., std=..., axis=-3)`, applied to every input before the function.
        labels: True if the function returns labels, False if it returns scores; needed only if whole numbers leave it open.
        output: the part of an answer that holds scores or labels (`models._outputs`).
        class_names: names of the classes in the order of the scores, if the function states them.

    Raises:
        RequestError: the function fails on the data, or its answers have none of these forms.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        domain: Domain,
        *,
        classes: int,
        name: str,
        user_layout: Callable[[Tensor], Tensor] = lambda x: x,
        preprocessing: Mapping[str, Any] | None = None,
        labels: bool | None = None,
        output: Output = None,
        class_names: tuple[str, ...] = (),
    ) -> None:
        self.name, self.domain = name, domain
        self._function, self._user_layout = function, user_layout
        if preprocessing and preprocessing.get("flip_axis") is not None:
            raise RequestError(f"flip_axis is for modules: reverse the channels inside {name}")
        scale, shift = affine(domain, preprocessing or {}, None)
        self._affine = None if bool((scale == 1).all() and (shift == 0).all()) else (scale, shift)
        self._modules = modules_in(function)
        self._output, self._path, self.classes = output, None if output is None else str(output), classes
        self._input_form, self._labels = self._probe(labels)
        with torch.no_grad(), answering(name, PROBES):
            answer = self._answer(random_inputs(self.domain, PROBES))
        self.classes = classes if self._labels else answer.shape[1]
        gradients = self._input_form == INPUT_FORMS[0] and not self._labels
        self.access = Access.LABELS if self._labels else Access.GRADIENTS if gradients else Access.SCORES
        self.info = ModelInfo(
            class_names=class_names,
            architecture=type(function).__name__,
            answers="one-hot" if self._labels else None,
            session=self._session,
            preprocessing=dict(preprocessing or {}),
            notes=(
                f"{name} is asked with {self._input_form} of shape {self._shape}, and gives {self.access.name.lower()}",
                *note_of(self._path or "", output, name),
            ),
        )

    @property
    def _shape(self) -> str:
        """Shape of the inputs that the function takes, as text."""
        sides = self._user_layout(random_inputs(self.domain, 1)).shape[1:]
        return f"(n, {', '.join(map(str, sides))})"

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape), differentiable if the function is."""
        answer = self._answer(x)
        return logits_of_labels(answer[:, 0], self.classes).to(x.device) if self._labels else as_logits(answer).to(x.device)

    def digest(self) -> str:
        """Hash of the function's source, of the values that it refers to, and of its predicted classes on some random inputs."""
        with torch.no_grad(), self._session(torch.device("cpu")), answering(self.name, DIGEST_INPUTS):
            classes = [self._classes_at(random_inputs(self.domain, DIGEST_INPUTS)) for _ in range(2)]
        summary = classes[0] if classes[0] == classes[1] else "random"
        parts = (self._affine, self._input_form, self.domain.text(), *([self._path] if self._path else []))
        return digest_of(self._function, summary, *parts)

    def _classes_at(self, x: Tensor) -> list[int]:
        """Predicted classes of inputs."""
        answer = self._answer(x)
        return [int(label) for label in (answer[:, 0] if answer.shape[1] == 1 else answer.argmax(1))]

    def _session(self, device: torch.device) -> AbstractContextManager[None]:
        """Set the modules that the function refers to to evaluation mode; they stay on their devices."""
        return evaluation_mode(*self._modules)

    def _convert(self, x: Tensor, form: InputForm) -> Any:
        """Inputs in the form and layout of the function."""
        if self._affine is not None:
            x = x * self._affine[0].to(x.device) + self._affine[1].to(x.device)
        x = self._user_layout(x)
        if form == "numpy arrays":
            return np.ascontiguousarray(x.detach().cpu().numpy())
        home = next((device for module in self._modules if (device := device_of(module)) is not None), None)
        return x if home is None else x.to(home)

    def _answer(self, x: Tensor, form: InputForm | None = None) -> Tensor:
        """(n, classes) scores or (n, 1) labels, as a tensor."""
        with evaluation_mode(*(self._modules if any(map(is_training, self._modules)) else ())), uncompiled():
            answer = self._function(self._convert(x, form or self._input_form))
        if self._path is None and has_parts(answer):
            self._path = find_output(answer, self._output, len(x), self.classes, self.name)
        part = answer if self._path is None else pick(answer, self._path)
        if part is None:
            find_output(answer, self._output, len(x), self.classes, self.name)
        return as_rows(part, len(x), self.name)

    def _probe(self, labels: bool | None) -> tuple[InputForm, bool]:
        """The input form that the function takes, and True if it returns labels."""
        failures: list[str] = []
        for form in INPUT_FORMS:
            x = random_inputs(self.domain, PROBES).requires_grad_(form == INPUT_FORMS[0])
            try:
                with torch.set_grad_enabled(form == INPUT_FORMS[0]):
                    answer = self._answer(x, form)
            except BaseException as error:
                check_exit(self.name, error)
                failures.append(f"with {form}: {type(error).__name__}: {one_line(error, 90)}")
                continue
            integers = not answer.is_floating_point()
            if form == INPUT_FORMS[0] and not answer.requires_grad and not integers:
                continue  # perhaps a function of arrays that takes tensors as well
            return form, self._answers_labels(answer, integers, labels)
        problem = f"{self.name} cannot take the data, arrays of shape {self._shape} ({'; '.join(failures)})"
        raise RequestError(f"{problem}: give it inputs of its own shape and type")

    def _answers_labels(self, answer: Tensor, integers: bool, labels: bool | None) -> bool:
        if labels is not None:
            return labels
        single = answer.shape[1] == 1
        values = answer.detach()
        if single and not integers and bool((values == values.round()).all()) and bool((values.abs() > 0).any()):
            raise RequestError(
                f"{self.name} answers one whole number for each input, as labels or as scores: say which by answers='labels' or "
                "answers='logit'"
            )
        return single and integers


def as_rows(answer: Any, n: int, name: str) -> Tensor:
    """A function's answer to `n` inputs as (n, columns) tensor; refuses answers other than one row of numbers per input."""
    answer = logits_of(answer)
    if not isinstance(answer, Tensor):
        try:
            answer = as_tensor(answer, "answers")
        except Exception as error:
            raise RequestError(
                f"{name} answers with a {type(answer).__name__} ({one_line(error, 100)}), not with numbers: one row of "
                "scores, or one label, for each input"
            ) from None
    if answer.dtype == torch.bool:
        answer = answer.long()
    answer = answer[:, None] if answer.shape == (n,) else answer
    if answer.ndim != 2 or len(answer) != n:
        raise RequestError(f"{name} answers {n} inputs with shape {tuple(answer.shape)}: it must give a row of scores for each")
    rows: Tensor = as_logits(answer) if answer.is_floating_point() else answer
    return rows
