"""A training run of a generator: from a request to a file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from brinell.core.errors import RequestError
from brinell.engine.plan import choose_device, open_data
from brinell.store.files import named_safetensors
from brinell.studies.unrestricted.generator import Kept, load
from brinell.studies.unrestricted.networks import fits
from brinell.studies.unrestricted.request import TrainGeneratorRequest
from brinell.studies.unrestricted.training import BATCH_SIZE, CLASS_WEIGHT, MEAN_OVER, Report, train

FEWEST = 20
"""Samples that each class must have."""


def train_generator(request: TrainGeneratorRequest, out: Path, tell: Callable[[Report], None]) -> Kept:
    """Train, write the file, and hand back what it holds.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    named_safetensors(out, "a generator")
    device, dataset = choose_device(request.device), open_data(request.data)
    if why := fits(dataset.domain):
        raise RequestError(f"no generator can be trained on {dataset.name}: {why}")
    labels = np.asarray(dataset.labels(), dtype=np.int64)[: request.samples]
    counts = np.bincount(labels, minlength=len(dataset.classes))
    if counts.min() < FEWEST:
        poor = dataset.classes[int(counts.argmin())]
        raise RequestError(
            f"class {poor!r} of {dataset.name} has {counts.min()} samples, too few to draw it from: give {FEWEST} or more of each"
        )
    x, y = dataset.load(range(len(labels))).to(device), torch.from_numpy(labels).to(device)
    if bool((x == x[:1]).all()):
        raise RequestError(f"all {len(x)} inputs of {dataset.name} are equal: there is nothing to learn from them")
    generator, classifier, steps = train(x, y, dataset.domain, len(counts), request, tell)
    settings = request.model_dump(include={"latent", "width", "rate", "seed"})
    settings |= {"batch_size": BATCH_SIZE, "class_weight": CLASS_WEIGHT, "mean_over": MEAN_OVER}
    about = {"data": request.data, "data_digest": dataset.digest(), "samples": len(labels), "steps": steps, **settings}
    Kept(generator=generator, classifier=classifier, domain=dataset.domain, classes=dataset.classes, about=about).save(out)
    return load(out)


__all__ = ["train_generator"]
