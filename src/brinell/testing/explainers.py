"""The rules that every explainer keeps. `check_explainer` names the first one that is broken."""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from brinell.core.contracts import KINDS, Access, Batch, Domain, Explainer, Kind, OpensModel, Streams
from brinell.core.ledger import Ledger
from brinell.core.model import ModelInfo
from brinell.core.patches import AXES
from brinell.core.threat import Threat
from brinell.testing.form import check_form, check_settings, contained, demand, generator_states

SHAPES: dict[Kind, tuple[int, ...]] = {"image": (3, 12, 12), "signal": (2, 36), "video": (1, 4, 12, 12), "vector": (24,)}
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
        self.domain, self.access = Domain(kind=kind, shape=SHAPES[kind]), access
        self.module = _Bands(SHAPES[kind], kind)
        self.info = ModelInfo(module=self.module if access == Access.GRADIENTS else None)

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, CLASSES)."""
        answer: Tensor = self.module(x)
        return answer if self.access == Access.GRADIENTS else answer.detach()

    def digest(self) -> str:
        """Hash of the weights."""
        return hashlib.blake2b(
            b"".join(parameter.detach().numpy().tobytes() for parameter in self.module.parameters())
        ).hexdigest()


class _Anywhere:
    """A distance in which everything is near: explanations have no budget."""

    name = "linf"

    def size(self, delta: Tensor) -> Tensor:
        """(n,): the largest change."""
        return delta.flatten(1).abs().amax(1)


def check_explainer(plugin: type[Any], *, control: bool = False, **settings: Any) -> None:
    """Run every rule over an explainer, on inputs bright in the one band that their class looks at.

    Args:
        plugin: the explainer's class.
        control: whether it is meant to find nothing, as a random map is; then it need not find the band.
        settings: settings to check it with, where not its defaults.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("access", "domains"), SYNONYMS)
    explainer: Explainer = plugin(**settings)
    check_settings(explainer)
    for kind in (kind for kind in KINDS if kind in explainer.domains):
        maps = _leaves_all_as_it_was(explainer, kind)
        _answers_properly(explainer, kind, maps)
        again = _maps(explainer, kind, _problem(kind))
        _demand(explainer, kind, torch.equal(maps, again), "gave two maps of the same inputs")
        _does_not_mind_its_company(explainer, kind, maps)
        if not control:
            _finds_the_band(explainer, kind, maps)


def _problem(kind: Kind) -> Batch:
    """Inputs bright in the band of their class and dark elsewhere."""
    shape = SHAPES[kind]
    y = torch.arange(ROWS) % CLASSES
    band = torch.arange(shape[-1]) * CLASSES // shape[-1]
    bright = (band == y[:, None]).float().reshape(ROWS, *[1] * (len(shape) - 1), shape[-1]).expand(ROWS, *shape)
    noise = Streams.of(0, torch.arange(ROWS)).uniform(*shape)
    return Batch(ids=torch.arange(ROWS), x=(0.05 + 0.8 * bright + 0.1 * noise).contiguous(), y=y)


def _maps(explainer: Explainer, kind: Kind, batch: Batch, model: _Model | None = None, streams: Tensor | None = None) -> Tensor:
    model = model or _Model(kind, max(explainer.access, Access.SCORES))
    threat = Threat(distance=_Anywhere(), eps=torch.full((len(batch),), torch.inf), domain=model.domain)  # type: ignore[arg-type]
    ledger = Ledger(model, batch, threat, access=explainer.access, batch_size=64, minimal=True)
    rng = Streams.of(7, torch.arange(len(batch)) if streams is None else streams)
    with contained(f"explainer {type(explainer).__name__}", f" (on {kind} inputs)"):
        attached = explainer.attach(model.module, model.domain) if isinstance(explainer, OpensModel) else explainer
        return attached(ledger.oracle(), ledger.batch, model.domain, rng)


def _demand(explainer: Explainer, kind: Kind, holds: bool, rule: str) -> None:
    demand(f"explainer {type(explainer).__name__}", holds, f"{rule} (on {kind} inputs)")


def _leaves_all_as_it_was(explainer: Explainer, kind: Kind) -> Tensor:
    """The maps of the problem; checks that inputs, weights and generators are unchanged."""
    batch, model, before = _problem(kind), _Model(kind, Access.GRADIENTS), generator_states()
    weights = model.digest()
    maps = _maps(explainer, kind, batch, model)
    _demand(explainer, kind, generator_states() == before, "drew from a global random generator")
    _demand(explainer, kind, torch.equal(batch.x, _problem(kind).x), "wrote into what it was given")
    _demand(explainer, kind, model.digest() == weights, "changed the weights of the model")
    hooks = [part for part in model.module.modules() if part._forward_hooks or part._forward_pre_hooks]
    _demand(explainer, kind, not hooks, "left a hook on the network")
    return maps


def _answers_properly(explainer: Explainer, kind: Kind, maps: Tensor) -> None:
    """Check shape and type of the maps."""
    expected = (ROWS, *SHAPES[kind][len(SHAPES[kind]) - AXES[kind] :])
    _demand(explainer, kind, maps.shape == expected, f"gives maps of shape {tuple(maps.shape)}, not {expected}")
    _demand(explainer, kind, bool(torch.isfinite(maps).all()), "gives NaN or infinity")


def _does_not_mind_its_company(explainer: Explainer, kind: Kind, maps: Tensor) -> None:
    """Check that maps do not depend on the batch."""
    batch, alone = _problem(kind), []
    for index in (0, 3):
        single = Batch(ids=torch.zeros(1, dtype=torch.int64), x=batch.x[index : index + 1], y=batch.y[index : index + 1])
        alone.append(_maps(explainer, kind, single, streams=torch.tensor([index])))
    equal = torch.allclose(torch.cat(alone), maps[[0, 3]], rtol=1e-3, atol=1e-4 * float(maps.abs().max()) + 1e-7)
    _demand(explainer, kind, equal, "gave other maps when the batch was split")


def _finds_the_band(explainer: Explainer, kind: Kind, maps: Tensor) -> None:
    """Check that the map finds the values that matter."""
    profile = maps.flatten(1, -2).mean(1) if AXES[kind] > 1 else maps
    band = torch.arange(profile.shape[1]) * CLASSES // profile.shape[1] == _problem(kind).y[:, None]
    inside, outside = (torch.where(mask, profile, 0.0).sum(1) / mask.sum(1) for mask in (band, ~band))
    _demand(explainer, kind, bool((inside > outside).all()), "does not find the band that the class alone looks at")
