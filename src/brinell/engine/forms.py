"""The forms in which people hand the same inputs to a model, composed of steps.

A form of pictures is a layout, a mean that is subtracted, a deviation or a unit that is divided by,
and an order of channels; one of signals is a unit and a standardisation. Each step says what it
does and how it is written, so that every form has a title and a line to type.

The preparation that a model makes by itself is read from the inputs of its first layer, so that a form
takes the place of the model's own preparation instead of coming on top of it.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.model import Model, ask

Numbers = tuple[float, ...]

CENTRES: dict[str, Numbers] = {
    "": (0.0,),
    "[-1, 1]": (0.5,),
    "ImageNet": (0.485, 0.456, 0.406),
    "CIFAR-10": (0.4914, 0.4822, 0.4465),
    "CLIP": (0.4815, 0.4578, 0.4082),
    "MNIST": (0.1307,),
    "Fashion-MNIST": (0.286,),
}
"""Usual means per channel, of pictures in [0, 1]."""
AVERAGED = ", averaged by picture"
WIDTHS: dict[str, Numbers] = {
    "": (1.0,),
    "0 to 255": (1 / 255,),
    "0 to 16": (1 / 16,),
    "[-1, 1]": (0.5,),
    "ImageNet": (0.229, 0.224, 0.225),
    "CIFAR-10": (0.247, 0.2435, 0.2616),
    f"CIFAR-10{AVERAGED}": (0.2023, 0.1994, 0.201),
    "CLIP": (0.2686, 0.2613, 0.2758),
    "MNIST": (0.3081,),
    "Fashion-MNIST": (0.353,),
}
"""Usual deviations, and the widths of other units."""
UNITS = ("", "0 to 255", "0 to 16")
"""Widths that stand for a unit of the inputs; any mean may go with them."""
GREY = ("MNIST", "Fashion-MNIST", "0 to 16")
"""Families of pictures of one channel."""
RARE, MIXED = 1.05, 1.1
"""Factors on the losses of rare forms, and of those that mix families."""
SIZES = (32, 64, 96, 128, 160, 224)
"""Usual heights and widths of networks' inputs."""
SMALL = 100
"""Height and width below which no picture is one of CLIP."""
MIN_PIXELS = 64
"""Number of values from which a vector without named columns may be a picture."""
LOOKS = 16
"""Inputs by which a model's own preparation is read."""
EXACT = 1e-3
"""Largest share of the deviation of a layer's inputs that an affine preparation leaves."""
RESIZED = 0.2
"""The same share where a picture was resized, so that only the means of its channels compare."""
CLOSE = 0.03
"""Largest difference, in deviations, at which two preparations count as one."""


class FormStep(NamedTuple):
    """One step of a form."""

    title: str
    """The inputs after it in words, as in «with inputs ...»."""
    code: str
    """The expression of x that makes it."""
    apply: Callable[[Tensor], Tensor]


class InputForm(NamedTuple):
    """A form in which a model may want its inputs."""

    steps: tuple[FormStep, ...] = ()
    factor: float = 1.0
    """Factor on its loss, above 1 for forms that are rare: of two alike the usual one is named."""
    affine: "Affine | None" = None
    """The preparation of pictures, in the bounds of the data, if it is nothing else."""
    preparation: "Affine | None" = None
    """The model's own preparation, whose place it takes, in the bounds of the data; None for a
    model that does nothing to its inputs."""

    @property
    def title(self) -> str:
        """The inputs in this form, in words."""
        return ", ".join(step.title for step in self.steps) or "as they are given"

    @property
    def is_moved(self) -> bool:
        """True if values lie elsewhere before the preparation."""
        return self.affine is not None and len(self.steps) > 1

    @property
    def is_common(self) -> bool:
        """True for a usual preparation of pictures."""
        return self.affine is not None and self.factor == 1

    def after(self, steps: tuple[FormStep, ...]) -> "InputForm":
        """The form behind further steps."""
        return self._replace(steps=(*steps, *self.steps))

    @property
    def line(self) -> str:
        """The assignments that make the form of inputs x."""
        return "; ".join(f"x = {step.code}" for step in self.steps)

    def apply(self, x: Tensor) -> Tensor:
        """The inputs that a model is given, so that it works on the form."""
        for step in self.steps:
            x = step.apply(x)
        return x


@dataclass(frozen=True)
class Affine:
    """(u - centre) / width of pictures u in [0, 1], then the channels in reverse order."""

    centre: Numbers = (0.0,)
    width: Numbers = (1.0,)
    reverse: bool = False

    def apply(self, u: Tensor) -> Tensor:
        """The prepared pictures."""
        prepared = (u - _by_channel(self.centre, u)) / _by_channel(self.width, u)
        return prepared.flip(1) if self.reverse else prepared

    def undo(self, prepared: Tensor) -> Tensor:
        """The pictures in [0, 1] that become `prepared`."""
        u = prepared.flip(1) if self.reverse else prepared
        return u * _by_channel(self.width, u) + _by_channel(self.centre, u)

    def for_range(self, low: float, high: float) -> "Affine":
        """The same preparation of pictures in [low, high]."""
        unit = high - low
        centre = tuple(low + unit * value for value in self.centre)
        return Affine(centre, tuple(unit * value for value in self.width), self.reverse)

    def is_close(self, second: "Affine") -> bool:
        """True if both prepare pictures nearly alike."""
        parts = (self.centre, self.width, second.centre, second.width)
        channels = max(map(len, parts))
        # One number stands for all channels.
        centre, width, second_centre, second_width = (
            torch.tensor(values).expand(channels) for values in parts
        )
        unlike = (centre - second_centre).abs() > CLOSE * width
        unlike |= (width - second_width).abs() > CLOSE * width
        return self.reverse == second.reverse and not bool(unlike.any())

    @property
    def code(self) -> str:
        """The expression of x that prepares pictures x."""
        text, scale = "x", 1 / self.width[0]
        if any(self.centre):
            text = f"x - {_written(self.centre)}".replace("- -", "+ ")
        if set(self.width) != {1.0}:
            text = f"({text})" if any(self.centre) else text
            # A small width is a unit, such as 1/255, and reads better as a factor.
            is_unit = len(self.width) == 1 and scale > 4
            text += f" * {scale:.6g}" if is_unit else f" / {_written(self.width)}"
        if not self.reverse:
            return text
        return "x.flip(1)" if text == "x" else f"({text}).flip(1)"


GUESSES = (
    Affine((0.5,), (0.5,)),
    Affine(CENTRES["ImageNet"], WIDTHS["ImageNet"]),
    Affine(CENTRES["CIFAR-10"], WIDTHS["CIFAR-10"]),
    Affine(width=(1 / 255,)),
)
"""Preparations that a model whose layers cannot be watched may make by itself."""


def _by_channel(values: Numbers, x: Tensor) -> Tensor:
    return x.new_tensor(values).view(1, -1, *[1] * (x.ndim - 2))


def _written(values: Numbers) -> str:
    numbers = [float(f"{value:.5g}") for value in values]
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"x.new_tensor({numbers}).view(-1, 1, 1)"


def holds_pictures(domain: Domain) -> bool:
    """True for images and videos, and for vectors that may be images, from 0 on."""
    is_flat = domain.kind == "vector" and not domain.columns and domain.shape[0] >= MIN_PIXELS
    is_picture = domain.kind in ("image", "video") or is_flat
    has_one_range = not isinstance(domain.low, tuple) and not isinstance(domain.high, tuple)
    return is_picture and has_one_range and bool(np.min(domain.low) >= 0)


def fits_channels(values: Numbers, domain: Domain) -> bool:
    """True if there is one number, or one for each channel."""
    channels = 1 if domain.kind == "vector" else domain.shape[0]
    return len(values) in (1, channels)


# Preparations within a model

LAYERS = frozenset(
    {"convolution", "addmm", "mm", "bmm", "native_batch_norm", "cudnn_batch_norm", "linear"}
)
"""The operations of first layers, as torch calls them."""


class FirstLayer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the inputs of the first layer that computes in its context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs: Tensor | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and True would import all of torch's compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if self.inputs is None and name in LAYERS:
            self.inputs = args[1] if name == "addmm" else args[0]
        return func(*args, **(kwargs or {}))


def preparation_of(model: Model, u: Tensor, x: Tensor) -> Affine | None:
    """The preparation of pictures before a model's first layer; None if it cannot be read.

    Args:
        model: the model.
        u: (n, *shape) pictures in [0, 1].
        x: the same, as the model is given them.
    """
    with FirstLayer() as layer, torch.no_grad():
        try:
            ask(model, x)
        except ModelError:
            return None
    features = layer.inputs
    if features is None or len(features) != len(u) or not features.is_floating_point():
        return None

    exact = EXACT
    if features.numel() == u.numel():
        features = features.reshape(u.shape)
    elif features.ndim == u.ndim > 2 and features.shape[1] == u.shape[1]:
        # A resized picture keeps the mean of each channel, but for what is cut off.
        features = features.flatten(2).mean(2, keepdim=True)
        u = u.flatten(2).mean(2, keepdim=True)
        exact = RESIZED
    else:
        return None
    orders = orders_of(u.shape[1])
    error, best = min(
        (_regress(u, features, reverse) for reverse in orders), key=lambda pair: pair[0]
    )
    # Means of resized pictures are too rough to tell a preparation that is not a usual one.
    usual = next((form for form in _usual_affines(u.shape[1]) if form.is_close(best)), None)
    if error > exact or (usual is None and exact > EXACT):
        return None
    return usual or best


def _regress(u: Tensor, features: Tensor, reverse: bool) -> tuple[float, Affine]:
    """The affine preparation of each channel that comes nearest, and what it leaves."""
    # A model that takes gradients within its forward pass has inputs with a graph.
    z = (features.flip(1) if reverse else features).detach()
    channels = u.shape[1] if u.ndim > 2 else 1
    x, y = (
        part.double().reshape(len(u), channels, -1).transpose(0, 1).flatten(1) for part in (u, z)
    )
    # Least squares of y = (x - centre) / width, whose slope is 1 / width, for each channel: x and y
    # are (channels, values).
    dx, dy = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    slope = (dx * dy).sum(1) / dx.square().sum(1).clamp_min(1e-12)
    residual = (dy - slope[:, None] * dx).std() / dy.std().clamp_min(1e-12)
    if not bool((slope != 0).all()):
        return float("inf"), Affine()
    centre = x.mean(1) - y.mean(1) / slope
    return float(residual), Affine(tuple(centre.tolist()), tuple((1 / slope).tolist()), reverse)


def _usual_affines(channels: int) -> Iterator[Affine]:
    """All usual preparations of pictures with so many channels, those of one family first."""
    pairs = sorted(itertools.product(CENTRES, WIDTHS), key=lambda pair: _factor(*pair))
    for (centre, width), reverse in itertools.product(pairs, orders_of(channels)):
        if suits(centre, width, channels):
            yield Affine(CENTRES[centre], WIDTHS[width], reverse)


def orders_of(channels: int) -> tuple[bool, ...]:
    """The orders of channels: False, and True for the reverse."""
    return (False, True) if channels == 3 else (False,)


def suits(centre: str, width: str, channels: int) -> bool:
    """True if a mean and a deviation go with pictures of so many channels."""
    is_grey = centre in GREY or width in GREY
    return {len(CENTRES[centre]), len(WIDTHS[width])} <= {1, channels} and (
        channels == 1 or not is_grey
    )


def _factor(centre: str, width: str) -> float:
    """The factor on the loss of a mean with a deviation."""
    if centre and width not in UNITS and centre != width.removesuffix(AVERAGED):
        return MIXED
    is_common = centre == width or (not centre and width in UNITS)
    return 1.0 if is_common and centre not in ("CLIP", "Fashion-MNIST") else RARE


# Forms


def _title(centre: str, width: str, reverse: bool) -> str:
    """The title of a mean and a deviation in an order of channels."""
    parts = [f"minus the mean of {centre}"] if centre else []
    if width:
        parts.append(f"from {width}" if width in UNITS else f"divided by the std of {width}")
    if centre and centre == width:
        parts = [f"normalised by mean and std of {centre}"]
    return ", ".join([*parts, "with channels in the order BGR"] if reverse else parts)


def picture_forms(domain: Domain, x: Tensor, preparation: Affine | None) -> Iterator[InputForm]:
    """The forms of pictures: means, deviations and units, in both orders of channels.

    Args:
        domain: the domain of the inputs.
        x: (n, *shape) some of them.
        preparation: the model's own of pictures in [0, 1]; None if it is not known.
    """
    low, high = float(domain.low), float(domain.high)  # type: ignore[arg-type]
    raw = Affine((-low / (high - low),), (1 / (high - low),))
    preparation = preparation or raw
    channels = 1 if domain.kind == "vector" else domain.shape[0]
    # Pictures that were divided by 255 twice lie in a 255th of the range, but for some rounding.
    top = low + (high - low) / (255 if float(x.max()) <= low + 1.5 * (high - low) / 255 else 1)

    current = (
        preparation if top == high else Affine(width=(-1.0,))
    )  # no form is that of such pictures

    for centre, width, reverse in itertools.product(CENTRES, WIDTHS, orders_of(channels)):
        target = Affine(CENTRES[centre], WIDTHS[width], reverse)
        is_small = "CLIP" in (centre, width) and max(domain.shape) < SMALL
        if is_small or not suits(centre, width, channels) or target.is_close(current):
            continue
        title = _title(centre, width, reverse) or ("divided by 255" if high > 1 else "from 0 to 1")
        affine = target.for_range(low, top)
        step = FormStep(title, affine.code, _exchange(target, preparation, low, top, high))
        replaced = None if preparation.is_close(raw) else preparation.for_range(low, high)
        yield InputForm((step,), _factor(centre, width), affine, replaced)


def _exchange(
    target: Affine, preparation: Affine, low: float, top: float, high: float
) -> Callable[[Tensor], Tensor]:
    """The change by which one preparation takes the place of another, the model's own."""

    # The model will apply its own preparation, which is therefore undone behind the wanted one.
    def change(x: Tensor) -> Tensor:
        u = preparation.undo(target.apply((x - low) / (top - low)))
        return low + (high - low) * u

    return change


def mixes(form: InputForm, leaders: Sequence[InputForm]) -> bool:
    """True if mean and deviation of a form are those of others, in the same order of channels."""
    usual = [second.affine for second in leaders if second.affine is not None]
    affine = form.affine
    if affine is None or affine.reverse not in [second.reverse for second in usual]:
        return False
    centres, widths = [second.centre for second in usual], [second.width for second in usual]
    return affine.centre in centres and affine.width in widths


def layouts(domain: Domain) -> Iterator[FormStep]:
    """Layouts of pictures in which the values are the same and lie elsewhere, and the negative."""
    channels, height, width = domain.shape
    low, high = float(domain.low), float(domain.high)  # type: ignore[arg-type]
    if height == width:
        code = "x.transpose(-1, -2)"
        yield FormStep("with height and width exchanged", code, lambda x: x.transpose(-1, -2))
    if channels > 1:
        shape = height, width, channels
        code = f"x.reshape(-1, {height}, {width}, {channels}).permute(0, 3, 1, 2)"
        title = "whose channels come last in the file"
        yield FormStep(title, code, lambda x: x.reshape(-1, *shape).permute(0, 3, 1, 2))
    yield FormStep("as negatives", f"{low + high:g} - x", lambda x: low + high - x)


def sizes(domain: Domain) -> Iterator[FormStep]:
    """Other sizes of pictures, at most twice as large."""
    for size in SIZES:
        if size not in domain.shape[1:] and size <= 2 * max(domain.shape[1:]):
            code = f"torch.nn.functional.interpolate(x, ({size}, {size}), mode='bilinear', antialias=True)"
            yield FormStep(f"of {size} x {size} pixels", code, _resized(size))


def _resized(size: int) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, (size, size), mode="bilinear", antialias=True)


MINUS_MEAN = FormStep(
    "of mean 0 each", "x - x.mean(-1, keepdim=True)", lambda x: x - x.mean(-1, keepdim=True)
)
SIGNALS = (
    FormStep("multiplied by 1000", "x * 1000", lambda x: x * 1000),
    FormStep("divided by 1000", "x / 1000", lambda x: x / 1000),
    MINUS_MEAN,
    FormStep(
        "of mean 0 and deviation 1 each",
        f"({MINUS_MEAN.code}) / (x.std(-1, keepdim=True) + 1e-8)",
        lambda x: MINUS_MEAN.apply(x) / (x.std(-1, keepdim=True) + 1e-8),
    ),
    FormStep("with the opposite sign", "-x", lambda x: -x),
)
"""Units, standardisations and signs of signals."""


def table_forms(domain: Domain, x: Tensor) -> Iterator[InputForm]:
    """The forms of the columns of a table: standardised, or from 0 to 1."""
    zero, width = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    if domain.columns:
        zero = x.new_tensor([column.zero for column in domain.columns])
        width = x.new_tensor([column.unit for column in domain.columns]) - zero

    def undone(values: Tensor) -> Tensor:
        # The model turns its inputs into the units of the table first (`Domain.in_units`).
        return (values - zero) / width

    mean = x.mean(0)
    std = x.std(0, correction=0).clamp_min(1e-8)  # defined for a single sample, too
    code = "(x - mean) / std, with mean and std of the columns of the training data"
    title = "standardised column by column"
    yield InputForm((FormStep(title, code, lambda x: undone((x - mean) / std)),))
    if domain.columns:
        code = "(x - low) / (high - low), with the bounds of the columns"
        yield InputForm((FormStep("with columns from 0 to 1", code, undone),))


def forms_of(
    domain: Domain, x: Tensor, preparation: Affine | None
) -> tuple[list[InputForm], list[InputForm]]:
    """The forms of inputs that cost little, and those that are tried where none of these fits.

    `preparation` is the model's own of pictures in [0, 1]; None if it is not known.
    """
    if holds_pictures(domain):
        return _forms_of_pictures(domain, x, preparation)
    if domain.kind == "vector":
        return list(table_forms(domain, x)), []
    if domain.kind == "signal" and not domain.columns:
        units = [InputForm((MINUS_MEAN, unit)) for unit in SIGNALS[:2]]
        return [*(InputForm((step,)) for step in SIGNALS), *units], []
    return [], []


def _forms_of_pictures(
    domain: Domain, x: Tensor, preparation: Affine | None
) -> tuple[list[InputForm], list[InputForm]]:
    pictures = list(picture_forms(domain, x, preparation))
    common = [form for form in pictures if form.is_common]
    guesses = [
        guess for guess in GUESSES if preparation is None and fits_channels(guess.centre, domain)
    ]
    dear = [
        form for guess in guesses for form in picture_forms(domain, x, guess) if form.factor == 1
    ]
    if domain.kind != "image":
        return pictures, dear

    shifted = list(layouts(domain))
    dear += [form.after((step,)) for step in shifted for form in common]
    dear += [InputForm((step,)) for step in sizes(domain)]
    return [*pictures, *(InputForm((step,)) for step in shifted)], dear
