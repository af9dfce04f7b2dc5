"""Forms of inputs that a model may have been trained on: other scales, normalisations, orders of values, and pairs of them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.model import Model
from brinell.engine.model_states import candidate_states

MIN_PIXELS = 64
"""A vector of at least this many values, and without named columns, may be an image."""
INVERTED = "with light and dark swapped"
AS_THEY_ARE = "as they are and "
NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "CIFAR-10 (deviations of single images)": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    "MNIST": ((0.1307,), (0.3081,)),
}
"""Common means and standard deviations per channel, for inputs in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """A form of the inputs (n, *shape): mean subtracted, divided by std, channels reversed, or values reordered."""

    text: str
    """Description of the form, as a clause after «inputs»."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    reverse_channels: bool = False
    """True if the channels are reversed, after the normalisation."""
    reorder: Callable[[Tensor], Tensor] | None = None
    """Function that reorders the values; the other settings then do not apply."""
    remedy: str = ""
    """Advice to the user, if no setting of the model applies the form."""
    state: Callable[[], AbstractContextManager[None]] = nullcontext
    """Puts the model into the state in which it is asked, until the context ends."""

    also: str = ""
    """Further advice, about the state of the model."""
    first: "InputForm | None" = None
    """A form that is applied before this one."""

    def __call__(self, x: Tensor) -> Tensor:
        """The inputs in this form."""
        x = x if self.first is None else self.first(x)
        if self.reorder is not None:
            return self.reorder(x)
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean, std = (torch.tensor(value, device=x.device, dtype=x.dtype).reshape(shape) for value in (self.mean, self.std))
        x = (x - mean) / std
        return x.flip(1) if self.reverse_channels else x

    @property
    def is_affine(self) -> bool:
        """True if mean, std and the order of the channels determine the form."""
        return self.reorder is None and not self.remedy and self.first is None

    def then(self, second: "InputForm") -> "InputForm":
        """This form and then another one, both affine, as one of mean, std and order of channels."""
        means, stds = (list(reversed(part)) if self.reverse_channels else list(part) for part in (second.mean, second.std))
        count = max(len(self.mean), len(self.std), len(means), len(stds))
        own_mean, own_std, means, stds = (_repeated(part, count) for part in (self.mean, self.std, means, stds))
        mean = tuple(m + s * other for m, s, other in zip(own_mean, own_std, means, strict=True))
        std = tuple(s * other for s, other in zip(own_std, stds, strict=True))
        return replace(self, mean=mean, std=std, reverse_channels=self.reverse_channels != second.reverse_channels)

    def advice(self, spec: str, domain: Domain, stated: Mapping[str, Any] | None = None) -> str:
        """Advice for a model that is more accurate in this form.

        Args:
            spec: names the model; empty for a model in memory.
            domain: the inputs.
            stated: the preprocessing that the user gave the model, which the advice takes the place of.
        """
        if self.also:
            return f"{replace(self, also='').advice(spec, domain, stated)}; and {self.also}"
        takes_options = not spec or spec.partition(":")[0] == "onnx"
        if self.first is not None:
            rest = replace(self, first=None)
            if takes_options and rest.is_affine and self.first.is_affine:
                return self.first.then(rest).advice(spec, domain, stated)
            return f"{self.first.advice(spec, domain)}; and {rest.advice(spec, domain, stated)}"
        if self.remedy:
            return self.remedy
        if takes_options and (text := self._options(spec, domain, stated or {})):
            return text
        scaled = self.mean != (0.0,) or self.std != (1.0,)
        steps = [f"(x - mean) / std with mean {_joined(self.mean, ', ')} and std {_joined(self.std, ', ')}"] if scaled else []
        steps += ["x.flip(1)"] if self.reverse_channels else []
        return f"let the model begin with {' and then '.join(steps)}"

    def _options(self, spec: str, domain: Domain, stated: Mapping[str, Any]) -> str:
        """Advice to set the options of a model that applies `stated` after this form; empty if no options say it."""
        axis = -len(domain.shape)
        if not {stated.get("axis"), stated.get("flip_axis")} <= {None, axis}:
            return ""
        mean, std = (np.asarray(stated.get(key, default), dtype=float).ravel() for key, default in (("mean", 0.0), ("std", 1.0)))
        flip = stated.get("flip_axis") is not None
        whole = self.then(InputForm(text="", mean=tuple(mean.tolist()), std=tuple(std.tolist()), reverse_channels=flip))
        means, stds = ([float(f"{number:.6g}") for number in part] for part in (whole.mean, whole.std))
        reason = place = ""
        if {"mean", "std"} <= stated.keys() and (self.mean, self.std, self.reverse_channels) == ((0.0,), (1 / 255,), False):
            reason, place = "as mean and std are in units of 0..255, ", " (the given ones divided by 255)"
        elif stated:
            place = ", in place of the normalisation that is given"
        if spec:
            text = f"write mean={_joined(whole.mean)}&std={_joined(whole.std)} in the model's options"
            return "" if whole.reverse_channels else f"{reason}{text}{place}"
        numbers: dict[str, Any] = {"mean": means, "std": stds} if len(means) > 1 else {"mean": means[0], "std": stds[0]}
        numbers = {} if whole.mean == (0.0,) and whole.std == (1.0,) else numbers
        if whole.reverse_channels:
            fields = numbers | ({"axis": axis} if len(means) > 1 and numbers else {}) | {"flip_axis": axis}
            return f"{reason}give preprocessing={fields!r}{place}"
        if not numbers:
            return "leave out the normalisation that is given"
        return f"{reason}give mean={numbers['mean']}, std={numbers['std']}{place}"


def _repeated(values: Sequence[float], count: int) -> list[float]:
    return [*values] * count if len(values) == 1 else [*values]


def input_forms(domain: Domain) -> list[InputForm]:
    """Candidate forms for inputs of this domain."""
    channels, picture = domain.shape[0], domain.kind in ("image", "video")
    flat = domain.kind == "vector" and not domain.columns and channels >= MIN_PIXELS
    if domain.kind == "signal":
        return _signal_forms(domain)
    forms = _scales(domain) if picture or flat else []
    if not picture:
        return forms
    if channels == 3:
        forms = [_bgr(), *forms]
        forms += [_reversed(form) for form in forms[1:] if len(form.mean) == channels and not form.remedy]
    return forms + _orders(domain)


def _orders(domain: Domain) -> list[InputForm]:
    """Forms with the values of images in another order."""
    channels, forms = domain.shape[0], list[InputForm]()
    if domain.kind == "image" and domain.shape[1] == domain.shape[2]:
        remedy = "swap height and width of the pictures in the data"
        forms.append(
            InputForm(
                text="whose rows and columns are swapped", reorder=lambda x: x.transpose(-1, -2).contiguous(), remedy=remedy
            )
        )
    if domain.kind == "image" and channels > 1:
        last = (*domain.shape[1:], channels)
        forms.append(
            InputForm(
                text="whose channels were last and read as if they were first",
                reorder=lambda x: x.reshape(-1, *last).permute(0, 3, 1, 2).contiguous(),
                remedy="bring the channels first by transpose(0, 3, 1, 2), not by reshape",
            )
        )
    return forms


def _scales(domain: Domain) -> list[InputForm]:
    """Forms with other scales, with common normalisations, and with the inverses of these."""
    if isinstance(domain.low, tuple) or isinstance(domain.high, tuple):
        return []
    low, high = float(domain.low), float(domain.high)
    channels = 1 if domain.kind == "vector" else domain.shape[0]
    usual = {name: statistics for name, statistics in NORMALISATIONS.items() if len(statistics[0]) == channels} | {
        "0.5": ((0.5,), (0.5,))
    }
    if low < 0 and (low, high) != (-1.0, 1.0):
        return _inverse(usual)
    forms: list[InputForm] = []
    if (low, high) != (0.0, 1.0):
        text = "divided by 255" if (low, high) == (0.0, 255.0) else f"brought from {low:g} and {high:g} to 0 and 1"
        forms.append(InputForm(text=text, mean=(low,), std=(high - low,)))
    if (low, high) != (0.0, 255.0):
        text = "multiplied by 255" if (low, high) == (0.0, 1.0) else f"brought from {low:g} and {high:g} to 0 and 255"
        forms.append(InputForm(text=text, mean=(low,), std=((high - low) / 255,)))
    forms += [_rescaled(form, low, high) for form in _normal(usual)]
    if channels == 1 and domain.kind != "video":
        forms.append(InputForm(text=f"brought from {low:g} and {high:g} to 0 and 16", mean=(low,), std=((high - low) / 16,)))
    if low >= 0:
        forms.append(InputForm(text=INVERTED, mean=(low + high,), std=(-1.0,)))
    if channels == 3:
        mean = NORMALISATIONS["ImageNet"][0]
        text = "from 0 to 255, less the mean of ImageNet"
        forms.append(_rescaled(InputForm(text=text, mean=mean, std=tuple(1 / 255 for _ in mean)), low, high))
    return forms + (_inverse(usual) if low < 0 or (low, high) == (0.0, 1.0) else [])


def _inverse(usual: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]) -> list[InputForm]:
    """Input forms from which a normalisation is taken away."""
    return [
        InputForm(
            text=f"from which the normalisation by mean and deviation of {name} was taken away again",
            mean=tuple(-m / s for m, s in zip(mean, std, strict=True)),
            std=tuple(1 / s for s in std),
            remedy="normalise once: leave out mean, std or preprocessing, or give the data as they were before",
        )
        for name, (mean, std) in usual.items()
    ]


def _reversed(form: InputForm) -> InputForm:
    """A form of scale with the channels in the order BGR."""
    if form.remedy:
        return replace(_bgr(), first=form, text=f"{form.text}, in the order BGR")
    return replace(form, text=f"in the order BGR, {form.text}", reverse_channels=True)


def _bgr() -> InputForm:
    """Channels in the order BGR."""
    return InputForm(text="whose channels are in the order BGR", reverse_channels=True)


def _signal_forms(domain: Domain) -> list[InputForm]:
    """Other units of signals, the other sign, and each signal by its own mean and deviation, or its own range."""
    if domain.columns:
        return []
    remedy = "prepare the signals inside of the model as in training, or in the data"

    def standardise(x: Tensor) -> Tensor:
        """Each channel of each signal with mean 0 and deviation 1."""
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-8)

    def stretch(x: Tensor) -> Tensor:
        """Each channel of each signal between 0 and 1."""
        low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        return (x - low) / (high - low + 1e-8)

    return [
        InputForm(text="multiplied by 1000, as from millivolts to microvolts", std=(1e-3,)),
        InputForm(text="divided by 1000, as from microvolts to millivolts", std=(1e3,)),
        InputForm(text="upside down", std=(-1.0,)),
        InputForm(text="of which each has mean 0 and deviation 1", reorder=standardise, remedy=f"{remedy} (mean 0, deviation 1)"),
        InputForm(text="of which each reaches from 0 to 1", reorder=stretch, remedy=f"{remedy} (each from 0 to 1)"),
    ]


def _normal(usual: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]) -> list[InputForm]:
    """Input forms normalised by the published means and deviations of data sets."""
    return [
        InputForm(text=f"normalised by mean and deviation of {name}", mean=mean, std=std) for name, (mean, std) in usual.items()
    ]


def _rescaled(form: InputForm, low: float, high: float) -> InputForm:
    """A form of inputs in [0, 1] for inputs between other bounds."""
    if (low, high) == (0.0, 1.0):
        return form
    width = high - low
    mean = tuple(low + width * value for value in form.mean)
    return replace(form, mean=mean, std=tuple(width * value for value in form.std))


def paired_forms(domain: Domain, states: list[InputForm]) -> list[InputForm]:
    """Two forms at once: an order of values with a scale, a scale with BGR, and any form with a state of the model."""
    forms = input_forms(domain)
    orders = [form for form in forms if (form.reorder is not None or form.text == INVERTED) and domain.kind != "signal"]
    scales = [form for form in forms if form not in orders]
    pairs = [replace(scale, first=order, text=f"{order.text}, and then {scale.text}") for order in orders for scale in scales]
    pairs += [
        replace(second, first=first, text=f"{first.text}, and then {second.text}") for first, second in combinations(orders, 2)
    ]
    if domain.kind in ("image", "video") and domain.shape[0] == 3:
        texts = {form.text for form in forms}
        pairs += [form for form in (_reversed(scale) for scale in scales if not scale.reverse_channels) if form.text not in texts]
    return pairs + [
        replace(form, state=state.state, text=f"{form.text} and {state.text.removeprefix(AS_THEY_ARE)}", also=state.remedy)
        for form in forms
        for state in states
    ]


def state_forms(model: Model) -> list[InputForm]:
    """The inputs as they are, with the model in another state."""
    forms = [InputForm(text=state.text, remedy=state.remedy, state=state.applied) for state in candidate_states(model)]
    if model.info.module is None:
        remedy = "let the function begin by making its inputs float64 (x.double(), or x.astype('float64'))"
        forms.append(InputForm(text="as they are and in float64", reorder=lambda x: x.double(), remedy=remedy))
    return forms


def _joined(values: tuple[float, ...], separator: str = "+") -> str:
    """The values as text with six digits."""
    return separator.join(f"{value:.6g}" for value in values)
