"""Square with and without patience: the same random numbers, what giving up idle samples saves, and what it misses.

    python benchmarks/idle.py [--subjects cnn4_pgd:linf:0.3 ...] [--patience 50 100 200] [--samples 200]

A sample that no proposal has improved for so long is given up. The search up to there is the same with every patience, so a
success that is missed would have come after as many idle proposals. Subjects are a network of the shared data, or digits-cnn,
with a norm and an eps.
"""

import argparse

import measure
import torch
from autoattack import first_images

from brinell import plugins
from brinell.attacks.square import Square
from brinell.core.contracts import Access, Batch, Model, Streams, Threat
from brinell.core.ledger import Ledger
from brinell.datasets.digits import Digits
from brinell.models._torch_model import TorchModel
from brinell.models.digits_cnn import DigitsCnn

DEFAULTS = ["digits-cnn:linf:0.1", "lenet5_advtrained:linf:0.3", "cnn4_pgd:linf:0.3", "cnn4_pgd:l2:2"]


def open_subject(name: str, n: int) -> tuple[Model, torch.Tensor, torch.Tensor]:
    """A network with the first n test images and their labels."""
    if name == "digits-cnn":
        data = Digits()()
        return DigitsCnn()(data.domain), data.load(range(n)), torch.from_numpy(data.labels()[:n])
    subject = measure.subject(name)
    return TorchModel(subject.module(), subject.domain, name=name), *first_images(subject, n)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", nargs="+", default=DEFAULTS, metavar="NETWORK:NORM:EPS")
    parser.add_argument("--patience", nargs="+", type=int, default=[50, 100, 200])
    for name, default in (("samples", 200), ("steps", 3000), ("seed", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"`{measure.command(options, 'samples', 'seed')}` on {measure.machine()}\n")
    print("| network | norm | eps | right | patience | fooled | missed | forwards | of all |\n" + "| --- " * 9 + "|")
    for subject in options.subjects:
        name, norm, eps = subject.split(":")
        model, x, y = open_subject(name, options.samples)
        right = model.predict(x).argmax(1) == y
        batch = Batch(ids=torch.arange(int(right.sum())), x=x[right], y=y[right])
        threat = Threat(
            distance=plugins.build("distance", norm, {}), eps=torch.full((len(batch),), float(eps)), domain=model.domain
        )
        fooled, all_steps = torch.zeros(len(batch), dtype=torch.bool), 0
        for patience in (None, *options.patience):
            ledger = Ledger(model, batch, threat, access=Access.SCORES, batch_size=256)
            attack = Square(steps=options.steps, patience=patience)
            attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(options.seed, batch.ids))
            forwards = int(ledger.costs.forwards.sum())
            if patience is None:
                fooled, all_steps = ledger.fooled, forwards
            missed = int((fooled & ~ledger.fooled).sum())
            cells = (name, norm, eps, len(batch), patience or "none", int(ledger.fooled.sum()), missed, f"{forwards:,}")
            print(f"| {' | '.join(map(str, cells))} | {forwards / all_steps:.2f} |", flush=True)


if __name__ == "__main__":
    main()
