"""Any `torch.nn.Module` as a model, preprocessing included; its weights and training flags are left
unchanged.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from brinell.core.contracts import Access, Domain
from brinell.core.detection import BoxForm
from brinell.core.errors import RequestError, one_line
from brinell.core.model import MapOutput, ModelInfo, as_logits, check_exit
from brinell.core.values import obstacle_of
from brinell.models._containers import (
    code_of,
    evaluation_mode,
    is_training,
    parallel_over,
    uncompiled,
    unwrapped,
)
from brinell.models._content import digest_of
from brinell.models._detections import box_form, is_box_list, pad_boxes
from brinell.models._outputs import Output, find_output, note_of, pick
from brinell.models._shapes import line_that_fits

PREPROCESSING = ("mean", "std", "axis", "flip_axis")
"""Keys of a preprocessing, as in foolbox: subtract `mean`, divide by `std`, both along `axis`
(negative), then reverse `flip_axis`.
"""


class TorchModel:
    """A model around a module that takes the data's inputs and returns logits.

    Inputs get gradients; weights do not: `torch.autograd.grad` to the input alone computes no
    weight gradient, whether the parameters require one or not (measured on convolution, batch norm
    and linear layers: same time, same kernels, same bits).

    Args:
        module: takes (n, *shape), returns (n, classes) logits.
        classes: number of logits; None questions the module once, by `probe`.
        preprocessing: as in foolbox, `dict(mean=..., std=..., axis=-3)`, applied to every input
            before the module.
        bounds: the range (low, high) that preprocessing and module expect, such as (0, 255); by
            default the bounds of the domain, or the units of the table's columns.
        code: further text that determines the answers, such as the source of the module; part of
            the digest.
        class_names: names of the classes in the order of the logits, if they are known.
        output: the part of the answer that holds the logits (`models._outputs`), for a module that
            answers several.
        data_classes: number of classes of the data, by which that part is found.
        map_output: the shape of an answer for each pixel, if `classes` is that of a flattened one.
        dtype: type of the module's inputs; by default that of its parameters.
        moves: False if the module stays on its devices; it does where these are several.
        notes: lines about it that a run prints.
        alternatives: options of its spec under which the same file gives other models.
    """

    def __init__(
        self,
        module: nn.Module,
        domain: Domain,
        classes: int | None = None,
        name: str = "model",
        preprocessing: Mapping[str, Any] | None = None,
        bounds: tuple[float, float] | None = None,
        code: str = "",
        architecture: str = "",
        class_names: tuple[str, ...] = (),
        output: Output = None,
        data_classes: int | None = None,
        map_output: MapOutput | BoxForm | None = None,
        dtype: torch.dtype | None = None,
        moves: bool = True,
        notes: Sequence[str] = (),
        alternatives: tuple[str, ...] = (),
    ) -> None:
        self._parallel = parallel_over(module)
        module, containers = unwrapped(module)
        _check_weights(module, name)
        self.module, self.domain, self.name, self.access = module, domain, name, Access.GRADIENTS
        self._architecture = architecture or type(module).__name__
        self._class_names, self._code = class_names, code

        self._preprocessing = dict(preprocessing or {})
        self._bounds = bounds
        self._flip: int | None = self._preprocessing.get("flip_axis")
        self._dtype = dtype or next(
            (p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32
        )
        # Inputs are prepared in float32 at least, whatever half precision the weights have.
        precise = torch.float64 if self._dtype == torch.float64 else torch.float32
        scale, shift = affine(domain, self._preprocessing, bounds)
        self._scale = scale.to(precise)
        self._shift = shift.to(precise)
        self._identity = bool((self._scale == 1).all() and (self._shift == 0).all())

        self._notes = (*notes, *(f"{name} is asked {note}" for note in containers))
        self._alternatives = alternatives
        if alternatives:
            self._notes += (
                f"the file of {name} holds several models that fit: the first is taken, and "
                f"{' or '.join(f'&{option}' for option in alternatives)} takes another",
            )
        self._output, self._data_classes = output, data_classes
        self.path = None if output is None else str(output)
        """Path of the part of an answer that is read; None for all of it."""
        self._map, self._open = map_output, 0
        self._is_final = False
        self._stays = not moves or self._parallel is not None or len(devices_of(module)) > 1
        self.classes: int = self.probe() if classes is None else classes

    @property
    def info(self) -> ModelInfo:
        """Facts about the module, and its optional abilities: features, a session."""
        return ModelInfo(
            class_names=self._class_names,
            architecture=self._architecture,
            parameters=sum(p.numel() for p in self.module.parameters()),
            module=self.module,
            features=self.features,
            output=self._map,
            answers=None if self._map is None else "logits",
            session=self.session,
            preprocessing={} if self._bounds is not None else self._preprocessing,
            notes=self._notes,
            alternatives=self._alternatives,
            training=lambda: tuple(
                name or "the model"
                for name, part in self.module.named_modules()
                if is_training(part)
            ),
        )

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape) within the bounds, differentiable.

        Outside a `session` each call opens a session for itself, so that an audit never updates a
        batch norm.
        """
        if not self._open and any(is_training(part) for part in self.module.modules()):
            with self.session():
                return self._rows(self._ask(x), x)
        # What `_ask` does, without a further frame between an attack and the network.
        with uncompiled():
            return self._rows((self._parallel or self.module)(self._prepared(x)), x)

    def _ask(self, x: Tensor) -> Any:
        """The module's own answer to inputs of the domain."""
        with uncompiled():
            return (self._parallel or self.module)(self._prepared(x))

    def _prepared(self, x: Tensor) -> Tensor:
        """Inputs of the domain as the module takes them."""
        device, missing = x.device, self.domain.missing(x)
        if not self._identity:
            if self._scale.device != device:
                self._scale, self._shift = self._scale.to(device), self._shift.to(device)
            x = x * self._scale + self._shift
        # The columns that mark missing values are ours: the model gets NaN instead.
        if missing is not None:
            x = x.masked_fill(missing, torch.nan)[
                :, [not column.marks for column in self.domain.columns]
            ]
        if self._flip is not None:
            x = x.flip(self._flip)

        if self._stays:
            x = x.to(device_of(self.module) or device)
        return x if self._dtype == x.dtype else x.to(self._dtype)

    def _rows(self, answer: Any, x: Tensor) -> Tensor:
        """The logits in an answer as rows; single numbers per input get an axis of size 1."""
        logits = self._part(answer, x)
        # What is no tensor of real numbers is refused by whoever asks, with a remedy.
        if not isinstance(logits, Tensor) or obstacle_of(logits):
            unfit: Tensor = logits
            return unfit
        if logits.shape == (len(x),) and not logits.is_floating_point():
            raise RequestError(
                f"{self.name} answers one whole number for each input, such as "
                "the predicted class: return the logits before "
                "argmax, or give a function of inputs with answers=labels"
            )

        if self._map is not None and logits.shape[1:] == self._map.shape:
            logits = logits.flatten(1)
        return as_logits(logits.unsqueeze(1) if logits.shape == (len(x),) else logits).to(x.device)

    def _part(self, answer: Any, x: Tensor) -> Any:
        """The part of an answer that holds the logits, or final boxes as candidates."""
        if is_box_list(answer) and self._data_classes is not None:
            self.access, self._is_final = Access.SCORES, True
            return pad_boxes(answer, self._data_classes, x, self.name)
        return logits_of(answer) if self.path is None else pick(answer, self.path)

    def features(self, x: Tensor) -> Tensor:
        """(n, d) input of the last linear layer, which papers call penultimate; else the logits."""
        inputs: list[Tensor] = []
        linear = [part for part in self.module.modules() if isinstance(part, nn.Linear)]
        # Copies, into which later code cannot write.
        handles = [
            part.register_forward_pre_hook(lambda part, args: inputs.append(args[0].clone()))
            for part in linear
        ]

        try:
            logits = self.predict(x)
        finally:
            for handle in handles:
                handle.remove()
        # Layers within a sequence see more rows than there are inputs.
        penultimate = inputs[-1] if inputs and len(inputs[-1]) == len(x) else logits
        return penultimate.flatten(1)

    def probe(self) -> int:
        """Number of logits, by one forward pass on an input of zeros.

        It takes one more if the answer has several parts.
        """
        device = device_of(self.module) or torch.device("cpu")
        x = self.domain.clamp(torch.zeros(1, *self.domain.shape, device=device))
        version = x._version
        try:
            with self.session(), torch.no_grad():
                answer: object = self._rows(self._ask(x), x)
                # Of several parts two inputs show which have rows.
                if not isinstance(answer, Tensor):
                    pair = self._ask(x.expand(2, *x.shape[1:]))
                    self.path = find_output(pair, self._output, 2, self._data_classes, self.name)
                    self._notes += note_of(self.path, self._output, self.name)
                    answer = self._rows(self._ask(x), x)

        except BaseException as error:
            check_exit(self.name, error)
            with self.session():
                line = line_that_fits(self._ask, x.expand(2, *x.shape[1:]))
            raise RequestError(
                f"{self.name} cannot take the data, {self.domain.kind}s of shape "
                f"{self.domain.shape}",
                f"{type(error).__name__}: {one_line(error)}",
                f"let the model begin with {line}" if line else "no usual shape fits it",
            ) from error
        # The version of a tensor counts writes into it.
        if x._version != version:
            raise RequestError(
                f"{self.name} writes into its input, which is needed again: write "
                "x = x - mean for x -= mean, and inplace=False"
            )
        return self.count_columns(answer)

    def count_columns(self, answer: Any) -> int:
        """Number of logits in an answer; maps and boxes count as flattened.

        Sets the form of the model's output, `_map`, if the answer is a map or boxes.
        """
        if not isinstance(answer, Tensor):
            kind = type(answer).__name__
            raise RequestError(
                f"{self.name} answers with a {kind}, not with a tensor of logits: "
                "wrap it so that it does"
            )

        is_image = self.domain.kind == "image"
        sides = answer.shape[1:]
        # One pixel is no map: logits that were pooled and not flattened are refused below.
        if is_image and answer.ndim == 4 and math.prod(sides[1:]) > 1:
            self._map = MapOutput(classes=sides[0], height=sides[1], width=sides[2])
        # A map of whole numbers is one of classes, whose gradient is zero everywhere.
        elif is_image and sides == self.domain.shape[1:] and bool((answer == answer.round()).all()):
            raise RequestError(
                f"{self.name} answers whole numbers of shape "
                f"{tuple(answer.shape)}, such as the class of each pixel: return "
                "the "
                "logits (n, classes, height, width) before argmax"
            )
        # More than four columns: corners and a score for at least one class.
        elif is_image and answer.ndim == 3 and sides[1] > 4:
            self._map = box_form(answer, len(answer), self.name, final=self._is_final)
            if self._is_final:
                self._notes += (
                    f"{self.name} answers final boxes, without gradients: attacks "
                    "ask it for scores",
                )
        elif answer.ndim != 2:
            raise RequestError(
                f"{self.name} answers one input of the {self.domain.kind}s of "
                f"shape {self.domain.shape} with shape "
                f"{(1, *sides)}; it must give (1, classes) logits"
            )

        return math.prod(sides)

    @contextmanager
    def session(self, device: torch.device | str | None = None) -> Iterator[None]:
        """Set the module to evaluation mode and move it to `device` if one is given.

        Both are restored at the end. A module on several devices stays where it is: its weights may
        not fit on one.
        """
        device = None if self._stays else device
        # The device of the module before, which a nested session may have changed already.
        original_device = device_of(self.module)
        self._open += 1
        try:
            with evaluation_mode(self.module):
                if device is not None:
                    self.module.to(device)
                yield
        finally:
            self._open -= 1
            if device is not None and original_device is not None:
                self.module.to(original_device)

    def digest(self) -> str:
        """Hash of the module (structure, code, parameters, buffers) and its preprocessing."""
        # Expanded, so that one number for all channels counts like the same number for each.
        shape = (1, *self.domain.shape)
        return digest_of(
            self.module,
            code_of(self.module),
            self._code,
            self._scale.cpu().expand(shape),
            self._shift.cpu().expand(shape),
            self._flip,
            self.domain.text(),
            self.path,
        )


def device_of(module: nn.Module) -> torch.device | None:
    """The first device of a module; None if it has neither parameters nor buffers."""
    return next((tensor.device for tensor in chain(module.parameters(), module.buffers())), None)


def devices_of(module: nn.Module) -> set[torch.device]:
    """All devices of a module's parameters and buffers; a single number may lie anywhere."""
    return {tensor.device for tensor in chain(module.parameters(), module.buffers()) if tensor.ndim}


def logits_of(answer: Any) -> Any:
    """The attribute or key `logits` of an answer, as of transformers; else the answer itself."""
    if isinstance(answer, Tensor | np.ndarray):
        return answer
    return (
        answer.get("logits", answer)
        if isinstance(answer, dict)
        else getattr(answer, "logits", answer)
    )


def affine(
    domain: Domain, preprocessing: Mapping[str, Any], bounds: tuple[float, float] | None
) -> tuple[Tensor, Tensor]:
    """Scale and shift (float64) that convert an input of the domain to the module's range."""
    if unknown := sorted(set(preprocessing) - set(PREPROCESSING)):
        raise RequestError(
            f"preprocessing has no {unknown[0]!r}; it has {', '.join(PREPROCESSING)}"
        )

    # A model of tables expects the units of their columns.
    low, high = (bound.double() for bound in domain.bounds())
    origin = torch.zeros(1, *domain.shape, dtype=torch.float64)
    shift = domain.in_units(origin) if domain.columns else torch.zeros(1, dtype=torch.float64)
    scale = (
        domain.in_units(origin + 1) - shift
        if domain.columns
        else torch.ones(1, dtype=torch.float64)
    )

    if bounds is not None:
        if not bounds[0] < bounds[1]:
            raise RequestError(f"bounds {bounds}: the lower one must be the smaller")
        scale = (bounds[1] - bounds[0]) / (high - low)
        shift = bounds[0] - low * scale
    mean = _along(domain, preprocessing, "mean", default=0.0)
    std = _along(domain, preprocessing, "std", default=1.0)

    # A division by 0 would make every input infinite or NaN.
    if not bool((std != 0).all()):
        raise RequestError("preprocessing divides by a std of 0")
    scale, shift = scale / std, (shift - mean) / std
    return scale, shift


def _along(domain: Domain, preprocessing: Mapping[str, Any], key: str, default: float) -> Tensor:
    """The numbers of mean or std, in a shape that broadcasts against inputs of the domain."""
    value = preprocessing.get(key)
    # In double precision, so that mean and std lose nothing before they are combined.
    numbers = torch.as_tensor(default if value is None else value, dtype=torch.float64).cpu()
    axis, axes = preprocessing.get("axis"), len(domain.shape)
    if numbers.ndim == 0:
        return numbers
    if axis is None and numbers.ndim == 1:
        raise RequestError(
            f"preprocessing gives {len(numbers)} values of {key} and no axis; for "
            "images it is axis=-3"
        )

    # An axis counts from the end, since inputs have the samples in front.
    if axis is not None:
        if numbers.ndim != 1 or not -axes <= axis < 0:
            raise RequestError(
                f"preprocessing along axis {axis}: it must be -{axes} to -1, and "
                f"{key} a list of numbers"
            )
        numbers = numbers.reshape(-1, *[1] * (-axis - 1))
    try:
        numbers.expand(1, *domain.shape)
    except RuntimeError:
        if axis == -axes:
            channels = domain.shape[0]
            raise RequestError(
                f"{key}= has {len(numbers)} values, and the inputs have "
                f"{channels} channels: give one value, or one for each"
            ) from None
        raise RequestError(
            f"preprocessing has a {key} of shape {tuple(numbers.shape)} for "
            f"inputs of shape {domain.shape}"
        ) from None
    return numbers


def _check_weights(module: nn.Module, name: str) -> None:
    """Refuse weights without values, and those that gradients do not pass."""
    if any(tensor.is_meta for tensor in chain(module.parameters(), module.buffers())):
        raise RequestError(
            f"{name} is on the meta device, where weights have no values: load it to cpu or cuda"
        )
    if any(weight.is_inference() for weight in module.parameters() if not is_lazy(weight)):
        raise RequestError(
            f"{name} has weights of inference mode, which gradients do not "
            "pass: make it outside of that mode"
        )
