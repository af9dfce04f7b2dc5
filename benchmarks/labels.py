"""Attacks that see labels alone: the distance reached within so many queries, beside their peers.

    python benchmarks/labels.py [--models resnet20] [--norm l2] [--samples 20] [--budgets 250 1000]
    [--attacks hop-skip-jump cgba] [--cgba CHECKOUT] [--geoda CHECKOUT]

All get the same network, which answers nothing but labels, and the first test images that it gets
right, without the first `--skip`. A query is one image shown to the network, the first check
included. What counts is the distance of the closest misclassified input that was shown to the
network within the budget, infinite where there was none. Medians are over all samples of all seeds;
`against` is the ratio of medians to the first attack of ours, with a 95 % bootstrap interval over
paired samples, below 1 where the row comes closer.

Peers run on one image at a time, from their own starts, until the budget is spent: HopSkipJump of
foolbox and of ART with their defaults, if they are installed; CGBA and GeoDA of their authors from
the working trees named. GeoDA's file is a script for images of 224 values a side on a GPU, which
ends with its figures: its functions are run with the side of these images in place of 224, on the
processor, with the subspace of as many frequencies of each axis (75 of 224). Both get images with
the mean and the spread of ImageNet's, for which their lengths are meant.
"""

import ast
import contextlib
import importlib.util
import io
import math
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import measure
import minimal
import numpy as np
import torch
from black_box import Bench
from torch import Tensor, nn

from brinell.attacks._shared import cosines
from brinell.core.user_files import import_file

GROUP = "agents"
RUNS = {"": "--samples 3 --budgets 120"}
MEAN, SPREAD = 0.449, 0.226
"""Of the values of ImageNet."""


class BudgetSpent(Exception):
    """The budget is spent."""


@dataclass
class RecordingModel:
    """A model that records, for the attack on one image, the closest misclassified input within
    the budget.
    """

    module: nn.Module
    x: Tensor
    y: int
    norm: float
    budget: int
    queries: int = 1
    """Inputs shown; the first check is one of them."""
    closest: float = math.inf

    def __call__(self, x: Tensor) -> Tensor:
        """The network's answer, noted."""
        x = x.float()  # ART hands on float64
        logits: Tensor = self.module(x)
        size = torch.linalg.vector_norm((x - self.x).flatten(1), ord=self.norm, dim=1)
        in_bounds = ((x >= -1e-6) & (x <= 1 + 1e-6)).flatten(1).all(1)
        size = torch.where((logits.argmax(1) != self.y) & in_bounds, size, torch.inf)
        affordable = max(0, self.budget - self.queries)
        self.closest = min(self.closest, *size[:affordable].tolist(), math.inf)
        self.queries += len(x)
        if self.queries >= self.budget:
            raise BudgetSpent
        return logits


class Forward(nn.Module):
    """A module around a function, as the libraries want it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function's answer; only the labels of it are used."""
        with torch.no_grad():
            return self.function(x)


# --- the peers: (model, x, y, norm, budget), until the budget is spent


def foolbox(model: nn.Module, x: Tensor, y: Tensor, norm: str, budget: int) -> None:
    """HopSkipJump of foolbox."""
    from foolbox import PyTorchModel, attacks

    attack = attacks.HopSkipJumpAttack(constraint=norm)
    try:
        attack(PyTorchModel(model.eval(), bounds=(0, 1), device="cpu"), x, y, epsilons=None)
    except ValueError as error:
        # It found no start, which counts as a distance of infinity.
        if "init_attack" not in str(error):
            raise


def art(model: nn.Module, x: Tensor, y: Tensor, norm: str, budget: int) -> None:
    """HopSkipJump of ART; its starts hold one input of noise at a time."""
    classifier = measure.art_classifier(model.eval(), x)
    from art.attacks.evasion import HopSkipJump

    attack = HopSkipJump(classifier, norm=2 if norm == "l2" else np.inf, max_iter=64, verbose=False)
    attack.generate(x.numpy().copy(), np.eye(10, dtype=np.float32)[y.numpy()])


def normalised(model: nn.Module) -> nn.Module:
    """The model for images with ImageNet's mean and spread, never outside of the bounds by rounding."""
    return Forward(lambda x: model((x * SPREAD + MEAN).clamp(0, 1))).eval()


def cgba(checkout: str, model: nn.Module, x: Tensor, y: Tensor, norm: str, budget: int) -> None:
    """CGBA of its authors."""
    attack = import_file(Path(checkout, "proposed_attack.py")).Proposed_attack(
        normalised(model),
        (x - MEAN) / SPREAD,
        [MEAN] * 3,
        [SPREAD] * 3,
        torch.full_like(x, -MEAN / SPREAD),
        torch.full_like(x, (1 - MEAN) / SPREAD),
        attack_method="CGBA",
        iteration=budget,
        verbose_control="No",
    )
    attack.Attack()


def geoda(checkout: str, model: nn.Module, x: Tensor, y: Tensor, norm: str, budget: int) -> None:
    """GeoDA of its authors: the functions of their script, called as its last lines call them."""
    side = x.shape[-1]
    text = Path(checkout, "GeoDA.py").read_text()
    text = text.replace("224", str(side)).replace(".cuda()", "")
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    frequencies = cosines(side)[: math.ceil(side * 75 / 224)]
    basis = torch.einsum("ui,vj->uvij", frequencies, frequencies).flatten(2).flatten(0, 1)
    source = (x - MEAN) / SPREAD
    script: dict[str, Any] = {
        **{"torch": torch, "nn": nn, "np": np, "math": math, "linalg": np.linalg, "time": time},
        **{"Variable": torch.autograd.Variable, "device": "cpu", "dist": norm},
        **{"net": normalised(model), "x_0": source, "orig_label": int(y), "tol": 1e-4},
        **{"lb": torch.full_like(x, -MEAN / SPREAD), "ub": torch.full_like(x, (1 - MEAN) / SPREAD)},
        **{"sigma": 2e-4, "mean": [MEAN] * 3, "std": [SPREAD] * 3, "verbose_control": "No"},
        **{"image_fb": x[0].permute(1, 2, 0).numpy(), "sub_basis_torch": basis.T.contiguous()},
        **{"grad_estimator_batch_size": 40},
        "clip_image_values": import_file(Path(checkout, "utils.py")).clip_image_values,
    }
    exec(compile(tree, "GeoDA.py", "exec"), script)

    # It changes the image that it is given, which on a GPU is a copy.
    in_place = script["inv_tf"]
    script["inv_tf"] = lambda image, mean, spread: in_place(image.copy(), mean, spread)

    # The queries of each estimate, as the script divides the budget.
    steps = max(1, round(budget / 500))
    for _ in range(2):
        counts, steps = script["opt_query_iteration"](max(1, budget - steps * 25), steps, 0.6)
    x_random, _ = script["find_random_adversarial"](source)
    x_boundary, _ = script["bin_search"](source, x_random, 1e-4)
    script["GeoDA"](x_boundary, steps, counts)


PEERS: dict[str, Callable[..., None]] = {
    "foolbox": foolbox,
    "art": art,
    "cgba": cgba,
    "geoda": geoda,
}


def own_distances(spec: str, bench: Bench, norm: str, budget: int, seed: int) -> list[float]:
    """The distance that an attack of ours reached on each image."""
    sizes: list[float] = bench.fight(spec, norm, 1e3, budget - 1, seed)[0].best.distance.tolist()
    return sizes


def peer_distances(
    run: Callable[..., None], bench: Bench, norm: str, budget: int, seed: int
) -> list[float]:
    """The distance that a peer reached on each image."""
    np.random.seed(seed)  # noqa: NPY002, TID251
    torch.manual_seed(seed)  # noqa: TID251
    distances = []
    for x, y in zip(bench.x.split(1), bench.y.split(1), strict=True):
        order = 2 if norm == "l2" else math.inf
        recorder = RecordingModel(bench.module, x, int(y), order, budget)
        quiet = io.StringIO()
        with (
            contextlib.redirect_stderr(quiet),
            contextlib.redirect_stdout(quiet),
            contextlib.suppress(BudgetSpent),
        ):
            run(Forward(recorder), x, y, norm, budget)
        distances.append(recorder.closest)
    return distances


def compare(name: str, options: Namespace) -> None:
    """One network: a row for each implementation, and two columns for each budget."""
    bench = Bench.of(name, options.samples, options.skip)
    sides: dict[str, Callable[..., list[float]]] = {
        spec: partial(own_distances, spec) for spec in options.attacks
    }
    checkouts = {"cgba": options.cgba, "geoda": options.geoda}
    for peer, run in PEERS.items():
        if peer in checkouts and checkouts[peer]:
            sides[f"authors' {peer}"] = partial(peer_distances, partial(run, checkouts[peer]))
        elif peer not in checkouts and importlib.util.find_spec(peer):
            sides[f"hop-skip-jump of {peer}"] = partial(peer_distances, run)

    columns = [f"{kind} @{budget}" for budget in options.budgets for kind in ("median", "against")]
    title = f"Median {options.norm} with labels alone: {bench.subject.name}, {len(bench.y)} samples"
    table = measure.Table(title, ["attack", *columns, "without a start"])
    first: dict[int, np.ndarray] = {}
    for side, run in sides.items():
        cells: list[str] = []
        for budget in options.budgets:
            reached = [run(bench, options.norm, budget, seed) for seed in options.seeds]
            sizes = np.concatenate(reached)
            reference = first.setdefault(budget, sizes)
            low, high = minimal.interval(minimal.ratio, sizes, reference)
            against = f"{minimal.ratio(sizes, reference):.2f} ({low:.2f} to {high:.2f})"
            cells += [f"{np.median(sizes):.3f}", "" if sizes is reference else against]
        table.add(side, *cells, int(np.isinf(sizes).sum()))


def main() -> None:
    """A table for each network."""
    lists = {"models": ["resnet20"], "budgets": [250, 1000], "seeds": [0]}
    options = measure.arguments(
        __doc__,
        **lists,
        attacks=["hop-skip-jump", "cgba"],
        norm=("l2", "linf"),
        samples=20,
        skip=0,
        cgba="",
        geoda="",
    )
    for name in options.models:
        compare(name, options)


if __name__ == "__main__":
    main()
