"""The rules that every explainer keeps. `check_explainer` names the first one that is broken."""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from brinell.core.attack import open_questions
from brinell.core.contracts import (
    KINDS,
    Access,
    Batch,
    Domain,
    Explainer,
    Kind,
    OpensModel,
    Streams,
)
from brinell.core.model import ModelInfo
from brinell.core.patches import AXES
from brinell.core.threat import Threat
from brinell.distances.linf import Linf
from brinell.testing.form import check_form, check_settings, contained, demand, generator_states

SHAPES: dict[Kind, tuple[int, ...]] = {
    "image": (3, 12, 12),
    "signal": (2, 36),
    "video": (1, 4, 12, 12),
    "vector": (24,),
}
CLASSES, ROWS = 3, 6
SYNONYMS = {
    "seed": "nothing: random numbers come from the streams",
    "batch_size": "nothing: the oracle shows the model batches of its own",
    "samples": "copies, masks or subsets, as the idea is called",
    "baseline": "fill",
}


class _Bands(nn.Module):
    """Each class looks at one third of the last axis and at nothing else: what matters is known."""

    def __init__(self, shape: tuple[int, ...], kind: Kind) -> None:
        super().__init__()
        self.axes = AXES[kind]
        channels = shape[0] if kind != "vector" else 1
        make = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[self.axes - 1]
        self.conv = make(channels, CLASSES, 1, bias=False)
        with torch.no_grad():
            self.conv.weight.fill_(1.0)
        length = shape[-1]
        bands = nn.functional.one_hot(torch.arange(length) * CLASSES // length, CLASSES).T.float()
        self.register_buffer("bands", bands.reshape(CLASSES, *[1] * (self.axes - 1), length))

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, CLASSES): four times the mean brightness of each band."""
        x = x[:, None] if x.ndim == 1 + self.axes else x
        features = torch.relu(self.conv(x)) * self.get_buffer("bands")
        return 4 * CLASSES * features.flatten(2).mean(2)


class _Model:
    """The network as a model."""

    name = "bands"
    classes = CLASSES

    def __init__(self, kind: Kind, access: Access) -> None:
        self.domain = Domain(kind=kind, shape=SHAPES[kind])
        self.access = access
        self.module = _Bands(SHAPES[kind], kind)
        self.info = ModelInfo(module=self.module if access == Access.GRADIENTS else None)

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, CLASSES)."""
        answer: Tensor = self.module(x)
        return answer if self.access == Access.GRADIENTS else answer.detach()

    def digest(self) -> str:
        """Hash of the weights."""
        return hashlib.blake2b(self.module.conv.weight.detach().numpy().tobytes()).hexdigest()


def check_explainer(plugin: type[Any], *, control: bool = False, **settings: Any) -> None:
    """Run every rule over an explainer, on inputs bright in the one band that their class looks at.

    Args:
        plugin: the explainer's class.
        control: whether it is meant to find nothing, as a random map is; then it need not find the
            band.
        settings: settings to check it with, where not its defaults.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("access", "domains"), SYNONYMS)
    explainer: Explainer = plugin(**settings)
    check_settings(explainer)

    for kind in (kind for kind in KINDS if kind in explainer.domains):
        _check(explainer, kind, control)


def _check(explainer: Explainer, kind: Kind, control: bool) -> None:
    """Run the rules on one kind of input."""

    def rule(holds: bool, text: str) -> None:
        """Demand a rule."""
        demand(f"explainer {type(explainer).__name__}", holds, f"{text} (on {kind} inputs)")

    batch, band = _problem(kind)
    model = _Model(kind, Access.GRADIENTS)
    states = generator_states()
    weights = model.digest()
    clean = batch.x.clone()
    maps = _maps(explainer, kind, batch, model)

    # What is not the explainer's stays as it was.
    rule(generator_states() == states, "drew from a global random generator")
    rule(torch.equal(batch.x, clean), "wrote into what it was given")
    rule(model.digest() == weights, "changed the weights of the model")
    parts = model.module.modules()
    hooks = [part for part in parts if part._forward_hooks or part._forward_pre_hooks]
    rule(not hooks, "left a hook on the network")
    # The maps are numbers for each place, the same each time and in any batch.
    expected = (ROWS, *SHAPES[kind][len(SHAPES[kind]) - AXES[kind] :])
    rule(maps.shape == expected, f"gives maps of shape {tuple(maps.shape)}, not {expected}")
    rule(bool(torch.isfinite(maps).all()), "gives NaN or infinity")
    rule(torch.equal(maps, _maps(explainer, kind, batch)), "gave two maps of the same inputs")

    singles = []
    # Alone, with the streams that they had in company.
    for index in (0, 3):
        single = Batch(
            ids=torch.zeros(1, dtype=torch.int64),
            x=batch.x[index : index + 1],
            y=batch.y[index : index + 1],
        )
        singles.append(_maps(explainer, kind, single, streams=torch.tensor([index])))
    # Sums in another order differ in their last bits.
    tolerance = 1e-4 * float(maps.abs().max()) + 1e-7
    equal = torch.allclose(torch.cat(singles), maps[[0, 3]], rtol=1e-3, atol=tolerance)
    rule(equal, "gave other maps when the batch was split")

    # They are larger in the band than elsewhere.
    profile = maps.flatten(1, -2).mean(1) if AXES[kind] > 1 else maps
    in_band = torch.where(band, profile, 0.0).sum(1) / band.sum(1)
    outside = torch.where(~band, profile, 0.0).sum(1) / (~band).sum(1)
    is_found = bool((in_band > outside).all())
    rule(control or is_found, "does not find the band that the class alone looks at")


def _problem(kind: Kind) -> tuple[Batch, Tensor]:
    """Inputs bright in the band of their class, and (n, length) bool: the band."""
    shape = SHAPES[kind]
    y = torch.arange(ROWS) % CLASSES
    band = torch.arange(shape[-1]) * CLASSES // shape[-1] == y[:, None]
    bright = band.float().reshape(ROWS, *[1] * (len(shape) - 1), shape[-1]).expand(ROWS, *shape)
    noise = Streams.of(0, torch.arange(ROWS)).uniform(*shape)
    x = (0.05 + 0.8 * bright + 0.1 * noise).contiguous()
    return Batch(ids=torch.arange(ROWS), x=x, y=y), band


def _maps(
    explainer: Explainer,
    kind: Kind,
    batch: Batch,
    model: _Model | None = None,
    streams: Tensor | None = None,
) -> Tensor:
    """The maps of a batch, whose budget is endless."""
    model = model or _Model(kind, max(explainer.access, Access.SCORES))
    threat = Threat(distance=Linf(), eps=torch.full((len(batch),), torch.inf), domain=model.domain)
    ledger = open_questions(model, batch, threat, access=explainer.access, batch_size=64)
    rng = Streams.of(7, torch.arange(len(batch)) if streams is None else streams)

    with contained(f"explainer {type(explainer).__name__}", f" (on {kind} inputs)"):
        if isinstance(explainer, OpensModel):
            explainer = explainer.attach(model.module, model.domain)
        return explainer(ledger.oracle(), ledger.batch, model.domain, rng)
