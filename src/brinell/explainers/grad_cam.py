"""Grad-CAM: the activations of a layer, weighted by the gradient of the class's logit.

Selvaraju, Cogswell, Das, Vedantam, Parikh & Batra 2017, Grad-CAM, section 3. For transformers the
tokens of the layer are put back on their grid, and tokens before them (class, registers) are left
out. Without a layer named, it is the last convolution whose answer has more than one place (one
behind the pooling has none to show), which takes a query more of the first sample; and in a network
with attention the first normalisation of the last block with attention: behind that block only the
class token matters, and gradients to all others are zero. No deviations.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from brinell.core.contracts import Access, Batch, Domain, Explainer, Kind, Oracle, Streams
from brinell.core.errors import RequestError
from brinell.core.settings import Checked, NotNegative
from brinell.explainers._asking import class_logit, places_of, resized
from brinell.explainers._cells import smooth_maps

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MOST_EXTRA = 8
"""Tokens that may stand before those of the patches."""


@dataclass(frozen=True, kw_only=True)
class GradCAM(Checked):
    """Activations of a layer weighted by their gradients (Grad-CAM)."""

    layer: str = ""
    """Name of the layer as the module has it, such as features.12; by default the last one that
    fits."""
    look: NotNegative = 0.0
    """As in rlab: spread of colours within which places share their importance; 0 ignores
    colours."""

    access: ClassVar[Access] = Access.GRADIENTS
    domains: ClassVar[frozenset[Kind]] = frozenset({"image", "signal", "video"})

    def attach(self, module: nn.Module, domain: Domain) -> Explainer:
        """The explainer for this network."""
        layers = _layers(module)
        names = (self.layer,) if self.layer else usual_layers(module)
        has_choice = bool(names) and names[0] in layers
        # Layers of a script are missing from `layers`, as no hook can be put on them; so this goes
        # first.
        scripted = (isinstance(part, torch.jit.ScriptModule) for part in module.modules())
        if not has_choice and any(scripted):
            raise RequestError(
                "the network is a TorchScript program, whose layers cannot be "
                "watched: name a function that returns the module "
                "before torch.jit, or leave grad-cam out"
            )
        if not names:
            raise RequestError(
                "the network has no convolution or attention layer, which "
                "Grad-CAM needs: leave grad-cam out"
            )
        if self.layer and self.layer not in layers:
            last_layers = [layer_name for layer_name in layers if layer_name][-8:]
            raise RequestError(
                f"the network has no layer {self.layer!r}; its last ones are "
                f"{', '.join(last_layers)}: name one of its layers"
            )

        return _AttachedGradCAM(tuple((name, layers[name]) for name in names), self.look)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """Refuse: Grad-CAM needs the network, whose layers an oracle does not show."""
        raise RequestError(
            "Grad-CAM needs a torch module, and the model has none inside: leave grad-cam out"
        )


@dataclass(frozen=True)
class _AttachedGradCAM:
    """Grad-CAM of a network, whose layers it knows."""

    layers: tuple[tuple[str, nn.Module], ...]
    """By name, those to choose from; the last that fits is taken."""
    look: float

    access: ClassVar[Access] = Access.GRADIENTS
    domains: ClassVar[frozenset[Kind]] = GradCAM.domains

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), 0 or more. One forward and one backward."""
        places = places_of(domain)
        name, layer = self._choose_layer(oracle, batch)
        with _recorded(layer) as (activations, gradients):
            oracle.gradient(batch.ids, batch.x, class_logit)
        if not activations or len(gradients) != len(activations):
            raise RequestError(
                f"the class does not depend on layer {name} in a way that "
                "gradients show: name another one"
            )

        # Equations 1 and 2: channels, each weighted with its mean gradient, and ReLU of their sum.
        maps = []
        axes = tuple(range(2, 2 + len(places)))
        for activation, gradient in zip(activations, gradients, strict=True):
            # One weight for each channel: axes 0 and 1 are samples and channels.
            weight = on_grid(gradient, places, name).mean(axes, keepdim=True)
            maps.append((on_grid(activation, places, name) * weight).sum(1).relu())
        enlarged = resized(torch.cat(maps)[:, None], places)[:, 0]
        return smooth_maps(enlarged, batch.x, domain, self.look)

    def _choose_layer(self, oracle: Oracle, batch: Batch) -> tuple[str, nn.Module]:
        """The last layer that is called and whose answer has more than one place."""
        if len(self.layers) == 1:
            return self.layers[0]
        fitting: list[str] = []

        def note(name: str, answer: Any) -> None:
            if isinstance(answer, Tensor) and math.prod(answer.shape[2:]) > 1:
                fitting.append(name)

        layers = dict(self.layers)
        # One sample suffices: the layers that are called do not depend on the input.
        with _watched(layers, note):
            oracle.scores(batch.ids[:1], batch.x[:1])
        if not fitting:
            raise RequestError(
                "no convolution of the network answers more than one place: name "
                "a layer, or leave grad-cam out"
            )
        # The last one: its places are few, and its features are those of classes.
        return fitting[-1], layers[fitting[-1]]


def _layers(module: nn.Module) -> dict[str, nn.Module]:
    """The layers of a network that can be watched, by name."""
    return {
        name: part
        for name, part in module.named_modules()
        if not isinstance(part, torch.jit.ScriptModule)
    }


@contextmanager
def _watched(layers: Mapping[str, nn.Module], note: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `note` with name and answer of each call of these layers while the block runs."""
    handles = [
        layer.register_forward_hook(lambda module, args, answer, name=name: note(name, answer))
        for name, layer in layers.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _recorded(layer: nn.Module) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Record the activations of a layer and their gradients while the block runs."""
    activations: list[Tensor] = []
    gradients: list[Tensor] = []

    def note(name: str, answer: Any) -> None:
        """Record the activations, into which later code may write, and their gradients."""
        if isinstance(answer, Tensor) and answer.requires_grad:
            activations.append(answer.detach().clone())
            answer.register_hook(lambda gradient: gradients.append(gradient.detach()))  # type: ignore[no-untyped-call]

    with _watched({"": layer}, note):
        yield activations, gradients


def on_grid(values: Tensor, places: tuple[int, ...], name: str) -> Tensor:
    """(n, channels, *lattice): activations as a picture.

    They are that already, or tokens (n, tokens, channels) of an image.
    """
    axes = len(places)
    if values.ndim == 2 + axes:
        return values

    # The last tokens are those of the patches.
    if values.ndim == 3 and axes == 2:
        tokens = values.shape[1]
        # The largest square of tokens; what is left are the class token and registers.
        side = math.isqrt(tokens)
        if tokens - side * side <= MOST_EXTRA and side > 1:
            return values[:, tokens - side * side :].mT.reshape(len(values), -1, side, side)

    raise RequestError(
        f"layer {name} answers {tuple(values.shape[1:])} for an input of places "
        f"{places}, which is no grid over it: "
        "name a convolution, or a layer of tokens that form a square"
    )


def usual_layers(module: nn.Module) -> tuple[str, ...]:
    """The layers to choose from where none is named, in the order of the network."""
    names = _layers(module)
    attention = [name for name, part in names.items() if "attention" in type(part).__name__.lower()]
    # In the last block with attention, the first normalisation.
    if attention:
        # Outwards from the last attention layer, to the first module around it that has one.
        parent = attention[-1]
        while parent:
            parent = parent.rpartition(".")[0]
            for child, part in names[parent].named_children():
                if isinstance(part, nn.LayerNorm):
                    return (f"{parent}.{child}" if parent else child,)
    return tuple(name for name, part in names.items() if isinstance(part, CONVOLUTIONS))
