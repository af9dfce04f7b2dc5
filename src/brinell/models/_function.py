"""Any Python function as a model.

It takes torch tensors or NumPy arrays and returns scores or labels.

The accepted input form is found by trying, in this order, a tensor that requires a gradient, an
array, a plain tensor. The first form that works is used and reported in a note. If the function's
answers to tensors are differentiable, it offers gradients, so a closure around torch modules is
attacked like a module. Modules that the function refers to are in evaluation mode during each call,
and stay on their devices.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.model import Access, ModelInfo, answering, check_exit
from brinell.core.values import as_tensor
from brinell.models._answers import logits_of_labels, random_inputs
from brinell.models._content import digest_of, modules_in
from brinell.models._outputs import find_output, has_parts, note_of
from brinell.models._torch_model import TorchModel

InputForm = Literal["tensors with gradients", "numpy arrays", "tensors"]
INPUT_FORMS: tuple[InputForm, ...] = ("tensors with gradients", "numpy arrays", "tensors")
ARRAYS: tuple[InputForm, ...] = ("numpy arrays",)
PROBES = 3
"""Number of random inputs that show which inputs a function takes and what it answers."""
DIGEST_INPUTS = 16
"""Number of random inputs whose predicted classes are part of the digest."""


class Function(nn.Module):
    """A function as a module, whose submodules are those that it refers to."""

    def __init__(
        self, function: Callable[[Any], Any], user_layout: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.function: Any = function
        self.user_layout, self.form = user_layout, INPUT_FORMS[0]
        for number, part in enumerate(modules_in(function)):
            self.add_module(str(number), part)

    def forward(self, x: Tensor) -> Any:
        """The function's own answer to inputs in the layout of the domain."""
        x = self.user_layout(x)
        return self.function(
            np.ascontiguousarray(x.detach().cpu().numpy()) if self.form == "numpy arrays" else x
        )


class FunctionModel(TorchModel):
    """A model around a function of inputs (n, *shape), in the layout of the user's data.

    Args:
        function: returns (n, classes) scores, (n,) labels, or (n,) scores of the second of two
            classes, as a torch tensor, a NumPy array or anything that NumPy converts to one; also
            an object whose attribute `logits` holds the scores.
        classes: number of classes, for a function that returns labels.
        user_layout: converts (n, *shape) inputs to the layout that the function takes; by default
            the layout of the domain.
        labels: True if the function returns labels, False if it returns scores; needed only if
            whole numbers leave it open.
        forms: forms of the inputs that are tried.
        code: hash of the function, if it is known, such as that of a file.
        gradients: spec under which the same network gives gradients.
    """

    module: Function

    def __init__(
        self,
        function: Callable[[Any], Any],
        domain: Domain,
        *,
        classes: int,
        name: str,
        user_layout: Callable[[Tensor], Tensor] = lambda x: x,
        labels: bool | None = None,
        forms: Sequence[InputForm] = INPUT_FORMS,
        dtype: torch.dtype = torch.float32,
        code: str = "",
        gradients: str = "",
        **settings: Any,
    ) -> None:

        self._labels, self._forms, self._gradients = labels, forms, gradients
        # The number of classes shows which part of an answer holds the logits.
        settings = {"architecture": type(function).__name__, **settings, "data_classes": classes}
        super().__init__(
            Function(function, user_layout),
            domain,
            name=name,
            dtype=dtype,
            code=code,
            moves=False,
            **settings,
        )

    @property
    def info(self) -> ModelInfo:
        """The same as of a module, without what only a module can show."""
        answers = "one-hot" if self._labels else super().info.answers
        hidden: dict[str, Any] = dict.fromkeys(("module", "features", "parameters", "training"))
        return replace(super().info, answers=answers, gradients=self._gradients, **hidden)

    def add_note(self, note: str) -> None:
        """Add a line about the model that the run prints."""
        self._notes += (note,)

    def digest(self) -> str:
        """Hash of the function, of what it refers to, and of its classes for some random inputs."""
        if self._code:
            return digest_of(super().digest(), self._labels)

        # Two functions of one source may answer differently, by what they read when called.
        x = random_inputs(self.domain, DIGEST_INPUTS)
        with torch.no_grad(), answering(self.name, DIGEST_INPUTS):
            classes = [self.predict(x).argmax(1).tolist() for _ in range(2)]
        summary = classes[0] if classes[0] == classes[1] else "random"
        return digest_of(
            super().digest(), self.module.function, summary, self.module.form, self._labels
        )

    def probe(self) -> int:
        """Number of logits; sets the form of the inputs and the part of the answers
        that is read.
        """
        failures: list[str] = []
        x = random_inputs(self.domain, PROBES)
        shape = f"(n, {', '.join(map(str, self.module.user_layout(x).shape[1:]))})"
        for form in self._forms:
            differentiates = form == INPUT_FORMS[0]
            try:
                numbers = self._numbers_in(form, x, differentiates)
            except BaseException as error:
                check_exit(self.name, error)
                failures.append(f"with {form}: {type(error).__name__}: {one_line(error, 90)}")
                continue
            # Otherwise it may be a function of arrays that takes tensors as well.
            if (
                self._labels
                or not differentiates
                or numbers.requires_grad
                or not numbers.is_floating_point()
            ):
                break
        else:
            raise RequestError(
                f"{self.name} cannot take the data, arrays of shape {shape}", "; ".join(failures)
            )

        if self._labels is None:
            self._labels = self._answers_labels(numbers)
        gradients = differentiates and not self._labels
        self.access = (
            Access.LABELS if self._labels else Access.GRADIENTS if gradients else Access.SCORES
        )
        if len(self._forms) > 1:
            self.add_note(
                f"{self.name} is asked with {form} of shape {shape}, and gives "
                f"{self.access.name.lower()}"
            )
        self._notes += note_of(self.path or "", self._output, self.name)
        return self._data_classes or 0 if self._labels else self.count_columns(numbers)

    def _numbers_in(self, form: InputForm, x: Tensor, differentiates: bool) -> Tensor:
        """The numbers in the answer to inputs in a form; sets the part of the answers
        that is read.
        """
        self.module.form = form
        with self.session(), torch.set_grad_enabled(differentiates):
            answer = self._ask(x.clone().requires_grad_(differentiates))
            if self.path is None and has_parts(answer):
                self.path = find_output(answer, self._output, PROBES, self._data_classes, self.name)
            numbers: Tensor = self._part(answer, x)
        return numbers

    def _answers_labels(self, answer: Tensor) -> bool:
        """True if an answer holds one label for each input, and not scores."""
        single, values = answer[0].numel() == 1, answer.detach()
        # A column of whole numbers may be either: a guess would turn all classes around.
        if (
            single
            and answer.is_floating_point()
            and bool((values == values.round()).all() and (values != 0).any())
        ):
            raise RequestError(
                f"{self.name} answers one whole number for each input, as labels "
                "or as scores: say which by answers='labels' or "
                "answers='logit'"
            )
        return single and not answer.is_floating_point()

    def _part(self, answer: Any, x: Tensor) -> Any:
        """The scores in an answer as a tensor (n, ...), labels as logits that are
        certain of them.
        """
        part = super()._part(answer, x)
        # Functions answer by arrays or lists; a tensor keeps its gradient.
        if not isinstance(part, Tensor):
            try:
                part = as_tensor(part, "answers")
            except Exception as error:
                raise RequestError(
                    f"{self.name} answers with a {type(part).__name__} "
                    f"({one_line(error, 100)}), not with numbers: one row of "
                    "scores, or one label, for each input"
                ) from None

        part = part.long() if part.dtype == torch.bool else part
        if not part.ndim or len(part) != len(x):
            raise RequestError(
                f"{self.name} answers {len(x)} inputs with shape "
                f"{tuple(part.shape)}: it must give a row of scores for each"
            )
        # One number for each input is a column of its own.
        part = part.unsqueeze(1) if part.ndim == 1 else part
        return logits_of_labels(part[:, 0], self._data_classes or 0) if self._labels else part
