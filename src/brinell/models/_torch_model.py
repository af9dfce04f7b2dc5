"""Any `torch.nn.Module` as a model: preprocessing inside, weights and training flags left as they were."""

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
from brinell.core.errors import RequestError, one_line
from brinell.core.model import ModelInfo
from brinell.models import _first_conv as first_conv
from brinell.models._content import structure_of

PREPROCESSING = ("mean", "std", "axis", "flip_axis")
"""Foolbox's words: subtract `mean`, divide by `std`, both along `axis` (negative), then reverse `flip_axis`."""

DEEP = 16
"""Convolutions from which a module gains from channels last on a CPU (docs/performance.md); with max pooling each does."""


class TorchModel:
    """A model around a module that takes the data's inputs and answers with logits.

    Inputs get gradients; weights do not: `torch.autograd.grad` to the input alone computes no weight gradient, whether the
    parameters require one or not (measured on convolution, batch norm and linear layers: same time, same kernels, same bits).

    Args:
        module: takes (n, *shape), gives (n, classes) logits.
        domain: where the data's inputs live.
        classes: number of logits; None asks the module once, by `probe`.
        name: how reports call it.
        preprocessing: as in foolbox, `dict(mean=..., std=..., axis=-3)`, applied to every input before the module.
        bounds: the range (low, high) that preprocessing and module expect where it is not the domain's own, say (0, 255), nor,
            for the columns of a table, the units of the table.
        code: whatever else determines the answers (the source of the module, say); part of the digest.
        architecture: what the network is, in a word; by default the name of the module's class.

    Raises:
        RequestError: a preprocessing that makes no sense, or a module that cannot take the data.
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
    ) -> None:
        self.module, self.domain, self.name = module, domain, name
        self._architecture = architecture or type(module).__name__
        self._preprocessing, self._bounds, self._code = dict(preprocessing or {}), bounds, code
        self._flip: int | None = self._preprocessing.get("flip_axis")
        self._scale, self._shift = affine(domain, self._preprocessing, bounds)
        self._identity = bool((self._scale == 1).all() and (self._shift == 0).all())
        self._open = 0
        self._channels_last = self._first_conv = False
        self._dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        self.classes: int = self.probe() if classes is None else classes

    @property
    def info(self) -> ModelInfo:
        """Architecture and number of parameters; also features, a session, and gradients in bf16."""
        return ModelInfo(
            architecture=self._architecture,
            parameters=sum(p.numel() for p in self.module.parameters()),
            bf16=True,
            module=self.module,
            features=self.features,
            session=self.session,
            training=lambda: tuple(name or "the model" for name, part in self.module.named_modules() if part.training),
        )

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs within the bounds to (n, classes) logits, differentiable.

        Outside a `session` each call makes one of its own, so that no batch norm ever learns from an audit.
        """
        if not self._open and any(part.training for part in self.module.modules()):
            with self.session():
                return self._answer(x)
        return self._answer(x)

    def _answer(self, x: Tensor) -> Tensor:
        if not self._identity:
            if self._scale.device != x.device:
                self._scale, self._shift = self._scale.to(x.device), self._shift.to(x.device)
            x = x * self._scale + self._shift
        if self._flip is not None:
            x = x.flip(self._flip)
        if self._channels_last and x.device.type == "cpu":
            x = channels_last(x)
        if self._dtype != x.dtype:
            answer = _rows(self.module(x.to(self._dtype)), x)
            return answer.float() if isinstance(answer, Tensor) else answer
        with first_conv.FastGradient() if self._first_conv and x.requires_grad and x.device.type == "cpu" else nullcontext():
            return _rows(self.module(x), x)

    def features(self, x: Tensor) -> Tensor:
        """(n, d) what the last linear layer is given, the penultimate layer as papers call it; the logits where there is none."""
        seen: list[Tensor] = []
        layers = [part for part in self.module.modules() if isinstance(part, nn.Linear)]
        hooks = [layer.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for layer in layers]
        try:
            logits = self.predict(x)
        finally:
            for hook in hooks:
                hook.remove()
        last = seen[-1] if seen and len(seen[-1]) == len(x) else logits
        return last.flatten(1)

    def probe(self) -> int:
        """The number of logits, by one forward pass on one input of zeros; two more where the layout in memory matters."""
        device = home_of(self.module) or torch.device("cpu")
        x = self.domain.clamp(torch.zeros(1, *self.domain.shape, device=device))
        shape = f"{self.domain.kind}s of shape {self.domain.shape}"
        try:
            untouched = x._version
            with self.session(), torch.no_grad(), _Calls() as calls:
                answer: object = self._answer(x)
        except Exception as error:
            remedy = "give it its own shape"
            if "more than 1 value per channel when training" in str(error):  # torch's words, of batch norm asked for one input
                remedy = "batch norm is in training mode in its forward pass: take train() or training=True out of it"
            raise RequestError(
                f"{self.name} cannot take the data, {shape} ({type(error).__name__}: {one_line(error)}): {remedy}"
            ) from error
        if x._version != untouched:
            raise RequestError(
                f"{self.name} writes into its input, which is needed again: write x = x - mean for x -= mean, and inplace=False"
            )
        if not isinstance(answer, Tensor):
            kind = type(answer).__name__
            raise RequestError(f"{self.name} answers with a {kind}, not with a tensor of logits: wrap it so that it does")
        if answer.ndim != 2 or len(answer) != 1:
            raise RequestError(
                f"{self.name} answers one input of the {shape} with shape {tuple(answer.shape)}; it must give (1, classes) logits"
            )
        self._first_conv = calls.first_conv
        if self.domain.kind == "image" and len(self.domain.shape) == 3 and (calls.max_pool2d or calls.conv2d >= DEEP):
            self._channels_last = self._takes_channels_last(device)
        return answer.shape[1]

    def _takes_channels_last(self, device: torch.device) -> bool:
        """Whether the module, which may `view` what a convolution gave it, answers the same with the channels of images last.

        That it is asked at all is a rule of what the module calls, not a measurement: a run that is resumed must choose the same
        kernels again.
        """
        ramp = torch.linspace(0, 1, math.prod(self.domain.shape), device=device).reshape(1, *self.domain.shape)
        low, high = self.domain.bounds(ramp)
        x = low + ramp * (high - low)
        try:
            with self.session(), torch.no_grad():
                plain = self._answer(x)
                self._channels_last = True
                return bool(torch.allclose(plain, self._answer(x), rtol=1e-3, atol=1e-4))
        except RuntimeError:
            return False
        finally:
            self._channels_last = False

    @contextmanager
    def session(self, device: torch.device | str | None = None) -> Iterator[None]:
        """The module in eval mode, and on `device` where one is given; afterwards everything is as it was."""
        home = home_of(self.module)
        self._open += 1
        try:
            with evaluating(self.module):
                if device is not None:
                    self.module.to(device)
                yield
        finally:
            self._open -= 1
            if device is not None and home is not None:
                self.module.to(home)

    def digest(self) -> str:
        """Hash of structure, source of the module's classes, every parameter and buffer, and preprocessing; always made anew."""
        hashed = hashlib.blake2b(digest_size=16)
        for text in (structure_of(self.module), self._code, repr(self._preprocessing), repr(self._bounds), self.domain.text()):
            hashed.update(text.encode() + b"\0")
        for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]:
            hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
            hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return hashed.hexdigest()


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """These modules in evaluation mode; afterwards all their flags are as they were."""
    flags = [(part, part.training) for module in modules for part in module.modules()]
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for part, training in flags:
            part.training = training


def home_of(module: nn.Module) -> torch.device | None:
    """The device on which a module is; None where it holds nothing."""
    return next((tensor.device for tensor in chain(module.parameters(), module.buffers())), None)


def logits_of(answer: Any) -> Any:
    """The logits of an answer that holds them under that name, as those of transformers do; the answer itself otherwise."""
    if isinstance(answer, Tensor | np.ndarray):
        return answer
    return answer.get("logits", answer) if isinstance(answer, dict) else getattr(answer, "logits", answer)


def _rows(answer: Any, x: Tensor) -> Tensor:
    """Answers as rows; those of one number each may come without an axis of their own."""
    logits = logits_of(answer)
    return logits.unsqueeze(1) if isinstance(logits, Tensor) and logits.shape == (len(x),) else logits


class _Calls(TorchFunctionMode):
    """Counts the calls that decide about the layout in memory, and notes whether `first_conv` has a faster gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2d = self.max_pool2d = 0
        self.first_conv = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self.conv2d += name == "conv2d"
        self.max_pool2d += name == "max_pool2d"
        self.first_conv = self.first_conv or first_conv.called(func, args, kwargs) is not None
        return func(*args, **(kwargs or {}))


def channels_last(x: Tensor) -> Tensor:
    """(n, C, H, W) images with their channels last in memory, same values; without a copy where there is but one channel.

    With one channel torch takes both layouts for the same and would keep the strides that steer its kernels to the slow one.
    """
    if x.shape[1] == 1:
        return x.squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def affine(domain: Domain, preprocessing: Mapping[str, Any], bounds: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """Scale and shift that bring an input of the domain to what the module expects, in float32."""
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
        raise RequestError(
            f"preprocessing has a {key} of shape {tuple(numbers.shape)} for inputs of shape {domain.shape}"
        ) from None
    return numbers
