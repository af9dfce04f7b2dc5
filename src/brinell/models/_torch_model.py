"""Any `torch.nn.Module` as a model, preprocessing included; its weights and training flags are left unchanged."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from brinell.core.contracts import Access, Domain
from brinell.core.detection import BoxForm
from brinell.core.errors import BrinellError, ModelError, RequestError, one_line
from brinell.core.hooks import hookable, watch_calls
from brinell.core.model import MapOutput, ModelInfo, answering, as_logits, check_exit
from brinell.core.values import obstacle_of
from brinell.models import _first_conv as first_conv
from brinell.models._containers import code_of, evaluation_mode, is_training, parallel_over, uncompiled, unwrapped
from brinell.models._content import digest_of, structure_of
from brinell.models._detections import access_note, box_form, is_box_list, pad_boxes
from brinell.models._devices import device_of, devices_of, is_mixed, left_behind
from brinell.models._outputs import Output, find_output, note_of, pick

PREPROCESSING = ("mean", "std", "axis", "flip_axis")
"""Keys of a preprocessing, as in foolbox: subtract `mean`, divide by `std`, both along `axis` (negative), then reverse
`flip_axis`.
"""

DEEP = 16
"""Number of convolutions from which a module is faster with channels last on a CPU (docs/results/performance.md); modules with
max pooling always are.
"""


class TorchModel:
    """A model around a module that takes the data's inputs and returns logits.

    Inputs get gradients; weights do not: `torch.autograd.grad` to the input alone computes no weight gradient, whether the
    parameters require one or not (measured on convolution, batch norm and linear layers: same time, same kernels, same bits).

    Args:
        module: takes (n, *shape), returns (n, classes) logits.
        domain: domain of the inputs.
        classes: number of logits; None questions the module once, by `probe`.
        name: name in reports.
        preprocessing: as in foolbox, `dict(mean=..., std=..., axis=-3)`, applied to every input before the module.
        bounds: the range (low, high) that preprocessing and module expect, such as (0, 255); by default the bounds of the
            domain, or the units of the table's columns.
        code: further text that determines the answers, such as the source of the module; part of the digest.
        architecture: name of the architecture; by default the name of the module's class.
        class_names: names of the classes in the order of the logits, if they are known.
        output: the part of the answer that holds the logits (`models._outputs`), for a module that answers several.
        data_classes: number of classes of the data, by which that part is found.
        map_output: the shape of an answer for each pixel, if `classes` is that of a flattened one.

    Raises:
        RequestError: the preprocessing is invalid, or the module cannot take the data.
    """

    access = Access.GRADIENTS

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
    ) -> None:
        parallel = parallel_over(module)
        module, notes = unwrapped(module)
        if any(tensor.is_meta for tensor in chain(module.parameters(), module.buffers())):
            raise RequestError(f"{name} is on the meta device, where weights have no values: load it to cpu or cuda")
        self.module, self.domain, self.name = module, domain, name
        self._architecture, self._class_names = architecture or type(module).__name__, class_names
        self._preprocessing, self._bounds, self._code = dict(preprocessing or {}), bounds, code
        self._flip: int | None = self._preprocessing.get("flip_axis")
        self._scale, self._shift = affine(domain, self._preprocessing, bounds)
        self._identity = bool((self._scale == 1).all() and (self._shift == 0).all())
        self._notes = tuple(f"{name} is asked {note}" for note in notes)
        self._output, self._path, self._data_classes = output, None if output is None else str(output), data_classes
        self._map = map_output
        self._open = 0
        self._channels_last = self._first_conv = False
        self._parallel = parallel
        self._spread = parallel is not None or len(devices_of(module)) > 1
        self._dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        self.classes: int = self.probe() if classes is None else classes

    @property
    def info(self) -> ModelInfo:
        """Architecture and number of parameters, and the model's optional abilities: features, a session."""
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
            training=lambda: tuple(name or "the model" for name, part in self.module.named_modules() if is_training(part)),
        )

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape) within the bounds, differentiable.

        Outside a `session` each call opens a session for itself, so that an audit never updates a batch norm.
        """
        if not self._open and any(is_training(part) for part in self.module.modules()):
            with self.session():
                return self._answer(x)
        return self._answer(x)

    def _answer(self, x: Tensor) -> Tensor:
        """Logits of the module on normalised inputs."""
        if not self._identity:
            if self._scale.device != x.device:
                self._scale, self._shift = self._scale.to(x.device), self._shift.to(x.device)
            x = x * self._scale + self._shift
        if self._flip is not None:
            x = x.flip(self._flip)
        if self._channels_last and x.device.type == "cpu":
            x = channels_last(x)
        with uncompiled():
            return self._rows_of(x) if not self._spread else self._rows_of_spread(x)

    def _rows_of(self, x: Tensor) -> Tensor:
        """Logits of the module on inputs in its own range."""
        module = self.module if self._parallel is None else self._parallel
        try:
            if self._dtype != x.dtype:
                return self._rows(module(x.to(self._dtype)), x)
            with first_conv.FastGradient() if self._first_conv and x.requires_grad and x.device.type == "cpu" else nullcontext():
                return self._rows(module(x), x)
        except RuntimeError as error:
            if is_mixed(error) and (remedy := left_behind(self.module, x.device)):
                raise ModelError(f"model {self.name} does not lie on one device ({one_line(error)}): {remedy}") from error
            raise

    def _rows_of_spread(self, x: Tensor) -> Tensor:
        """The same of a module on several devices: inputs go to its first, and logits come back."""
        return self._rows_of(x.to(device_of(self.module) or x.device)).to(x.device)

    def _rows(self, answer: Any, x: Tensor) -> Tensor:
        """The logits in an answer as rows; single numbers per input get an axis of size 1."""
        if is_box_list(answer) and self._data_classes is not None:
            answer, self.access = pad_boxes(answer, self._data_classes, x, self.name), Access.SCORES
        logits: Any = logits_of(answer) if self._path is None else pick(answer, self._path)
        if not isinstance(logits, Tensor) or obstacle_of(logits):
            unfit: Tensor = logits
            return unfit
        if self._map is not None and logits.shape[1:] == self._map.shape:
            logits = logits.flatten(1)
        return as_logits(logits.unsqueeze(1) if logits.shape == (len(x),) else logits)

    def features(self, x: Tensor) -> Tensor:
        """(n, d) input of the last linear layer (the penultimate layer of papers); the logits if no linear layer exists."""
        inputs: list[Tensor] = []
        layers = {name: part for name, part in hookable(self.module).items() if isinstance(part, nn.Linear)}
        with watch_calls(layers, before=lambda call: inputs.append(call.args[0])):
            logits = self.predict(x)
        penultimate = inputs[-1] if inputs and len(inputs[-1]) == len(x) else logits
        return penultimate.flatten(1)

    def probe(self) -> int:
        """Number of logits, by one forward pass on an input of zeros; two more passes if the memory layout matters."""
        device = device_of(self.module) or torch.device("cpu")
        x = self.domain.clamp(torch.zeros(1, *self.domain.shape, device=device))
        shape = f"{self.domain.kind}s of shape {self.domain.shape}"
        try:
            version = x._version
            with self.session(), torch.no_grad(), _CallCounter() as calls:
                answer: object = self._answer(x)
        except BaseException as error:
            if isinstance(error, ModelError):  # it does not lie on one device
                raise RequestError(str(error)) from error
            check_exit(self.name, error)
            remedy = "give it inputs of its own shape and type"
            if "more than 1 value per channel when training" in str(error):  # torch's words, of batch norm asked for one input
                remedy = "batch norm is in training mode in its forward pass: take train() or training=True out of it"
            raise RequestError(
                f"{self.name} cannot take the data, {shape} ({type(error).__name__}: {one_line(error)}): {remedy}"
            ) from error
        if x._version != version:
            raise RequestError(
                f"{self.name} writes into its input, which is needed again: write x = x - mean for x -= mean, and inplace=False"
            )
        if not isinstance(answer, Tensor):
            answer = self._probe_parts(x)
        if not isinstance(answer, Tensor):
            kind = type(answer).__name__
            raise RequestError(f"{self.name} answers with a {kind}, not with a tensor of logits: wrap it so that it does")
        answer = self._flatten(answer)
        if answer.ndim != 2 or len(answer) != 1:
            sides = answer.shape[2:]
            remedy = ": end the model with Flatten()" if len(answer) == 1 and sides and math.prod(sides) == 1 else ""
            raise RequestError(
                f"{self.name} answers one input of the {shape} with shape {tuple(answer.shape)}; it must give (1, classes) "
                f"logits{remedy}"
            )
        self._first_conv = calls.first_conv
        if self.domain.kind == "image" and len(self.domain.shape) == 3 and (calls.max_pool2d or calls.conv2d >= DEEP):
            self._channels_last = self._takes_channels_last(device)
        return answer.shape[1]

    def _flatten(self, answer: Tensor) -> Tensor:
        """An answer to one input as a row; notes the form of a map or of boxes.

        Raises:
            RequestError: a map of classes without scores, or boxes in another form than a detector's.
        """
        if self.domain.kind != "image":
            return answer
        if answer.ndim == 4 and len(answer) == 1 and math.prod(answer.shape[2:]) > 1:
            self._map = MapOutput(classes=answer.shape[1], height=answer.shape[2], width=answer.shape[3])
            return answer.flatten(1)
        if answer.ndim == 3 and answer.shape[1:] == self.domain.shape[1:] and bool((answer == answer.round()).all()):
            raise RequestError(
                f"{self.name} answers whole numbers of shape {tuple(answer.shape)}, such as the class of each pixel: return the "
                "logits (n, classes, height, width) before argmax"
            )
        if answer.ndim == 3 and answer.shape[2] > 4:
            final = self.access == Access.SCORES
            self._map = box_form(answer, 1, max(self.domain.shape[1:]), self.name, final=final)
            self._notes += (access_note(self.name),) if final else ()
            return answer.flatten(1)
        return answer

    def _probe_parts(self, x: Tensor) -> object:
        """The logits for one input, from an answer of several parts, with two inputs to see which parts have rows."""
        with self.session(), torch.no_grad(), uncompiled(), answering(self.name, 2):
            self._path = ""  # the whole answer
            whole: Any = self._answer(x.expand(2, *x.shape[1:]))
            self._path = find_output(whole, self._output, 2, self._data_classes, self.name)
            self._notes += note_of(self._path, self._output, self.name)
            return self._answer(x)

    def _takes_channels_last(self, device: torch.device) -> bool:
        """True if the module gives the same answer with the channels of images last in memory.

        A module that calls `view` on the output of a convolution may fail on that layout. The test is made only if the calls of
        the module satisfy a fixed rule, not by measured times, so that a resumed run chooses the same kernels.
        """
        ramp = torch.linspace(0, 1, math.prod(self.domain.shape), device=device).reshape(1, *self.domain.shape)
        low, high = self.domain.bounds(ramp)
        x = low + ramp * (high - low)
        try:
            with self.session(), torch.no_grad(), answering(self.name, 1):
                plain = self._answer(x)
                self._channels_last = True
                return bool(torch.allclose(plain, self._answer(x), rtol=1e-3, atol=1e-4))
        except BrinellError:
            return False
        finally:
            self._channels_last = False

    @contextmanager
    def session(self, device: torch.device | str | None = None) -> Iterator[None]:
        """Set the module to evaluation mode and move it to `device` if one is given; restore both at the end.

        A module on several devices stays where it is: its weights may not fit on one.
        """
        device = None if self._spread else device
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
        """Hash of structure, source of the module's classes, parameters, buffers and preprocessing; computed on each call."""
        hash = hashlib.blake2b(digest_size=16)
        parts = (structure_of(self.module), self._code, repr(self._preprocessing), repr(self._bounds), self.domain.text())
        for text in parts if not self._path else (*parts, self._path):
            hash.update(text.encode() + b"\0")
        for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]:
            hash.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
            if tensor.numel():  # an empty one has no bytes to view
                hash.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        if code := code_of(self.module):
            hash.update(digest_of(code).encode())
        return hash.hexdigest()


def logits_of(answer: Any) -> Any:
    """The attribute or key `logits` of an answer, as models of transformers return it; otherwise the answer itself."""
    if isinstance(answer, Tensor | np.ndarray):
        return answer
    return answer.get("logits", answer) if isinstance(answer, dict) else getattr(answer, "logits", answer)


class _CallCounter(TorchFunctionMode):
    """Counts the calls that determine the memory layout, and records whether `first_conv` has a faster gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2d = self.max_pool2d = 0
        self.first_conv = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self.conv2d += name == "conv2d"
        self.max_pool2d += name == "max_pool2d"
        self.first_conv = self.first_conv or first_conv.convolution_call(func, args, kwargs) is not None
        return func(*args, **(kwargs or {}))


def channels_last(x: Tensor) -> Tensor:
    """(n, C, H, W) images with their channels last in memory, same values; not copied if there is only one channel.

    With one channel, torch regards both layouts as the same and would keep strides that select its slow kernels.
    """
    if x.shape[1] == 1:
        return x.squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def affine(domain: Domain, preprocessing: Mapping[str, Any], bounds: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """Scale and shift (float32) that convert an input of the domain to the module's range."""
    if unknown := sorted(set(preprocessing) - set(PREPROCESSING)):
        raise RequestError(f"preprocessing has no {unknown[0]!r}; it has {', '.join(PREPROCESSING)}")
    low, high = (bound.double() for bound in domain.bounds())
    origin = torch.zeros(1, *domain.shape, dtype=torch.float64)
    shift = domain.in_units(origin) if domain.columns else torch.zeros(1, dtype=torch.float64)
    scale = domain.in_units(origin + 1) - shift if domain.columns else torch.ones(1, dtype=torch.float64)
    if bounds is not None:
        if not bounds[0] < bounds[1]:
            raise RequestError(f"bounds {bounds}: the lower one must be the smaller")
        scale = (bounds[1] - bounds[0]) / (high - low)
        shift = bounds[0] - low * scale
    mean, std = (_along(domain, preprocessing, key, default) for key, default in (("mean", 0.0), ("std", 1.0)))
    if not bool((std != 0).all()):
        raise RequestError("preprocessing divides by a std of 0")
    scale, shift = scale / std, (shift - mean) / std
    return scale.float(), shift.float()


def _along(domain: Domain, preprocessing: Mapping[str, Any], key: str, default: float) -> Tensor:
    """Mean or deviation as a tensor that broadcasts along the channels."""
    value = preprocessing.get(key)
    numbers = torch.as_tensor(default if value is None else value, dtype=torch.float64).cpu()
    axis, axes = preprocessing.get("axis"), len(domain.shape)
    if numbers.ndim == 0:
        return numbers
    if axis is None and numbers.ndim == 1:
        raise RequestError(f"preprocessing gives {len(numbers)} values of {key} and no axis; for images it is axis=-3")
    if axis is not None:
        if numbers.ndim != 1 or not -axes <= axis < 0:
            raise RequestError(f"preprocessing along axis {axis}: it must be -{axes} to -1, and {key} a list of numbers")
        numbers = numbers.reshape(-1, *[1] * (-axis - 1))
    try:
        numbers.expand(1, *domain.shape)
    except RuntimeError:
        if axis == -axes:
            channels = domain.shape[0]
            count = "one value" if channels == 1 else f"one value, or {channels}"
            crop = " or, if the fourth channel is transparency, the data as x[:, :3]" * ((channels, len(numbers)) == (4, 3))
            raise RequestError(
                f"{key}= has {len(numbers)} values, and the inputs have {channels} channel{'s' * (channels != 1)}: give {count}"
                f"{crop}"
            ) from None
        raise RequestError(
            f"preprocessing has a {key} of shape {tuple(numbers.shape)} for inputs of shape {domain.shape}"
        ) from None
    return numbers
