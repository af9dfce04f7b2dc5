"""A training run of a generator: from a request to a file, by an AC-GAN that trains on one
processor in minutes.

Odena, Olah & Shlens 2017, section 4, with these deviations:

- The hinge loss and spectral normalisation (Miyato et al. 2018) in place of the logistic loss:
  stable without a balance to keep.
- The class head learns from real inputs alone. It later says whether an input still shows the
  intended class, and would otherwise have been taught to find that class in whatever the generator
  drew.
- The generator that is kept is the exponential mean of its weights over the steps (Karras et al.
  2018), with batch statistics taken anew for it: smoother pictures for nothing.
"""

import copy
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.domain import Domain
from brinell.core.errors import ModelError, RequestError, option
from brinell.engine.request import ALL
from brinell.manifest import DomainFacts
from brinell.store.files import check_safetensors_name
from brinell.studies.generator import TrainGeneratorRequest
from brinell.studies.generator.generator import GenerativeModel, Header, load
from brinell.studies.generator.networks import Critic, Generator, fits
from brinell.studies.generator.result import GeneratorResult
from brinell.studies.kit import Call, Plan
from brinell.studies.work import open_plan

REPORT_EVERY = 500
"""Steps between two messages."""
LATENT, RATE = 32, 1e-3
"""Length of the latent vector, and learning rate of the critic; the generator's is half of it."""
SMALL_SIDE, WIDTHS = 16, (16, 32)
"""Channels of the thinner layers, for images of at most this side and for larger ones."""
BATCH_SIZE = 64
"""Real and drawn inputs of a step, each."""
CLASS_WEIGHT = 0.5
"""Weight of the generator's class loss relative to the adversarial loss."""
FEWEST = 20  # samples that each class must have
SETTLING = 20
"""Steps of the power iteration before its bounds mean anything."""
COUNTED = 20
"""Batches over which the statistics of the mean generator are taken."""


def carry_out(call: Call) -> GeneratorResult:
    """Train the generator that a call asks for, and write its file."""
    out = call.file()
    request = call.request
    check_safetensors_name(out, "a generator")
    plan: Plan = open_plan(call, usual_samples=ALL, usual_method="first")
    dataset, labels = plan.dataset, plan.labels

    if problem := fits(dataset.domain):
        raise RequestError(f"no generator can be trained on {dataset.name}: {problem}")
    counts = np.bincount(labels, minlength=len(dataset.classes))
    if counts.min() < FEWEST:
        raise RequestError(
            f"class {dataset.classes[int(counts.argmin())]!r} of {dataset.name} "
            f"has {counts.min()} samples, too few to draw it "
            f"from: give {FEWEST} or more of each"
        )
    x = dataset.load(plan.ids.tolist()).to(plan.device)
    y = torch.from_numpy(labels).to(plan.device)
    if bool((x == x[:1]).all()):
        raise RequestError(
            f"all {len(x)} inputs of {dataset.name} are equal: there is nothing to learn from them"
        )

    generator, classifier, steps = train(
        x, y, dataset.domain, len(counts), request, call.progress.note
    )

    header = Header(
        domain=DomainFacts.model_validate(dataset.domain.to_json(), strict=False),
        classes=list(dataset.classes),
        latent=generator.latent,
        width=generator.width,
        request=request,
        data_digest=dataset.digest(),
    )
    GenerativeModel(generator=generator, classifier=classifier, header=header).save(out)
    return GeneratorResult(
        generator=str(out),
        data=request.data,
        bytes=out.stat().st_size,
        steps=steps,
        samples=len(labels),
        digest=load(out).digest,
    )


def train(
    x: Tensor,
    y: Tensor,
    domain: Domain,
    classes: int,
    request: TrainGeneratorRequest,
    note: Callable[[str], None],
) -> tuple[Generator, Critic, int]:
    """Train on inputs `x` (n, C, H, W) of classes `y` (n,): both networks in evaluation mode, and
    the number of steps.
    """
    small_width, large_width = WIDTHS
    width = large_width if max(domain.shape[1:]) > SMALL_SIDE else small_width
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(request.seed)  # noqa: TID251  the layers of torch draw their first weights from it alone
        generator = Generator(domain, classes, latent=LATENT, width=width)
        critic = Critic(domain, classes, width=width)

    rng = torch.Generator().manual_seed(request.seed)
    training = _Training(generator.to(x.device), critic.to(x.device), x, y, rng)
    steps = training.run(request, note)
    return training.mean.eval(), critic.eval(), steps


class _Training:
    """Both networks in training, the mean of the generator's weights, and the data."""

    def __init__(
        self, generator: Generator, critic: Critic, x: Tensor, y: Tensor, rng: torch.Generator
    ) -> None:
        self.generator, self.critic, self.x, self.y, self.rng = generator, critic, x, y, rng
        self.mean = copy.deepcopy(generator).requires_grad_(False)
        self.generator_optimizer = torch.optim.Adam(
            generator.parameters(), lr=RATE / 2, betas=(0.5, 0.99)
        )
        self.critic_optimizer = torch.optim.Adam(critic.parameters(), lr=RATE, betas=(0.5, 0.99))

    def run(self, request: TrainGeneratorRequest, note: Callable[[str], None]) -> int:
        """Train until steps or seconds are spent; the number of steps."""
        start = time.perf_counter()
        step, share = 0, 0.0
        for _ in range(SETTLING):
            self.critic.bound()

        while share < 1:
            step += 1
            seconds = time.perf_counter() - start
            share = (
                step / request.steps
                if request.steps is not None
                else seconds / (60 * request.minutes)
            )
            optimizers = (self.generator_optimizer, RATE / 2), (self.critic_optimizer, RATE)
            for optimizer, rate in optimizers:
                # Constant for half of the training, then down to 2 % linearly.
                optimizer.param_groups[0]["lr"] = rate * min(1.0, 2 * (1 - min(1.0, share)) + 0.02)

            hinge = self._judge()
            self._draw()
            self._follow(step)
            if step % REPORT_EVERY == 0:
                if not bool(hinge.isfinite()):
                    raise ModelError(
                        f"the training of the generator diverged: take another {option('seed')}"
                    )
                note(
                    f"step {step}, {seconds:.0f} s: critic's loss "
                    f"{float(hinge):.2f} (2 where it cannot tell drawn from real)"
                )
        self._recount()
        return step

    def _rows(self) -> Tensor:
        return torch.randint(len(self.x), (BATCH_SIZE,), generator=self.rng).to(self.x.device)

    def _latents(self, labels: Tensor) -> Tensor:
        return torch.randn(len(labels), LATENT, generator=self.rng).to(labels.device)

    def _judge(self) -> Tensor:
        """One step of the critic; returns its hinge loss."""
        rows = self._rows()
        x = self.x[rows]
        y = self.y[rows]
        with torch.no_grad():
            fake_inputs = self.generator(self._latents(y), y)
        score, logits = self.critic.judge(torch.cat([x, fake_inputs]))
        real = score[: len(x)]
        fake = score[len(x) :]

        hinge = F.relu(1 - real).mean() + F.relu(1 + fake).mean()
        loss = hinge + F.cross_entropy(logits[: len(x)], y)
        self.critic_optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.critic_optimizer.step()
        self.critic.bound()
        return hinge.detach()

    def _draw(self) -> None:
        """One step of the generator."""
        y = self.y[self._rows()]
        # The gradient passes the critic, whose weights need none of their own.
        self.critic.requires_grad_(False)
        score, logits = self.critic.judge(self.generator(self._latents(y), y))
        loss = -score.mean() + CLASS_WEIGHT * F.cross_entropy(logits, y)
        self.generator_optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.generator_optimizer.step()
        self.critic.requires_grad_(True)

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        """Move the mean towards the current generator, early on by larger parts."""
        weight = 1 - min(0.999, (1 + step) / (10 + step))
        for mean, current in zip(self.mean.parameters(), self.generator.parameters(), strict=True):
            mean.lerp_(current, weight)

    @torch.no_grad()
    def _recount(self) -> None:
        """Take batch statistics of the mean generator, as plain means over `COUNTED` batches."""
        for part in self.mean.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.reset_running_stats()
                part.momentum = None  # a plain mean, in torch's terms
        self.mean.train()
        for _ in range(COUNTED):
            y = self.y[self._rows()]
            self.mean(self._latents(y), y)
