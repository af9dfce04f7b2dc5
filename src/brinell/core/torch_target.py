"""Any `torch.nn.Module` as a target: preprocessing inside, weights and training flags left as they were."""

import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from brinell.core.arrays import space
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.target import Access

PREPROCESSING = ("mean", "std", "axis", "flip_axis")
"""Foolbox's words: subtract `mean`, divide by `std`, both along `axis` (negative), then reverse `flip_axis`."""


class TorchTarget:
    """A target around a module that takes the data's inputs and answers with logits.

    Inputs get gradients; weights do not: `torch.autograd.grad` to the input alone computes no weight gradient, whether the
    parameters require one or not (measured on convolution, batch norm and linear layers: same time, same kernels, same bits).

    Args:
        module: takes (n, *shape), gives (n, classes) logits.
        domain: where the data's inputs live.
        classes: number of logits; None asks the module once, by `probe`.
        name: how reports call it.
        preprocessing: as in foolbox, `dict(mean=..., std=..., axis=-3)`, applied to every input before the module.
        bounds: the range (low, high) that preprocessing and module expect where it is not the domain's own, say (0, 255).
        code: whatever else determines the answers (the source of the module, say); part of the digest.

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
    ) -> None:
        self.module, self.domain, self.name = module, domain, name
        self._preprocessing, self._bounds, self._code = dict(preprocessing or {}), bounds, code
        self._flip: int | None = self._preprocessing.get("flip_axis")
        self._scale, self._shift = affine(domain, self._preprocessing, bounds)
        self._identity = bool((self._scale == 1).all() and (self._shift == 0).all())
        self._open = 0
        first = next((p for p in module.parameters() if p.is_floating_point()), None)
        self._dtype = torch.float32 if first is None else first.dtype
        self.classes: int = self.probe() if classes is None else classes

    @property
    def architecture(self) -> str:
        """Name of the module's class."""
        return type(self.module).__name__

    @property
    def parameters(self) -> int:
        """How many numbers were learnt."""
        return sum(p.numel() for p in self.module.parameters())

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
        if self._dtype != x.dtype:
            answer: Tensor = self.module(x.to(self._dtype))
            return answer.float()
        logits: Tensor = self.module(x)
        return logits

    def probe(self) -> int:
        """The number of logits, by one forward pass on one input of zeros.

        Raises:
            RequestError: the module cannot take the data, or does not answer with one row of logits per input.
        """
        device = next((held.device for held in chain(self.module.parameters(), self.module.buffers())), torch.device("cpu"))
        x = self.domain.clamp(torch.zeros(1, *self.domain.shape, device=device))
        shape = f"{self.domain.kind}s of shape {self.domain.shape}"
        try:
            untouched = x._version
            with self.session(), torch.no_grad():
                answer: object = self._answer(x)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise RequestError(
                f"{self.name} cannot take the data, {shape} ({type(error).__name__}: {reason}): give it data of its shape"
            ) from error
        if x._version != untouched:
            raise RequestError(
                f"{self.name} writes into its input, which is needed again: write x = x - mean for x -= mean, and inplace=False"
            )
        if not isinstance(answer, Tensor):
            raise RequestError(
                f"{self.name} answers with a {type(answer).__name__}, not with a tensor of logits: wrap it so that it does"
            )
        if answer.ndim != 2 or len(answer) != 1:
            raise RequestError(
                f"{self.name} answers one input of the {shape} with shape {tuple(answer.shape)}; it must give (1, classes) logits"
            )
        return answer.shape[1]

    @contextmanager
    def session(self, device: torch.device | str | None = None) -> Iterator[None]:
        """The module in eval mode, and on `device` where one is given; afterwards everything is as it was."""
        flags = [(part, part.training) for part in self.module.modules()]
        home = next((held.device for held in chain(self.module.parameters(), self.module.buffers())), None)
        self._open += 1
        try:
            self.module.eval()
            if device is not None:
                self.module.to(device)
            yield
        finally:
            self._open -= 1
            if device is not None and home is not None:
                self.module.to(home)
            for part, training in flags:
                part.training = training

    def digest(self) -> str:
        """Hash of structure, source of the module's classes, every parameter and buffer, and preprocessing; always made anew."""
        hashed = hashlib.blake2b(digest_size=16)
        for text in (_structure(self.module), self._code, repr(self._preprocessing), repr(self._bounds), space(self.domain)):
            hashed.update(text.encode() + b"\0")
        for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]:
            hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
            hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return hashed.hexdigest()


def _structure(module: nn.Module) -> str:
    """The printed module without memory addresses, and the source of each class that torch does not bring."""
    text = [re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module))]
    for kind in sorted({type(part) for part in module.modules()}, key=lambda kind: (kind.__module__, kind.__qualname__)):
        text.append(kind.__qualname__)
        if not kind.__module__.startswith("torch."):
            try:
                text.append(inspect.getsource(kind))
            except (OSError, TypeError):  # typed in, not saved: its name must do
                continue
    return "\n".join(text)


def affine(domain: Domain, preprocessing: Mapping[str, Any], bounds: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """Scale and shift that bring an input of the domain to what the module expects, in float32."""
    if unknown := sorted(set(preprocessing) - set(PREPROCESSING)):
        raise RequestError(f"preprocessing has no {unknown[0]!r}; it has {', '.join(PREPROCESSING)}")
    low, high = (bound.double() for bound in domain.bounds())
    scale, shift = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
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
