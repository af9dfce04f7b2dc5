"""A training run of an embedding: from a request to a file for the norm `embedding:FILE`, and how
well it tells classes apart.

Schroff, Kalenichenko & Philbin 2015, FaceNet: a unified embedding for face recognition and
clustering, sections 3.1 and 3.2: triplet loss on squared distances between points of the unit
sphere, over all semi-hard triplets of a batch, whose negative is farther than the positive by less
than the margin.

Deviations: batches hold classes alike often, some samples of each; a small network, whose file
stays below 1 MB; AdamW with a rate that rises and falls, as for digits-cnn.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from brinell.analysis.auc import pair_auc
from brinell.analysis.means import mean_difference
from brinell.analysis.robust_accuracy import class_name, share
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.neighbours import Reference, class_means
from brinell.core.record import Array
from brinell.core.splits import stratified
from brinell.core.streams import initial
from brinell.distances import _embedding as embedding
from brinell.distances.embedding import FORMAT, Embedding
from brinell.engine.request import count_samples
from brinell.engine.sources import open_data
from brinell.store.files import check_safetensors_name, write_atomically
from brinell.studies.kit import Call
from brinell.studies.metric import MetricRequest
from brinell.studies.metric.result import NEIGHBOURS, MetricResult
from brinell.studies.work import check_alike


def gain(before: Tensor, after: Tensor, labels: Array) -> dict[str, float | None]:
    """AUC of L2 between points (n, d), and between those of the same samples in another space (n,
    k), of classes `labels` (n,).

    The interval is of the difference over samples. It does not cover the choice of the training
    run.
    """
    (old, old_values) = pair_auc(torch.pdist(before).numpy(), labels)
    (new, new_values) = pair_auc(torch.pdist(after).numpy(), labels)
    estimate = mean_difference(new_values - old_values)
    low, high = (estimate and estimate.interval) or (None, None)
    return {"pixels": old, "embedding": new, "gain": new - old, "low": low, "high": high}


def votes(points: Tensor, reference: Tensor, reference_labels: Array, k: int) -> Array:
    """(n,) int64: the class of most of the k nearest of `reference` (m, d), of two with as many
    that of the nearer ones.
    """
    labels = torch.from_numpy(reference_labels)
    # A millionth for each place decides ties and nothing else.
    weight = 1 + 1e-6 * torch.arange(k, 0, -1, dtype=torch.float64)
    predictions = []

    # Not all at once: the distances of every pair would not fit the memory.
    for part in torch.split(points, 512):
        nearest_labels = labels[torch.cdist(part, reference).topk(k, largest=False).indices]
        tally = torch.zeros(len(part), int(labels.max()) + 1, dtype=torch.float64)
        predictions.append(
            tally.scatter_add_(1, nearest_labels, weight.expand(len(part), k)).argmax(1)
        )
    return np.asarray(torch.cat(predictions).numpy())


ASIDE = 0.2
"""The share of the data that is judged by where no other data are named."""
AUC_SAMPLES = 1000
"""Samples at most by whose pairs the AUC is measured."""
SCALED = 2000
"""Samples at most by whose pairs the scale of the embedding is measured."""
MARGIN, RATE, BATCH_SIZE = 0.2, 0.002, 128
"""Margin (alpha) of the triplet loss, in squared distance on the unit sphere; largest learning
rate; samples of a batch."""
MOST_BYTES, CLASSES_PER_BATCH, REPORTS = 10**6, 16, 10
"""Bytes of the file at most; classes of a batch at most; messages of a training."""


def carry_out(call: Call) -> MetricResult:
    """Train the distance that a call asks for, write its file, and measure it."""
    request = call.request
    out = call.file()
    check_safetensors_name(out, "an embedding")
    tools = _tools()
    dataset = call.dataset() or open_data(request.data)
    x, y, held_x, held_y = _split(request, dataset, call.dataset("test"))
    notes = _look(y, held_y)
    mean = float(x.mean())
    spread = float(x.std())
    if not spread > 0 or not np.isfinite(spread):
        raise RequestError(
            f"data {dataset.name} holds one value only, or NaN: there is nothing "
            "to learn a distance from"
        )

    layers = embedding.layers_for(dataset.domain, mean, spread)
    network = embedding.build(layers)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    if 4 * parameters > MOST_BYTES:  # of float32
        raise RequestError(
            f"inputs of shape {dataset.domain.shape} make a network of "
            f"{parameters} weights: shrink them first"
        )
    initial(network, torch.Generator().manual_seed(request.seed))

    start = time.process_time()
    triplets = _train(network, x, y, request, tools, call.progress.note)
    seconds = time.process_time() - start

    header = {
        "format": FORMAT,
        "kind": "embedding",
        "domain": dataset.domain.to_json(),
        "layers": layers,
        "scale": _scale(network, x, request.seed),
        "about": request.model_dump()
        | {"digest": dataset.digest(), "trained_on": len(x), "triplets": triplets},
    }
    content = save(
        {name: value.contiguous() for name, value in network.state_dict().items()},
        {"brinell": json.dumps(header)},
    )
    write_atomically(out, lambda temporary: temporary.write_bytes(content))

    # Judged by the file that was written, so that what is said holds of it.
    trained = Embedding(path=str(out))
    return _judge(
        trained,
        (x, y, held_x, held_y),
        request.seed,
        list(dataset.classes),
        embedding=str(out),
        digest=trained.digest(),
        bytes=out.stat().st_size,
        data=dataset.name,
        seconds=seconds,
        notes=notes,
    )


def _tools() -> tuple[Any, Any]:
    """The miner and the loss of the library, neither of which draws a random number."""
    try:
        from pytorch_metric_learning import distances, losses, miners
    except ModuleNotFoundError:
        raise RequestError(
            "training an embedding needs pytorch-metric-learning: pip install 'brinell[metric]'"
        ) from None
    squared = distances.LpDistance(normalize_embeddings=False, p=2, power=2)
    return (
        miners.TripletMarginMiner(margin=MARGIN, type_of_triplets="semihard", distance=squared),
        losses.TripletMarginLoss(margin=MARGIN, distance=squared),
    )


def _split(
    request: MetricRequest, dataset: Dataset, test: Dataset | None
) -> tuple[Tensor, Array, Tensor, Array]:
    """Inputs and labels to learn from, and those to judge by."""

    def first_samples(source: Dataset) -> tuple[Tensor, Array]:
        n = count_samples(request.samples, len(source))
        return source.load(range(n)), np.asarray(source.labels()[:n], dtype=np.int64)

    x, labels = first_samples(dataset)
    if request.test is None and test is None:
        learned, held_out = stratified(labels, ASIDE, request.seed)
        return x[learned], labels[learned], x[held_out], labels[held_out]
    test_data = open_data(str(request.test)) if test is None else test
    check_alike(test_data, dataset)
    return x, labels, *first_samples(test_data)


def _look(y: Array, held_labels: Array) -> tuple[str, ...]:
    """Notes on the labels, which are refused where nothing can be learned from them or judged by
    them.
    """
    classes, count = np.unique(y, return_counts=True)
    if len(classes) < 2 or not (count > 1).any():
        raise RequestError(
            "a triplet takes two samples of one class and one of another: these "
            "data have none to learn from"
        )
    # Without pairs of both kinds there is no area under a curve.
    if len(np.unique(held_labels)) < 2 or len(np.unique(held_labels)) == len(held_labels):
        raise RequestError(
            "the held-out samples make no pair within a class, or none between "
            f"classes: name more by {option('test')}"
        )

    notes = []
    if single := classes[count == 1].tolist():
        notes.append(
            f"classes of one sample ({', '.join(map(str, single[:6]))}) are never "
            "pulled together, only pushed away"
        )
    if new := sorted(set(held_labels.tolist()) - set(classes.tolist())):
        notes.append(f"held-out classes that were not learnt: {', '.join(map(str, new[:6]))}")
    return tuple(notes)


def _batches(y: Array, request: MetricRequest) -> Iterator[Tensor]:
    """Positions of each batch: some classes, as many samples of each, drawn anew, and no sample
    twice.
    """
    rng = torch.Generator().manual_seed(request.seed + 1)
    rows = [torch.from_numpy(np.flatnonzero(y == label)) for label in np.unique(y)]
    number_of_classes = min(len(rows), CLASSES_PER_BATCH, BATCH_SIZE // 2)
    per_class = BATCH_SIZE // number_of_classes

    for _ in range(request.steps):
        classes = torch.randperm(len(rows), generator=rng)[:number_of_classes].tolist()
        # With many samples a few draws never meet; a whole permutation for each batch would cost
        # more than the network.
        draws = [
            np.unique(torch.randint(len(rows[c]), (per_class,), generator=rng).numpy())
            for c in classes
        ]
        yield torch.cat(
            [rows[c][torch.from_numpy(picks)] for c, picks in zip(classes, draws, strict=True)]
        )


def _train(
    network: nn.Module,
    x: Tensor,
    y: Array,
    request: MetricRequest,
    tools: tuple[Any, Any],
    tell: Callable[[str], None],
) -> int:
    """Train the network by the triplet loss; returns how many triplets were seen."""
    miner, loss = tools
    labels = torch.from_numpy(y)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    total = 0
    with torch.enable_grad():
        for step, rows in enumerate(_batches(y, request), 1):
            part = step / request.steps
            # The rate rises for a fifth of the training, where both lines are about 1, and then
            # falls to a hundredth.
            optimizer.param_groups[0]["lr"] = RATE * min(5 * part, 1.25 * (1 - part) + 0.01)
            points = network(x[rows]).flatten(1)
            triplets = miner(points.detach(), labels[rows])
            if len(triplets[0]):
                total += len(triplets[0])
                optimizer.zero_grad()
                loss(points, labels[rows], triplets).backward()
                optimizer.step()
            if step % max(1, request.steps // REPORTS) == 0:
                tell(f"step {step} of {request.steps}: {total} semi-hard triplets so far")

    if not total:
        raise RequestError(
            "no batch held a semi-hard triplet: name more samples of each class "
            f"by {option('samples')}"
        )
    network.requires_grad_(False)
    return total


def _scale(network: nn.Module, x: Tensor, seed: int) -> float:
    """Median ratio of both distances over pairs of neighbours in a random order."""
    # Another stream than that of the training, which is seeded by `seed + 1`.
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed + 2))[:SCALED]
    with torch.no_grad():
        inputs = x[order]
        points = torch.cat([network(part).flatten(1) for part in torch.split(inputs, 256)])
    # From each input to the next one in that order.
    input_distance = (inputs[1:] - inputs[:-1]).flatten(1).norm(dim=1)
    embedded_distance = (points[1:] - points[:-1]).flatten(1).norm(dim=1)
    # Two inputs that the network sends to one point have no ratio.
    separable = embedded_distance > 1e-6
    if not separable.any():
        raise RequestError(
            f"the network sends every input to the same point: try more {option('steps')}"
        )
    return float((input_distance[separable] / embedded_distance[separable]).median())


def _judge(
    trained: Embedding,
    split: tuple[Tensor, Array, Tensor, Array],
    seed: int,
    classes: list[str],
    **facts: Any,
) -> MetricResult:
    """Measure the learned distance on held-out samples."""
    x, y, held_x, held_y = split
    spaces = {
        "pixels": (x.flatten(1), held_x.flatten(1)),
        "embedding": (trained.embed(x), trained.embed(held_x)),
    }
    # Pairs grow with the square of the samples, so that some of them must do.
    subset = np.sort(np.random.default_rng(seed).permutation(len(held_y))[:AUC_SAMPLES])
    labels = held_y[subset]
    # An AUC compares pairs within a class with pairs between classes, and needs both.
    if len(np.unique(labels)) in (1, len(subset)):
        raise RequestError(
            "too few held-out samples of one class to judge a distance by: name "
            f"more by {option('test')}"
        )

    measured = {
        name: held_points[torch.from_numpy(subset)] for name, (_, held_points) in spaces.items()
    }
    names = [class_name(classes, k) for k in range(max(len(classes), int(labels.max()) + 1))]
    means = {
        name: class_means(points, labels, len(names), "l2") for name, points in measured.items()
    }

    return MetricResult(
        classes=names,
        means={
            name: [[None if np.isnan(mean) else float(mean) for mean in row] for row in array]
            for name, array in means.items()
        },
        trained_on=len(y),
        held_out=len(held_y),
        auc=gain(measured["pixels"], measured["embedding"], labels),
        knn={
            name: share(votes(held_points, points, y, min(NEIGHBOURS, len(y))) == held_y)
            for name, (points, held_points) in spaces.items()
        },
        eps={
            name: _label_limits(points, y, measured[name], labels)
            for name, (points, _) in spaces.items()
        },
        **facts,
    )


def _label_limits(
    points: Tensor, y: Array, held_points: Tensor, held_y: Array
) -> dict[str, float | None]:
    """Quantiles over held-out samples of half the distance to the nearest training sample of
    another class.
    """
    limits = Reference(points.numpy(), y).nearest("l2", held_points.numpy(), held_y).other_class / 2
    finite = limits[np.isfinite(limits)]
    return {
        name: float(np.quantile(finite, level)) if len(finite) else None
        for name, level in (("percent_1", 0.01), ("median", 0.5))
    }
