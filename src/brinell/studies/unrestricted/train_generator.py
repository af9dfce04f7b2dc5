"""A training run of a generator: from a request to a file."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from brinell.core.errors import RequestError
from brinell.engine.plan import choose_device, open_data
from brinell.studies.unrestricted.generator import Kept, load
from brinell.studies.unrestricted.networks import fits
from brinell.studies.unrestricted.training import Lessons, Report, train

FEWEST = 20
"""Samples that each class must have."""


@dataclass(frozen=True, kw_only=True)
class Schooling:
    """What is to be drawn, and how that is learned."""

    data: str = "digits?split=train"
    """Inputs to learn from."""
    samples: int | None = None
    """Inputs at most, from the first; none for all."""
    lessons: Lessons = Lessons()
    """How."""
    device: str = "auto"
    """cpu, cuda, or auto."""


def school(schooling: Schooling, out: Path, tell: Callable[[Report], None]) -> Kept:
    """Train, write the file, and hand back what it holds.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    device, dataset = choose_device(schooling.device), open_data(schooling.data)
    if why := fits(dataset.domain):
        raise RequestError(f"no generator can be trained on {dataset.name}: {why}")
    labels = np.asarray(dataset.labels(), dtype=np.int64)[: schooling.samples]
    counts = np.bincount(labels, minlength=len(dataset.classes))
    if counts.min() < FEWEST:
        poor = dataset.classes[int(counts.argmin())]
        raise RequestError(
            f"class {poor!r} of {dataset.name} has {counts.min()} samples, too few to draw it from: give {FEWEST} or more of each"
        )
    x, y = dataset.load(range(len(labels))).to(device), torch.from_numpy(labels).to(device)
    if bool((x == x[:1]).all()):
        raise RequestError(f"all {len(x)} inputs of {dataset.name} are equal: there is nothing to learn from them")
    generator, classifier, steps = train(x, y, dataset.domain, len(counts), schooling.lessons, tell)
    lessons = {name: value for name, value in asdict(schooling.lessons).items() if name not in ("seconds", "steps")}
    about = {"data": schooling.data, "data_digest": dataset.digest(), "samples": len(labels), "steps": steps, **lessons}
    Kept(generator=generator, classifier=classifier, domain=dataset.domain, classes=dataset.classes, about=about).save(out)
    return load(out)


__all__ = ["Schooling", "school"]
