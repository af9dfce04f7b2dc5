"""Memory of a run: a small network that is fitted to all answers so far, as one more surrogate.

The clean answers of all samples come first; an attack asks for them anyway. The network is fitted
to them, then the samples are attacked in waves, and before a wave it is fitted again to the answers
about those before, where they are many. It never sees the model: a black-box attacker has the same
answers.

QueryNet (Chen et al. 2021, arXiv 2105.15010) learns from the answers of a run in this way. Its
surrogates choose among Square's proposals; here their gradients are one more term of the linear
model of each sample (`rlab.sensitivity`), which lowers the weight of those that mislead.

Work is counted and not timed, so the same samples give the same network on every machine of a kind.
"""

import time
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from brinell.core.domain import Domain
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams, seeded
from brinell.core.threat import Threat
from brinell.rlab.episodes import EpisodeOutcomes, Placement, Policy
from brinell.rlab.networks import FORMS, SmallNetwork, fitting, initialised
from brinell.rlab.refine import CleanUp
from brinell.rlab.search import run_episodes

FEWEST = 500
"""Samples below which there is no memory: of 300 images a first query along it fools as rarely as
one in a random direction."""
FIRST_WAVE = 64
"""Samples of the first wave at most; each later one is as large as all before it."""
PASSES = 100
"""Inputs for each sample, times the share, that the first fit shows to the network."""
REFIT = 0.25
"""Share of the steps of the first fit from which a later one is made: short ones disturb more than
they teach."""
BATCH = 64
"""Inputs of a step of the fit."""
RATES = (4e-3, 2e-3)
"""The highest learning rates of the first fit and of the later ones."""
DECAY = 1e-2
SHIFT = 10
"""Inputs are shifted along each axis by up to one part in so many."""
JITTER = 0.1
"""Noise that is added to clean inputs besides that of the network, in deviations of the data."""
HELD = 2**28
"""Bytes of the inputs that are held, and at most twice as many for a while; of more some are
dropped, evenly."""


class Fitting(NamedTuple):
    """Costs of the fits of a memory."""

    answers: int
    """Answers that it was last fitted to."""
    passes: int
    """Inputs that were shown to its network, forwards and backwards."""
    seconds: float
    """Seconds of the processor."""

    def text(self) -> str:
        """What was fitted at which cost, in words."""
        return (
            f"the memory was fitted to {self.answers:,} answers, by {self.passes:,} passes of its "
            f"network in {self.seconds:.0f} s"
        )


def waves(n: int) -> list[slice]:
    """Slices of n samples: a first wave, then each as large as all before it."""
    ends = [min(FIRST_WAVE, n)]
    while ends[-1] < n:
        ends.append(min(2 * ends[-1], n))
    # There is one start more than ends: the last end begins nothing.
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def pays(n: int, domain: Domain, classes: int) -> bool:
    """True if a memory of so many samples saves queries, and there is a network for them."""
    return n >= FEWEST and fitting(domain, classes, FORMS[domain.kind][0]) is not None


class Memory:
    """Answers about the samples of a batch, and the network that is fitted to them.

    Args:
        x: (n, *shape) the clean inputs of all samples.
        clean: (n, classes) the answers to them.
        domain: where the inputs live.
        share: how many inputs the fits may show to the network, as a share of the queries; of the
            first fit as a share of `PASSES` for each sample.
        rng: a stream for each sample.
    """

    def __init__(
        self, x: Tensor, clean: Tensor, domain: Domain, share: float, rng: Streams
    ) -> None:
        self._x = x
        self.clean = clean
        self._share = share
        self._asked: list[tuple[Tensor, Tensor]] = []
        # Answers since the last fit, which pay for the steps of the next; before the first fit the
        # samples do.
        self._unlearned = PASSES * len(x)
        # Steps below which no fit is made, and bytes of what was asked.
        self._least = 0.0
        self._held = 0
        self.cost = Fitting(0, 0, 0.0)

        # One seed for all: the samples have a fixed order.
        self._seed = int(rng.keys[0]) % 2**31
        form = fitting(domain, clean.shape[1], FORMS[domain.kind][0])
        assert form is not None, "`pays` refuses inputs without a network"
        module = initialised(domain, clean.shape[1], form, self._seed).to(x.device)
        module[0].measure(x)  # type: ignore[operator]  # the `ScaledInputs`
        self.network = SmallNetwork(module, form, domain, clean.shape[1], (), "memory")

    def attend(self, oracle: Oracle) -> Oracle:
        """The oracle with the network as a further surrogate, and every answer remembered."""

        def scores(ids: Tensor, x: Tensor) -> Tensor:
            answers = oracle.scores(ids, x)
            self._asked.append((x.clone(), answers.clone()))
            self._unlearned += len(x)
            self._held += x.numel() * x.element_size()
            if self._held > 2 * HELD:
                self._pairs()  # drops some
            return answers

        return replace(oracle.follow([self.network]), scores=scores)

    def _pairs(self) -> tuple[Tensor, Tensor]:
        """Inputs (m, *shape) and answers (m, classes) besides the clean ones, at most `HELD` bytes.

        Where there are more, every k-th is kept and the others are gone.
        """
        if not self._asked:
            return self._x[:0], self.clean[:0]
        x = torch.cat([x for x, _ in self._asked])
        answers = torch.cat([answers for _, answers in self._asked])
        stride = -(-x.numel() * x.element_size() // HELD)
        # Copies, or the rows that are dropped would stay in memory.
        self._asked = [(x[::stride].clone(), answers[::stride].clone())]
        self._held = self._asked[0][0].numel() * x.element_size()
        return self._asked[0]

    def fit(self) -> None:
        """Fit the network to the clean answers and to those since, once they allow enough steps."""
        # As many steps as the answers since the last fit pay for.
        steps = int(self._share * self._unlearned) // BATCH
        # Before the first fit `_least` is 0.
        if not steps or steps < self._least:
            return
        # Seconds of the processor: other programs on the machine cost nothing here.
        start = time.process_time()
        x, answers = self._pairs()
        self._train(x, answers, steps)
        # Later fits wait until they learn notably more.
        self._least = self._least or REFIT * steps
        self._unlearned = 0

        seconds = self.cost.seconds + time.process_time() - start
        passes = self.cost.passes + steps * BATCH
        self.cost = Fitting(len(self.clean) + len(x), passes, seconds)

    def _train(self, x: Tensor, answers: Tensor, steps: int) -> None:
        """So many steps: half of a batch are clean inputs, where there are others."""
        module = self.network.module.train().requires_grad_(True)
        generator = torch.Generator().manual_seed(self._seed + self.cost.passes)
        rate = RATES[len(x) > 0]  # the first fit has clean answers alone
        optimizer = torch.optim.AdamW(module.parameters(), rate, weight_decay=DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
        deviation = module[0].deviation  # type: ignore[index]
        clean = centred(self.clean)
        others = centred(answers)
        # The network learns logits of size 1, whatever the model's scale: only directions count.
        scale = clean.square().mean().sqrt().clamp_min(1e-12)
        size = BATCH // 2 if len(x) else BATCH

        with seeded(self._seed + self.cost.passes, x.device), torch.enable_grad():
            for _ in range(steps):
                rows = torch.randint(len(clean), (size,), generator=generator).to(x.device)
                inputs = shifted(self._x[rows], generator)
                inputs = inputs + JITTER * deviation * torch.randn_like(inputs)
                targets = clean[rows]
                if len(x):
                    rows = torch.randint(len(x), (BATCH - size,), generator=generator).to(x.device)
                    inputs = torch.cat([inputs, x[rows]])
                    targets = torch.cat([targets, others[rows]])
                loss = functional.mse_loss(centred(module(inputs)), targets / scale)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                schedule.step()
        module.eval().requires_grad_(False)


def centred(logits: Tensor) -> Tensor:
    """Logits (n, classes) less their mean, which says nothing about the answer."""
    return logits - logits.mean(1, keepdim=True)


def shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs (n, *shape) shifted along each axis behind the channels, all by the same steps.

    Values at edges repeat.
    """
    for axis in range(2, x.ndim):
        length = x.shape[axis]
        reach = length // SHIFT
        step = int(torch.randint(-reach, reach + 1, (), generator=generator))
        places = (torch.arange(length) + step).clamp(0, length - 1)
        x = x.index_select(axis, places.to(x.device))
    return x


def run_waves(
    memory: Memory,
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
    policy: Policy,
    *,
    clean: CleanUp | None = None,
) -> EpisodeOutcomes:
    """Run the episodes of a batch in waves, each with what was learned from those before.

    The arguments are those of `run_episodes`, and `memory` is that of the batch.
    """
    # Later waves go by what earlier ones were answered, so waves cannot run at once.
    outcomes = []
    everything = torch.arange(len(batch), device=batch.x.device)
    for wave in waves(len(batch)):
        memory.fit()
        rows = everything[wave]
        outcomes.append(
            run_episodes(
                memory.attend(oracle),
                batch.select(rows),
                threat.select(rows),
                placement,
                rng.select(rows),
                policy,
                clean=clean,
                answers=memory.clean[rows],
            )
        )

    return EpisodeOutcomes(*(torch.cat(columns) for columns in zip(*outcomes, strict=True)))
