"""The shipped prior of RLAB, or another that is fitted to the answers of several networks, for `--study worth --policies`.

    python benchmarks/rlab --study priors --networks resnet20 resnet32 resnet2b cnn_wide_kw --images 400 --out several.safetensors
    python benchmarks/rlab --study worth --data unseen plain digits --samples 60 --seeds 0 --policies several.safetensors

The first makes `src/brinell/rlab/prior.safetensors`.

Of each network so many training images of CIFAR-10 that it gets right are probed as by `brinell train-agent` (16 random
distortions of four patches of 2 x 2 pixels each); the likelihood is that of all answers together. Prints what the networks were
asked, and the negative log-likelihood on a fifth of the images of each, which was held out, before and after.
"""

import argparse
from pathlib import Path

import measure
import numpy as np
import torch

from brinell import plugins
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.models._torch_model import TorchModel
from brinell.rlab.agent import Agent
from brinell.rlab.prior import Prior, Probes, fit, likelihood, probe

PROBES, SLOTS = 16, 64


def probed(name: str, images: int, attack: str) -> tuple[Probes, int, int]:
    """The answers of one network, and how many inputs it was shown: to find those that it gets right, and to probe these."""
    subject = measure.subject(name)
    module, rlab = subject.module(), plugins.build("attack", "rlab", plugins.parse(attack).options)
    with np.load(measure.SHARED / "cifar10" / "cifar10_train_a.npz") as arrays:
        pixels, labels = arrays["images"][: 2 * images + 100], arrays["labels"][: 2 * images + 100]
    x = torch.from_numpy(pixels).movedim(-1, 1).float().div(255).contiguous()
    y = torch.from_numpy(labels.astype(np.int64))
    first_looks = len(x)
    with torch.no_grad():
        right = torch.cat([module(part).argmax(1) for part in x.split(256)]) == y
    x, y = x[right][:images], y[right][:images]
    batch = Batch(ids=torch.arange(len(y)), x=x, y=y)
    eps = torch.full((len(y),), torch.inf)
    threat = Threat(distance=plugins.build("distance", "l2", {}), eps=eps, domain=subject.domain)
    ledger = Ledger(TorchModel(module, subject.domain), batch, threat, access=Access.SCORES, batch_size=128, minimal=True)
    rng, oracle, parts = Streams.of(0, batch.ids).fold("probes"), ledger.oracle(), []
    grid, variants = rlab.grid(subject.domain), rlab.variants(subject.domain)
    for rows in torch.split(torch.arange(len(y)), SLOTS):
        parts.append(probe(oracle, batch.select(rows), threat.select(rows), grid, variants, rng.select(rows), probes=PROBES))
    return Probes(*(torch.cat(column) for column in zip(*parts, strict=True))), first_looks, int(ledger.costs.forwards.sum())


def main() -> None:
    """Probe, fit, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", required=True)
    parser.add_argument("--images", type=int, default=400, help="of each network")
    parser.add_argument("--attack", default="rlab?patch=2", help="whose patches and distortions are probed")
    parser.add_argument("--fits", type=int, default=800)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {name: probed(name, options.images, options.attack) for name in options.networks}
    training = options.images - options.images // 5
    columns = zip(*(probes for probes, *_ in results.values()), strict=True)
    learn = Probes(*(torch.cat([part[:training] for part in column]) for column in columns))
    prior = Prior(learn.moments.shape[-1])
    held_out = {name: Probes(*(column[training:] for column in probes)) for name, (probes, *_) in results.items()}
    with torch.no_grad():
        before = {name: float(likelihood(prior, network_probes).mean()) for name, network_probes in held_out.items()}
    fit(prior, learn, torch.Generator().manual_seed(0), steps=options.fits)
    with torch.no_grad():
        for name, network_probes in held_out.items():
            after = float(likelihood(prior, network_probes).mean())
            print(f"{name}: {sum(results[name][1:]):,} queries, loss {before[name]:.3f} before, {after:.3f} after")
    first_looks, probes = (sum(result[position] for result in results.values()) for position in (1, 2))
    metadata = {
        "config": {"algorithm": "none", "probes": PROBES, "fits": options.fits, "slots": SLOTS, "seed": 0},
        "inputs": options.images * len(results),
        "training_queries": {"first_looks": first_looks, "probes": probes, "steps": 0},
        "data": "npz:cifar10_train_a.npz",
        "models": options.networks,
        "attack": options.attack,
        "norm": "l2",
    }
    Agent(prior=prior, about=metadata).save(options.out)
