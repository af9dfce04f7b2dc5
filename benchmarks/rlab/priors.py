"""The shipped prior of RLAB, or another that is fitted to the answers of several networks, for
`--study worth --policies`.

    python benchmarks/rlab --study priors --networks resnet20 resnet32 resnet2b cnn_wide_kw --images
    400 --out several.safetensors python benchmarks/rlab --study worth --data unseen plain digits
    --samples 60 --seeds 0 --policies several.safetensors

The first makes `src/brinell/rlab/prior.safetensors`.

Of each network so many training images of CIFAR-10 that it gets right are probed as by `brinell
train agent` (16 random distortions of four patches of 2 x 2 pixels each); the likelihood is that of
all answers together. Prints what the networks were asked, and the negative log-likelihood on a
fifth of the images of each, which was held out, before and after.
"""

from pathlib import Path

import measure
import torch

from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.models._torch_model import TorchModel
from brinell.rlab.agent import Agent
from brinell.rlab.prior import Prior, Probes, fit, likelihood, probe

PROBES, SLOTS = 16, 64


def probed(name: str, images: int, attack: str) -> tuple[Probes, int, int]:
    """The answers of one network, and how many inputs it was shown: to find those that it gets
    right, and to probe these.
    """
    subject = measure.subject(name)
    module, rlab = subject.module(), measure.build_attack(attack)
    x, y = measure.images("cifar10/cifar10_train_a.npz", slice(2 * images + 100))
    right = measure.is_right(module, x, y)
    model = TorchModel(module, subject.domain)
    settings = {"access": Access.SCORES, "batch_size": 128, "minimal": True}
    ledger = measure.open_ledger(
        model, x[right][:images], y[right][:images], "l2", torch.inf, **settings
    )
    rng, oracle, parts = Streams.of(0, ledger.batch.ids).fold("probes"), ledger.oracle(), []
    grid, variants = rlab.grid(subject.domain), rlab.variants(subject.domain)
    for rows in torch.split(torch.arange(len(ledger.batch)), SLOTS):
        part = (
            ledger.batch.select(rows),
            ledger.threat.select(rows),
            grid,
            variants,
            rng.select(rows),
        )
        parts.append(probe(oracle, *part, probes=PROBES))
    return (
        Probes(*(torch.cat(column) for column in zip(*parts, strict=True))),
        len(x),
        int(ledger.costs.forwards.sum()),
    )


def main() -> None:
    """Probe, fit, keep."""
    options = measure.arguments(
        __doc__,
        study=("priors",),
        networks=["resnet20"],
        images=400,
        attack="rlab?patch=2",
        fits=800,
        out=Path,
    )
    results = {name: probed(name, options.images, options.attack) for name in options.networks}
    training = options.images - options.images // 5
    columns = zip(*(probes for probes, *_ in results.values()), strict=True)
    learn = Probes(*(torch.cat([part[:training] for part in column]) for column in columns))
    prior = Prior(learn.moments.shape[-1])
    held_out = {
        name: Probes(*(column[training:] for column in probes))
        for name, (probes, *_) in results.items()
    }

    @torch.no_grad()
    def losses() -> dict[str, float]:
        return {name: float(likelihood(prior, probes).mean()) for name, probes in held_out.items()}

    before = losses()
    fit(prior, learn, torch.Generator().manual_seed(0), steps=options.fits)
    for name, after in losses().items():
        print(
            f"{name}: {sum(results[name][1:]):,} queries, loss {before[name]:.3f} "
            f"before, {after:.3f} after"
        )
    first_looks, probes = (
        sum(result[position] for result in results.values()) for position in (1, 2)
    )
    metadata = {
        "config": {"steps": 0, "probes": PROBES, "fits": options.fits, "slots": SLOTS, "seed": 0},
        "inputs": options.images * len(results),
        "training_queries": {"first_looks": first_looks, "probes": probes, "steps": 0},
        "data": "npz:cifar10_train_a.npz",
        "models": options.networks,
        "attack": options.attack,
        "norm": "l2",
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    Agent(prior=prior, about=metadata).save(options.out)
