"""Attacks within a ball of a learned embedding compared with attacks within pixel balls, judged by the same conditions.

    python benchmarks/metric.py [--embedding FILE] [--models lenet5_clean cnn4_pgd] [--samples 200] [--steps 20]

Without a file the embedding is trained first, on 10,000 training images of MNIST, and judged on the 10,000 test images.

A ball called `half` gives each sample half of its distance to the nearest training sample of another class, in the ball's own
distance. Each adversarial example is then judged in all three distances: `label`, it is at most as far from its clean input as
that half; `same`, it is nearer than the nearest training sample of the same class. Shares are of the adversarial examples.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import ROOT, SHARED
from torch import Tensor

from brinell import plugins
from brinell.core import norms, pairs
from brinell.core.ledger import Ledger
from brinell.core.neighbours import Reference
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, size
from brinell.datasets.npz import Npz
from brinell.distances import embedding
from brinell.distances.embedding import Embedding
from brinell.models.torch import TorchModule
from brinell.studies.epsilon import conditions
from brinell.studies.metric.request import MetricRequest
from brinell.studies.metric.run import train_metric

Array = np.ndarray[Any, Any]
SPACES = ("linf", "l2", "embedding")
FACTORIES = {"lenet5_clean": "lenet5", "lenet5_advtrained": "lenet5", "cnn4_pgd": "cnn4"}
COMMON = {"linf": 0.3, "l2": 2.0}


class Limit(NamedTuple):
    """Limits of each sample in one distance, (n,)."""

    label: Tensor
    same_class: Tensor


def limits(x: Tensor, y: Array, x_train: Tensor, y_train: Array, learned: Embedding) -> dict[str, Limit]:
    """By the nearest training samples, in each space."""
    neighbours = {
        "l2": pairs.l2_to(x.flatten(1), y, x_train.flatten(1), y_train),
        "embedding": pairs.l2_to(learned.embed(x), y, learned.embed(x_train), y_train),
    }
    reference = Reference(x_train.flatten(1).numpy(), y_train)
    neighbours["linf"] = reference.nearest("linf", x.flatten(1).numpy(), y, neighbours["l2"])
    bounds = {
        space: conditions.limits(other_class=neighbours[space].other_class, same_class=neighbours[space].same_class)
        for space in SPACES
    }
    kinds = conditions.LABEL, conditions.INTERPOLATION
    return {space: Limit(*(torch.from_numpy(bounds[space][kind]).float() for kind in kinds)) for space in SPACES}


def balls(limits_by_space: dict[str, Limit], steps: int) -> Iterator[tuple[str, str, str, Tensor]]:
    """Name, space, attack and budgets (n,) of each line."""
    for space, eps in COMMON.items():
        yield f"{space} {eps:g}", space, f"pgd?steps={steps}", torch.full_like(limits_by_space[space].label, eps)
    for space in SPACES:
        yield f"{space} half", space, f"pgd?steps={steps}", limits_by_space[space].label
    yield "embedding half", "embedding", f"apgd?steps={steps}", limits_by_space["embedding"].label
    yield "embedding quarter", "embedding", f"pgd?steps={steps}", limits_by_space["embedding"].label / 2


def line(
    name: str, ball: str, attack: str, model: Any, batch: Batch, distance: Distance, eps: Tensor,
    limits_by_space: dict[str, Limit], learned: Embedding, seed: int,
) -> str:  # fmt: skip
    """One attack on one model."""
    threat = Threat(distance=distance, eps=eps, domain=model.domain)
    ledger = Ledger(model, batch, threat)
    name, _, options = plugins.parse(attack)
    start = time.process_time()
    plugins.build("attack", name, options)(ledger.oracle(), batch, threat, Streams.of(seed, batch.ids).fold("metric"))
    seconds = time.process_time() - start
    rows = ledger.fooled.nonzero()[:, 0]
    x, x0, n = ledger.best.closest[rows], batch.x[rows], len(rows)
    reach = {"linf": norms.linf(x - x0), "l2": norms.l2(x - x0), "embedding": size(learned, x, x0)} if n else {}
    keeps = {
        space: (
            reach[space] <= limits_by_space[space].label[rows] * 1.0001,
            reach[space] < limits_by_space[space].same_class[rows],
        )
        for space in reach
    }
    shares = [f"{100 * float(mask.float().mean()):.0f}" for space in keeps for mask in keeps[space]]
    pixels = torch.stack([mask for space in ("linf", "l2") for mask in keeps[space]]).all(0) if n else torch.zeros(0)
    middle = [f"{float(reach[space].median()):.2f}" for space in reach]
    cost = f"{float((ledger.costs.forwards + ledger.costs.backwards).float().mean()):.1f}"
    cells = [name, ball, attack.split("?")[0], f"{float(eps.median()):.2f}", f"{n}/{len(batch)}", *shares,
             f"{100 * float(pixels.float().mean()):.0f}" if n else "-", *middle, cost, f"{seconds:.0f}"]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def trained(seed: int) -> str:
    """A new embedding of MNIST; what it is worth is printed."""
    out = ROOT / "runs" / "mnist-metric.safetensors"
    train, test = (f"npz:{SHARED / 'mnist' / f'mnist_{part}.npz'}" for part in ("train", "test"))
    request = MetricRequest(data=train, test=test, samples=10000, steps=1000, seed=seed)
    print(train_metric(request, out, lambda text: None).model_dump_json(indent=1))
    return str(out)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedding", help="a file of brinell train-metric for MNIST")
    parser.add_argument("--models", nargs="+", default=["lenet5_clean", "cnn4_pgd"], choices=sorted(FACTORIES))
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--reference", type=int, default=10000, help="training samples among which neighbours are looked for")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--newton", type=int, default=embedding.NEWTON, help="Newton steps into a ball; 0: the segment alone")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    embedding.NEWTON = options.newton
    test, train = (Npz(path=str(SHARED / "mnist" / f"mnist_{part}.npz"))() for part in ("test", "train"))
    learned = Embedding(path=options.embedding or trained(options.seed))
    learned.check(test.domain)
    x, y = test.load(range(options.samples)), np.asarray(test.labels()[: options.samples])
    limits_by_space = limits(x, y, train.load(range(options.reference)), np.asarray(train.labels()[: options.reference]), learned)
    for space, limit in limits_by_space.items():
        print(f"{space}: half to another class {float(limit.label.median()):.3f}, least {float(limit.label.min()):.3f}; "
              f"same class {float(limit.same_class.median()):.3f}, least {float(limit.same_class.min()):.3f}; "
              f"same nearer than half {100 * float((limit.same_class < limit.label).float().mean()):.0f} %")  # fmt: skip
    columns = ["model", "ball", "attack", "eps, median", "fooled", *(f"{s} {c}" for s in SPACES for c in ("label", "same")),
               "all in pixels", *(f"median {s}" for s in SPACES), "passes", "cpu s"]  # fmt: skip
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for name in options.models:
        factory = f"{ROOT / 'examples' / 'models' / 'mnist.py'}:{FACTORIES[name]}"
        model = TorchModule(path=factory, weights=str(SHARED / "mnist_weights" / f"{name}.safetensors"))(test.domain)
        with torch.no_grad():
            right = model.predict(x).argmax(1) == torch.from_numpy(y)
        batch = Batch(ids=torch.arange(int(right.sum())), x=x[right], y=torch.from_numpy(y)[right])
        correct_limits = {space: Limit(*(values[right] for values in limit)) for space, limit in limits_by_space.items()}
        for ball, space, attack, eps in balls(correct_limits, options.steps):
            distance = learned if space == "embedding" else plugins.build("distance", space, {})
            print(line(model, ball, attack, model, batch, distance, eps, correct_limits, learned, options.seed), flush=True)


if __name__ == "__main__":
    main()
