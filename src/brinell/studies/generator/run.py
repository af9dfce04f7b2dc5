"""A training run of a generator: from a request to a file, by an AC-GAN that trains on one processor in minutes.

Odena, Olah & Shlens 2017, section 4, with these deviations:

- The hinge loss and spectral normalisation (Miyato et al. 2018) in place of the logistic loss: stable without a balance to keep.
- The class head learns from real inputs alone. It later says whether an input still shows the intended class, and would
  otherwise have been taught to find that class in whatever the generator drew.
- The generator that is kept is the exponential mean of its weights over the steps (Karras et al. 2018), with batch statistics
  taken anew for it: smoother pictures for nothing.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.analysis.folder_result import Result
from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.errors import ModelError, RequestError, option
from brinell.engine.plan import choose_device
from brinell.engine.request import count_samples
from brinell.engine.sources import open_data
from brinell.store.files import check_safetensors_name
from brinell.studies.generator.generator import Kept, load
from brinell.studies.generator.networks import Classifier, Critic, Generator, fits, initialise
from brinell.studies.generator.request import TrainGeneratorRequest
from brinell.studies.kit import Call

REPORT_EVERY = 500
"""Steps between two reports."""
RECOUNT = 20
"""Batches by which the batch statistics of the mean generator are taken."""
BATCH_SIZE = 64
"""Real and drawn inputs of a step, each."""
CLASS_WEIGHT = 0.5
"""Weight of the generator's class loss relative to the adversarial loss."""
MEAN_OVER = 0.999
"""Decay of the mean of the generator's weights."""


class Report(NamedTuple):
    """How far training has come."""

    step: int
    seconds: float
    critic: float
    """The critic's hinge loss: 2 where it cannot tell drawn from real, 0 where it always can."""
    real_classes: float
    """Share of real inputs whose class the auxiliary head names, in the last batch."""
    drawn_classes: float
    """The same for drawn inputs and intended classes."""


def train(
    x: Tensor, y: Tensor, domain: Domain, classes: int, config: TrainGeneratorRequest, tell: Callable[[Report], None]
) -> tuple[Generator, Classifier, int]:
    """Train both networks on inputs `x` (n, C, H, W) of classes `y` (n,) int64.

    Returns:
        The generator and the auxiliary classifier, both in evaluation mode, and the number of steps.

    Raises:
        ModelError: training diverged.
    """
    rng = torch.Generator().manual_seed(config.seed)
    with torch.random.fork_rng(devices=[]):  # torch's layers draw weights of their own before they get ours
        generator = Generator(domain, classes, latent=config.latent, width=config.width)
        critic = Critic(domain, classes, width=config.width)
    initialise(generator, rng)
    initialise(critic, rng)
    training = _Training(generator.to(x.device), critic.to(x.device), x, y, config, rng)
    steps = training.run(tell)
    return training.mean.eval(), critic.seen.eval(), steps


class _Training:
    def __init__(
        self, generator: Generator, critic: Critic, x: Tensor, y: Tensor, config: TrainGeneratorRequest, rng: torch.Generator
    ) -> None:
        self.generator, self.critic, self.x, self.y, self.config, self.rng = generator, critic, x, y, config, rng
        self.mean = copy.deepcopy(generator).requires_grad_(False)
        self.draws = torch.optim.Adam(generator.parameters(), lr=config.rate / 2, betas=(0.5, 0.99))
        self.judges = torch.optim.Adam(critic.parameters(), lr=config.rate, betas=(0.5, 0.99))
        self.order = torch.empty(0, dtype=torch.int64)

    def run(self, tell: Callable[[Report], None]) -> int:
        """Train until steps or seconds are spent; the number of steps."""
        start, step = time.perf_counter(), 0
        for _ in range(20):
            self.critic.bound()
        while self._share(step, time.perf_counter() - start) < 1:
            step += 1
            self._decay(min(1.0, self._share(step, time.perf_counter() - start)))
            critic, real = self._judge()
            drawn = self._draw()
            self._follow(step)
            if step % REPORT_EVERY == 0:
                if not math.isfinite(critic):
                    raise ModelError(f"the training of the generator diverged: lower {option('rate')}, or take another seed")
                tell(Report(step, time.perf_counter() - start, critic, real, drawn))
        self._recount()
        return step

    def _share(self, step: int, seconds: float) -> float:
        """Completed share of the training."""
        return step / self.config.steps if self.config.steps is not None else seconds / (60 * self.config.minutes)

    def _decay(self, share: float) -> None:
        """Set the learning rates: constant for half of the training, then down to 2 % linearly; `share` is the completed part."""
        for optimizer, rate in ((self.draws, self.config.rate / 2), (self.judges, self.config.rate)):
            optimizer.param_groups[0]["lr"] = rate * min(1.0, 2 * (1 - share) + 0.02)

    def _rows(self) -> Tensor:
        """Indices of the next batch."""
        size = BATCH_SIZE
        if len(self.order) < size:
            self.order = torch.randperm(len(self.x), generator=self.rng).repeat(-(-size // len(self.x)))
        rows, self.order = self.order[:size], self.order[size:]
        return rows.to(self.x.device)

    def _latents(self, labels: Tensor) -> Tensor:
        """(n, latent): random latent vectors."""
        return torch.randn(len(labels), self.config.latent, generator=self.rng).to(labels.device)

    def _judge(self) -> tuple[float, float]:
        """One step of the critic: its hinge loss, and how many classes it names."""
        rows = self._rows()
        x, y = self.x[rows], self.y[rows]
        with torch.no_grad():
            fake_inputs = self.generator(self._latents(y), y)
        score, logits = self.critic(torch.cat([x, fake_inputs]))
        real, fake = score.split(len(x))
        hinge = F.relu(1 - real).mean() + F.relu(1 + fake).mean()
        loss = hinge + F.cross_entropy(logits[: len(x)], y)
        self.judges.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.judges.step()
        self.critic.bound()
        return float(hinge.detach()), float((logits[: len(x)].argmax(1) == y).float().mean())

    def _draw(self) -> float:
        """One step of the generator; returns the share of its inputs that the critic assigns to the intended class."""
        y = self.y[self._rows()]
        self.critic.requires_grad_(False)
        score, logits = self.critic(self.generator(self._latents(y), y))
        loss = -score.mean() + CLASS_WEIGHT * F.cross_entropy(logits, y)
        self.draws.zero_grad()
        loss.backward()
        self.draws.step()
        self.critic.requires_grad_(True)
        return float((logits.argmax(1) == y).float().mean())

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        """Update the moving average of the generator's weights."""
        weight = 1 - min(MEAN_OVER, (1 + step) / (10 + step))
        for mean, current in zip(self.mean.parameters(), self.generator.parameters(), strict=True):
            mean.lerp_(current, weight)

    @torch.no_grad()
    def _recount(self) -> None:
        """Batch statistics of the mean generator: plain means over some batches."""
        for part in self.mean.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.reset_running_stats()
                part.momentum = None
        self.mean.train()
        for _ in range(RECOUNT):
            y = self.y[self._rows()]
            self.mean(self._latents(y), y)


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
        """Print a training report."""
        call.progress.note(
            f"step {report.step}, {report.seconds:.0f} s: critic's loss {report.critic:.2f}, classes named "
            f"{100 * report.real_classes:.0f} % of real and {100 * report.drawn_classes:.0f} % of drawn inputs"
        )

    generator = train_generator(call.request, out, tell, dataset=call.dataset())
    return GeneratorResult(
        generator=str(out),
        data=call.request.data,
        bytes=out.stat().st_size,
        steps=generator.about["steps"],
        samples=generator.about["samples"],
        digest=generator.digest(),
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
    check_safetensors_name(out, "a generator")
    device = choose_device(request.device)
    dataset = open_data(request.data) if dataset is None else dataset
    if problem := fits(dataset.domain):
        raise RequestError(f"no generator can be trained on {dataset.name}: {problem}")
    labels = np.asarray(dataset.labels(), dtype=np.int64)[: count_samples(request.samples, len(dataset))]
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
