"""A training run of a generator: from a request to a file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from brinell.analysis.results import Result
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError
from brinell.engine.plan import choose_device, open_data
from brinell.store.files import named_safetensors
from brinell.studies.generator.generator import Kept, load
from brinell.studies.generator.networks import fits
from brinell.studies.generator.request import TrainGeneratorRequest
from brinell.studies.generator.training import BATCH_SIZE, CLASS_WEIGHT, MEAN_OVER, Report, train
from brinell.studies.kit import Call

FEWEST = 20
"""Samples that each class must have."""


class GeneratorResult(Result):
    """What `brinell train-generator --json` prints."""

    generator: str
    """The file."""
    data: str
    """The data, as they were named."""
    bytes: int
    """Its size."""
    steps: int
    """Updates of both networks."""
    samples: int
    """Inputs that it learned from."""
    digest: str
    """Hash of all that its drawings depend on."""


def carry_out(call: Call) -> GeneratorResult:
    """Train the generator that a call asks for.

    Raises:
        RequestError: what cannot be carried out.
    """
    out = call.file()

    def tell(report: Report) -> None:
        call.progress.note(
            f"step {report.step}, {report.seconds:.0f} s: critic's loss {report.critic:.2f}, classes named "
            f"{100 * report.real_classes:.0f} % of real and {100 * report.drawn_classes:.0f} % of drawn inputs"
        )

    kept = train_generator(call.request, out, tell, dataset=call.dataset())
    return GeneratorResult(
        generator=str(out),
        data=call.request.data,
        bytes=out.stat().st_size,
        steps=kept.about["steps"],
        samples=kept.about["samples"],
        digest=kept.digest(),
    )


def lines(result: GeneratorResult) -> Iterator[str]:
    """The result as a terminal shows it."""
    yield f"{result.samples} inputs, {result.steps} steps, {result.bytes:,} bytes"
    yield f"generator: {result.generator} (brinell unrestricted --data {result.data!r} --generator {result.generator})"


def train_generator(
    request: TrainGeneratorRequest, out: Path, tell: Callable[[Report], None], *, dataset: Dataset | None = None
) -> Kept:
    """Train, write the file, and hand back what it holds; `dataset` is in memory, in place of `request.data`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    named_safetensors(out, "a generator")
    device = choose_device(request.device)
    dataset = open_data(request.data) if dataset is None else dataset
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
