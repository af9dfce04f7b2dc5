"""Our measures of explanations beside those of Quantus 0.6 (Hedstroem et al. 2023), on the same maps of the same digits.

    python benchmarks/explain_quantus.py [--samples 24] [--methods ...]

Our side is what `brinell explain` writes. Quantus is handed the maps, and where it asks the model itself, the same change of the
input: its own ways to hide and to add noise are other ones. What is left is the measure. Where the definitions differ, the line
says how, and its figure is brought to ours by that formula alone. The object of a digit is where its ink is above one half.
"""

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import measure
import numpy as np
import torch
from torch import Tensor, nn

import brinell
from brinell.analysis import saliency
from brinell.core.domain import Domain
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.plan import open_data, opener_of
from brinell.explainers._asking import hidden_by
from brinell.models._torch_model import TorchModel
from brinell.studies.explain.analysis import values
from brinell.studies.explain.faithfulness import perturbed
from brinell.studies.explain.randomisation import forgetful
from brinell.studies.explain.records import TABLE, Rows, load_cascade, load_maps

METHODS = ["rlab?questions=64", "occlusion?windows=4", "gradient", "grad-cam", "guided-backprop"]
DOMAIN = Domain(kind="image", shape=(1, 8, 8))
STEPS, COPIES, NOISE, STAGES = 16, 2, 0.02, 4
TOLERANCE = 1e-5
"""How far a figure of ours may lie from theirs. The networks answer in single precision."""
PLAIN = {"abs": False, "normalise": False, "disable_warnings": True}
"""What keeps Quantus from changing a map before it is judged."""


class Ours(NamedTuple):
    """What `brinell explain` writes about one method."""

    rows: Rows
    maps: Array
    """(n, *places)."""
    cascade: Array
    """(n, stages): similarity as the model forgets; empty where it was not asked for."""


def explained(module: nn.Module, x: Tensor, y: Tensor, method: str, **settings: Any) -> Ours:
    """What `brinell explain` writes about these classes of these inputs; by default without what asks the model again."""
    with tempfile.TemporaryDirectory() as folder:
        asked = {"steps": 0, "copies": 0, "select": "first", "explain": "label"} | settings
        made = brinell.explain(module, (x, y), method=method, samples=len(x), device="cpu", out=Path(folder) / "run", **asked)
        held = TABLE.read(made.folder)
        stored, ids = load_maps(held.path, range(len(x))), range(len(x))
        cascade = load_cascade(held.path, method, ids) if made.cascade else np.zeros((len(x), 0))
    return Ours(held.rows, np.stack([stored[method, sample] for sample in ids]), cascade)


def maps_of(module: nn.Module, x: Tensor, y: Tensor, method: str) -> Array:
    """(n, 1, 8, 8): the maps of a method, with a channel as Quantus wants it."""
    return explained(module, x, y, method).maps[:, None].astype(np.float64)


def near(x: Tensor, method: str) -> list[Tensor]:
    """The copies with a little noise on which `brinell explain` tries a method again."""
    rng = Streams.of(0, torch.arange(len(x))).fold("explain").fold(method)
    return [DOMAIN.clamp(x + NOISE * rng.fold(f"noise {copy}").normal(*x.shape[1:])) for copy in range(COPIES)]


class Peer:
    """Quantus on the maps of one method."""

    def __init__(self, module: nn.Module, x: Tensor, y: Tensor, objects: Array, method: str) -> None:
        import quantus

        self.quantus, self.module, self.x, self.y, self.method = quantus, module, x, y, method
        self.maps, self.objects = maps_of(module, x, y, method), objects
        order = np.argsort(-self.maps.reshape(len(x), -1), axis=1, kind="stable")
        self.ranked = np.zeros(order.shape)
        np.put_along_axis(self.ranked, order, np.arange(order.shape[1], 0, -1.0)[None], axis=1)
        self.ranked = self.ranked.reshape(self.maps.shape)

    def told(self, metric: Any, maps: Array, **more: Any) -> Any:
        """What a measure says of these maps (n, ...)."""
        given = {"x_batch": self.x.numpy(), "y_batch": self.y.numpy(), "s_batch": self.objects[:, None]} | more
        size = len(given["x_batch"])
        return metric(model=self.module, a_batch=maps, channel_first=True, device="cpu", batch_size=size, **given)

    def overlap(self) -> Array:
        """(n,): the share of the object among as many places as it has; a call each, since k is a setting."""
        found = []
        for at, object_ in enumerate(self.objects):
            metric = self.quantus.TopKIntersection(k=int(object_.sum()), **PLAIN)
            one = slice(at, at + 1)
            given = {"x_batch": self.x[one].numpy(), "y_batch": self.y[one].numpy(), "s_batch": self.objects[one, None]}
            found += list(self.told(metric, self.ranked[one], **given))
        return np.array(found)

    def flipped(self, start: Tensor, end: Tensor) -> Array:
        """(n, steps + 1): the class's probability while places go over from one input to another, the most important first."""
        target = end.flatten(1).numpy()

        def go_over(arr: Array, indices: Array, **_: Any) -> Array:
            arr = arr.copy()
            np.put_along_axis(arr, indices, np.take_along_axis(target, indices, 1), 1)
            return arr

        step = target.shape[1] // STEPS
        metric = self.quantus.PixelFlipping(features_in_step=step, perturb_func=go_over, **PLAIN)
        curve = np.array(self.told(metric, self.ranked, x_batch=start.numpy(), softmax=True))
        with torch.no_grad():
            first = self.module(start).softmax(1).gather(1, self.y[:, None]).numpy()
        return np.concatenate([first, curve], 1)

    def infidelity(self, hides: Array, drops: Array, fill: Tensor) -> Array:
        """(n,): our infidelity by theirs. They weigh a map by the change of the input and compare in its own units."""
        moved = (self.x - fill).numpy().astype(np.float64)
        moved[np.abs(moved) < 1e-9] = 1e-9
        positive = self.maps - self.maps.min((1, 2, 3), keepdims=True)
        predicted = np.einsum("nkhw,nhw->nk", hides, positive[:, 0])
        scale = (predicted * drops).sum(1) / np.maximum((predicted**2).sum(1), 1e-300)
        calls = iter(range(hides.shape[1]))

        def hide(arr: Array, indices: Array, **_: Any) -> Array:
            return (self.x.numpy() - hides[:, next(calls), None] * moved).reshape(arr.shape)

        rounds = hides.shape[1] // 16  # a patch of 2 x 2 has 16 places on 8 x 8
        metric = self.quantus.Infidelity(n_perturb_samples=rounds, perturb_patch_sizes=[2], perturb_func=hide, **PLAIN)
        weighed = positive * scale[:, None, None, None] / moved
        theirs = np.array(self.told(metric, weighed, x_batch=self.x.double().numpy(), softmax=True))
        return np.asarray(theirs / (drops**2).mean(1))

    def sensitivity(self) -> Array:
        """(n,): the largest change of the map over our copies."""
        copies = iter(near(self.x, self.method))

        def shaken(arr: Array, **_: Any) -> Array:
            return next(copies).numpy().reshape(arr.shape)

        metric = self.quantus.MaxSensitivity(nr_samples=COPIES, perturb_func=shaken, **PLAIN)
        return np.asarray(self.told(metric, self.maps, explain_func=self.smooth(0)))

    def smooth(self, copies: int) -> Callable[..., Array]:
        """What Quantus asks for a map: the mean over the input and its copies with a little noise."""

        def explain(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> Array:
            x, y = torch.as_tensor(inputs).float(), torch.as_tensor(targets)
            around = [x, *near(x, self.method)[:copies]]
            return np.asarray(np.mean([maps_of(model, one, y, self.method) for one in around], 0))

        return explain

    def randomised(self, metric: Any) -> Any:
        """What a measure of randomised parameters says, with weights shuffled as we shuffle them."""
        forgets = forgetful(TorchModel(self.module, DOMAIN, 10), 0)
        assert forgets is not None
        other = forgets.at(1).info.module
        assert other is not None
        for own, shuffled in zip(self.module.modules(), other.modules(), strict=True):
            if hasattr(own, "reset_parameters"):
                own.__dict__["shuffled"] = dict(shuffled.named_parameters(recurse=False))
                own.__dict__["reset_parameters"] = MethodType(_shuffle, own)
        averaged = self.smooth(COPIES)
        return self.told(metric, averaged(self.module, self.x, self.y), explain_func=averaged)


def _shuffle(layer: nn.Module) -> None:
    with torch.no_grad():
        for name, one in layer.named_parameters(recurse=False):
            one.copy_(layer.__dict__["shuffled"][name])


def compared(peer: Peer, held: Ours, hidden: tuple[Array, Array], fill: Tensor) -> dict[str, tuple[Array, Array]]:
    """Ours and theirs (n,) by measure; of similarity (stages, n)."""
    ours = {name: values(held.rows, peer.method, name) for name in LINES} | {"similarity": held.cascade.T}
    share = peer.overlap()
    rank = peer.quantus.RelevanceRankAccuracy(**PLAIN)
    lifted = peer.maps - peer.maps.min((1, 2, 3), keepdims=True)
    layers = peer.randomised(peer.quantus.MPRT(layer_order="top_down", **PLAIN))
    bins = {"n_bins": 100}
    emprt = peer.quantus.EfficientMPRT(complexity_func_kwargs=bins, layer_order="top_down", **PLAIN)
    theirs = {
        "dice": np.asarray(peer.told(rank, peer.ranked)),
        "iou": share / (2 - share),
        "pointing": np.asarray(peer.told(peer.quantus.PointingGame(**PLAIN), peer.ranked)),
        "energy": np.asarray(peer.told(peer.quantus.AttributionLocalisation(**PLAIN), lifted)),
        "deletion": np.array([saliency.area_under(one) for one in peer.flipped(peer.x, fill)]),
        "insertion": np.array([saliency.area_under(one) for one in peer.flipped(fill, peer.x)]),
        "infidelity": peer.infidelity(*hidden, fill),
        "sensitivity": peer.sensitivity(),
        "similarity": np.array([layers[name] for name in layers if name != "original"]),
        "complexity": np.asarray(peer.randomised(emprt)),
    }
    return {name: (ours[name], np.asarray(one, dtype=np.float64)) for name, one in theirs.items()}


LINES = {
    "dice": ("Dice at equal area", "RelevanceRankAccuracy", "none: with as many places as the object has, Dice is their share"),
    "iou": (
        "IoU at equal area",
        "TopKIntersection",
        "theirs is a share s of k places; with k as large as the object IoU is s/(2-s)",
    ),
    "pointing": ("pointing", "PointingGame", "of equal values the first counts; theirs hits if any lies on the object"),
    "energy": ("energy inside", "AttributionLocalisation", "ours counts the smallest value as 0; theirs cuts at 0"),
    "deletion": (
        "deletion",
        "PixelFlipping",
        "ours has the input as it is as first point, and shares, not steps, below the curve",
    ),
    "insertion": ("insertion", "PixelFlipping", "the same from the blurred input towards the input; Quantus has no insertion"),
    "infidelity": ("infidelity", "Infidelity", "ours is at the best scale of the map, over that of a map of zeros; see below"),
    "sensitivity": ("max-sensitivity", "MaxSensitivity", "none"),
    "similarity": (
        "similarity (sMPRT)",
        "MPRT, layer by layer",
        "ours averages maps over noise and shuffles weights; theirs draws them anew",
    ),
    "complexity": ("rise of entropy (eMPRT)", "EfficientMPRT", "ours has 100 bins, theirs a rule for their number"),
}
"""By column: the name, what of Quantus it is held against, and how the definitions differ."""


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    digits = open_data("digits")
    module = opener_of("digits-cnn", digits)().info.module
    assert module is not None
    x = digits.load(list(range(options.samples)))
    with torch.no_grad():
        y = module(x).argmax(1)
    objects, fill = (x[:, 0] > 0.5).numpy(), hidden_by(x, DOMAIN)
    ids = Streams.of(0, torch.arange(len(x))).fold("explain").fold("hidden")
    hidden = perturbed(TorchModel(module, DOMAIN, 10), x, y, DOMAIN, ids, 128)
    found: dict[str, list[tuple[Array, Array]]] = {name: [] for name in LINES}
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.npz"
        np.savez(truth, masks=objects.astype(np.uint8))
        asked = {"steps": STEPS, "copies": COPIES, "noise": NOISE, "cascade": STAGES, "truth": f"npz:{truth}"}
        for method in options.methods:
            held = explained(module, x, y, method, **asked)
            for name, pair in compared(Peer(module, x, y, objects, method), held, hidden, fill).items():
                found[name].append(pair)
    heads = ["measure", "Quantus", "largest difference", "mean, ours", "mean, theirs", "how the definitions differ"]
    title = f"Measures beside Quantus: {len(x)} digits, {len(options.methods)} methods"
    table = measure.Table(title, measure.command(options, "samples", "methods"), heads)
    apart = []
    for name, (what, theirs, differs) in LINES.items():
        ours, others = (np.concatenate([pair[side].ravel() for pair in found[name]]) for side in (0, 1))
        known = np.isfinite(ours) & np.isfinite(others)
        largest = np.abs(ours - others)[known].max()
        if largest > TOLERANCE:
            apart.append(what)
        table.add(what, theirs, f"{largest:.1e}", f"{ours[known].mean():.3f}", f"{others[known].mean():.3f}", differs)
    if apart:
        raise SystemExit(f"further apart than {TOLERANCE:g}: {', '.join(apart)}")


if __name__ == "__main__":
    main()
