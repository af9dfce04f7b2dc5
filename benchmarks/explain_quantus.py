"""Our measures of explanations compared with those of Quantus 0.6 (Hedstroem et al. 2023), on the same maps of the same digits.

    python benchmarks/explain_quantus.py [--samples 24] [--methods ...]

Our side is what `brinell explain` writes. Quantus is handed the maps, and where it asks the model itself, the same change of the
input: its own ways to hide and to add noise are other ones. The measure remains. If the definitions differ, the line says how,
and its figure is brought to ours by that formula alone. The object of a digit is where its ink is above one half.
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
from brinell.engine.plan import model_opener
from brinell.engine.shard import predict
from brinell.engine.sources import open_data
from brinell.explainers._asking import hidden_fill
from brinell.models._torch_model import TorchModel
from brinell.studies.explain.analysis import values
from brinell.studies.explain.faithfulness import draw_masks, drops
from brinell.studies.explain.randomisation import make_shuffled_model
from brinell.studies.explain.records import TABLE, Rows, load_cascade, load_maps

METHODS = ["rlab?questions=64", "occlusion?windows=4", "gradient", "grad-cam", "guided-backprop"]
DOMAIN = Domain(kind="image", shape=(1, 8, 8))
STEPS, COPIES, NOISE, STAGES = 16, 2, 0.02, 4
TOLERANCE = 1e-5
"""How far a figure of ours may lie from theirs. The networks answer in single precision."""
PLAIN = {"abs": False, "normalise": False, "disable_warnings": True}
"""Settings that keep Quantus from changing a map before the evaluation."""


class OwnMeasures(NamedTuple):
    """Output of `brinell explain` for one method."""

    rows: Rows
    maps: Array
    """(n, *places)."""
    cascade: Array
    """(n, stages): similarity as the model forgets; empty where it was not asked for."""


def explained(module: nn.Module, x: Tensor, y: Tensor, method: str, **settings: Any) -> OwnMeasures:
    """Output of `brinell explain` for these classes of these inputs; by default without measures that query the model again."""
    with tempfile.TemporaryDirectory() as folder:
        request = {"steps": 0, "copies": 0, "select": "first", "explain": "label"} | settings
        result = brinell.explain(module, (x, y), method=method, samples=len(x), device="cpu", out=Path(folder) / "run", **request)
        records = TABLE.read(result.folder)
        stored, ids = load_maps(records.path, range(len(x))), range(len(x))
        cascade = load_cascade(records.path, method, ids) if result.cascade else np.zeros((len(x), 0))
    return OwnMeasures(records.rows, np.stack([stored[method, sample] for sample in ids]), cascade)


def maps_of(module: nn.Module, x: Tensor, y: Tensor, method: str) -> Array:
    """(n, 1, 8, 8): the maps of a method, with a channel as Quantus wants it."""
    return explained(module, x, y, method).maps[:, None].astype(np.float64)


def noisy_copies(x: Tensor, method: str) -> list[Tensor]:
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

    def evaluate(self, metric: Any, maps: Array, **overrides: Any) -> Any:
        """Value of a Quantus measure for these maps (n, ...)."""
        arguments = {"x_batch": self.x.numpy(), "y_batch": self.y.numpy(), "s_batch": self.objects[:, None]} | overrides
        size = len(arguments["x_batch"])
        return metric(model=self.module, a_batch=maps, channel_first=True, device="cpu", batch_size=size, **arguments)

    def overlap(self) -> Array:
        """(n,): the share of the object among as many places as it has; a call each, since k is a setting."""
        overlaps = []
        for index, object_ in enumerate(self.objects):
            metric = self.quantus.TopKIntersection(k=int(object_.sum()), **PLAIN)
            part = slice(index, index + 1)
            arguments = {"x_batch": self.x[part].numpy(), "y_batch": self.y[part].numpy(), "s_batch": self.objects[part, None]}
            overlaps += list(self.evaluate(metric, self.ranked[part], **arguments))
        return np.array(overlaps)

    def flipped(self, start: Tensor, end: Tensor) -> Array:
        """(n, steps + 1): the class's probability while places go over from one input to another, the most important first."""
        target = end.flatten(1).numpy()

        def go_over(arr: Array, indices: Array, **_: Any) -> Array:
            arr = arr.copy()
            np.put_along_axis(arr, indices, np.take_along_axis(target, indices, 1), 1)
            return arr

        step = target.shape[1] // STEPS
        metric = self.quantus.PixelFlipping(features_in_step=step, perturb_func=go_over, **PLAIN)
        curve = np.array(self.evaluate(metric, self.ranked, x_batch=start.numpy(), softmax=True))
        with torch.no_grad():
            first = self.module(start).softmax(1).gather(1, self.y[:, None]).numpy()
        return np.concatenate([first, curve], 1)

    def infidelity(self, hides: Array, drops: Array, fill: Tensor) -> Array:
        """(n,): our infidelity by theirs. They weigh a map by the change of the input and compare in its own units."""
        change = (self.x - fill).numpy().astype(np.float64)
        change[np.abs(change) < 1e-9] = 1e-9
        positive = self.maps - self.maps.min((1, 2, 3), keepdims=True)
        predicted = np.einsum("nkhw,nhw->nk", hides, positive[:, 0])
        scale = (predicted * drops).sum(1) / np.maximum((predicted**2).sum(1), 1e-300)
        calls = iter(range(hides.shape[1]))

        def hide(arr: Array, indices: Array, **_: Any) -> Array:
            return (self.x.numpy() - hides[:, next(calls), None] * change).reshape(arr.shape)

        rounds = hides.shape[1] // 16  # a patch of 2 x 2 has 16 places on 8 x 8
        metric = self.quantus.Infidelity(n_perturb_samples=rounds, perturb_patch_sizes=[2], perturb_func=hide, **PLAIN)
        weighed = positive * scale[:, None, None, None] / change
        infidelities = np.array(self.evaluate(metric, weighed, x_batch=self.x.double().numpy(), softmax=True))
        return np.asarray(infidelities / (drops**2).mean(1))

    def sensitivity(self) -> Array:
        """(n,): the largest change of the map over our copies."""
        copies = iter(noisy_copies(self.x, self.method))

        def shaken(arr: Array, **_: Any) -> Array:
            return next(copies).numpy().reshape(arr.shape)

        metric = self.quantus.MaxSensitivity(nr_samples=COPIES, perturb_func=shaken, **PLAIN)
        return np.asarray(self.evaluate(metric, self.maps, explain_func=self.smooth(0)))

    def smooth(self, copies: int) -> Callable[..., Array]:
        """Explanation function for Quantus: the mean map over the input and its copies with a little noise."""

        def explain(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> Array:
            x, y = torch.as_tensor(inputs).float(), torch.as_tensor(targets)
            around = [x, *noisy_copies(x, self.method)[:copies]]
            return np.asarray(np.mean([maps_of(model, copy, y, self.method) for copy in around], 0))

        return explain

    def randomised(self, metric: Any) -> Any:
        """Value of a measure of randomised parameters, with weights shuffled as Brinell shuffles them."""
        forgets = make_shuffled_model(TorchModel(self.module, DOMAIN, 10), 0)
        assert forgets is not None
        randomised = forgets.shuffle(1).info.module
        assert randomised is not None
        for layer, shuffled in zip(self.module.modules(), randomised.modules(), strict=True):
            if hasattr(layer, "reset_parameters"):
                layer.__dict__["shuffled"] = dict(shuffled.named_parameters(recurse=False))
                layer.__dict__["reset_parameters"] = MethodType(_shuffle, layer)
        averaged = self.smooth(COPIES)
        return self.evaluate(metric, averaged(self.module, self.x, self.y), explain_func=averaged)


def _shuffle(layer: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in layer.named_parameters(recurse=False):
            parameter.copy_(layer.__dict__["shuffled"][name])


def compared(peer: Peer, measures: OwnMeasures, hidden: tuple[Array, Array], fill: Tensor) -> dict[str, tuple[Array, Array]]:
    """Ours and theirs (n,) by measure; of similarity (stages, n)."""
    own_values = {name: values(measures.rows, peer.method, name) for name in LINES} | {"similarity": measures.cascade.T}
    share = peer.overlap()
    rank = peer.quantus.RelevanceRankAccuracy(**PLAIN)
    lifted = peer.maps - peer.maps.min((1, 2, 3), keepdims=True)
    layers = peer.randomised(peer.quantus.MPRT(layer_order="top_down", **PLAIN))
    bins = {"n_bins": 100}
    emprt = peer.quantus.EfficientMPRT(complexity_func_kwargs=bins, layer_order="top_down", **PLAIN)
    peer_values = {
        "dice": np.asarray(peer.evaluate(rank, peer.ranked)),
        "iou": share / (2 - share),
        "pointing": np.asarray(peer.evaluate(peer.quantus.PointingGame(**PLAIN), peer.ranked)),
        "energy": np.asarray(peer.evaluate(peer.quantus.AttributionLocalisation(**PLAIN), lifted)),
        "deletion": np.array([saliency.area_under(scores) for scores in peer.flipped(peer.x, fill)]),
        "insertion": np.array([saliency.area_under(scores) for scores in peer.flipped(fill, peer.x)]),
        "infidelity": peer.infidelity(*hidden, fill),
        "sensitivity": peer.sensitivity(),
        "similarity": np.array([layers[name] for name in layers if name != "original"]),
        "complexity": np.asarray(peer.randomised(emprt)),
    }
    return {name: (own_values[name], np.asarray(value, dtype=np.float64)) for name, value in peer_values.items()}


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
"""By column: the name, the corresponding class of Quantus, and how the definitions differ."""


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
    module = model_opener("digits-cnn", digits)().info.module
    assert module is not None
    x = digits.load(list(range(options.samples)))
    with torch.no_grad():
        y = module(x).argmax(1)
    objects, fill = (x[:, 0] > 0.5).numpy(), hidden_fill(x, DOMAIN)
    hides = draw_masks(x, DOMAIN, Streams.of(0, torch.arange(len(x))).fold("explain").fold("hidden"))
    model = TorchModel(module, DOMAIN, 10)
    hidden = hides.numpy(), drops(lambda rows, inputs: predict(model, inputs, 128), x, y, hides, DOMAIN)
    measured: dict[str, list[tuple[Array, Array]]] = {name: [] for name in LINES}
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.npz"
        np.savez(truth, masks=objects.astype(np.uint8))
        settings = {"steps": STEPS, "copies": COPIES, "noise": NOISE, "cascade": STAGES, "truth": f"npz:{truth}"}
        for method in options.methods:
            measures = explained(module, x, y, method, **settings)
            for name, pair in compared(Peer(module, x, y, objects, method), measures, hidden, fill).items():
                measured[name].append(pair)
    heads = ["measure", "Quantus", "largest difference", "mean, ours", "mean, theirs", "how the definitions differ"]
    title = f"Measures beside Quantus: {len(x)} digits, {len(options.methods)} methods"
    table = measure.Table(title, measure.command(options, "samples", "methods"), heads)
    exceeded = []
    for name, (label, peer_name, differs) in LINES.items():
        own_values, peer_values = (np.concatenate([pair[side].ravel() for pair in measured[name]]) for side in (0, 1))
        finite = np.isfinite(own_values) & np.isfinite(peer_values)
        largest = np.abs(own_values - peer_values)[finite].max()
        if largest > TOLERANCE:
            exceeded.append(label)
        table.add(
            label, peer_name, f"{largest:.1e}", f"{own_values[finite].mean():.3f}", f"{peer_values[finite].mean():.3f}", differs
        )
    if exceeded:
        raise SystemExit(f"further apart than {TOLERANCE:g}: {', '.join(exceeded)}")


if __name__ == "__main__":
    main()
