"""The quick member of each kind of the zoo: the same defence around a network of a few thousand
weights, on few of the digits, with its known truth.

    python -m benchmarks.zoo.quick

trains the networks, finds every truth by the adaptive attack of `zoo.truth` and writes both beside
this file; a kind that has a truth keeps it, and with it its networks, until its line is removed
from truths.csv. The truth counts what an audit of the member broke as broken, too.
"""

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo import ZOO, Defence, Pair, load, trained, truth
from benchmarks.zoo.base import SMALL, SMALL_WEIGHTS, Base

TRUTHS = Path(__file__).with_name("truths.csv")
"""A line for each kind: base, samples, budget, the samples that are robust in truth, and the check
that has to fail."""
CASCADE = (
    "fgsm",
    "apgd-ce?steps=20",
    "apgd-dlr?steps=20",
    "apgd-t?loss=margin&targets=3&steps=20&within=0.35",
    "apgd-t?loss=margin&targets=3&restarts=2&steps=30&within=0.1",
    "boundary-walk?steps=8&restarts=3&stop_at_eps=true&share=0.125",
    "square?steps=100",
    "square?steps=300&last=0.6",
    "apgd-t?loss=margin&targets=3&steps=30&gradient=repaired",
)
"""`fast` without its long stages and those that wait for an alarm, which lower a headline that is
marked already."""
ON_CROSS_ENTROPY = ("apgd-ce?steps=20", "square?steps=100")
"""A cascade that climbs no margin."""
CASCADE_OF = {"scaled-logits": ON_CROSS_ENTROPY}
"""Cascades of members that show a check that the stages above do not need."""
SAMPLES = 60
SAMPLES_OF = dict.fromkeys(
    ("hashed-noise", "jpeg", "jpeg-half", "matrix-estimation", "median", "quilting"), 30
)
"""Fewer samples for members that are slow to answer."""
COLOUR = {"one-channel-numpy", "opposite-channel"}
"""Kinds that need an image of several channels."""
SEED = 0
STEPS = 30
"""Steps of each ascent of the adaptive attack."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """The quick member of one kind."""

    kind: str
    base: str
    samples: int
    eps: str
    truth: int
    """Samples that are robust in truth."""
    check: str = ""
    """Code of a check that has to fail; empty if the headline alone shows the kind."""

    @property
    def entry(self) -> Defence:
        """The kind in the zoo."""
        return ZOO[self.kind]

    @property
    def cascade(self) -> list[str]:
        """The stages of its audit."""
        return list(CASCADE_OF.get(self.kind, CASCADE))

    @property
    def allowed(self) -> int:
        """The largest headline that is not too high: 1 of 60 samples above the truth."""
        return self.truth + self.samples // 60

    def open(self) -> tuple[Base, Pair]:
        """The base with its samples and budget, and the kind around it."""
        base = replace(load(self.base, self.samples), eps=self.eps)
        return base, self.entry.build(base)


def read_members(file: Path = TRUTHS) -> dict[str, Member]:
    """The quick members by kind; a kind without a line has none."""
    if not file.is_file():
        return {}
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [
            Member(**row | {"samples": int(row["samples"]), "truth": int(row["truth"])})
            for row in csv.DictReader(lines)
        ]
    return {row.kind: row for row in rows}


def write_members(members: Iterable[Member], file: Path = TRUTHS) -> None:
    """Write the table in the order of the zoo."""
    by_kind = {member.kind: member for member in members}
    with file.open("w", encoding="utf-8", newline="") as lines:
        columns = [field.name for field in fields(Member)]
        writer = csv.DictWriter(lines, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(by_kind[kind]) for kind in ZOO if kind in by_kind)


def new_member(kind: str) -> Member:
    """The member of a kind without a line; its truth is not known yet."""
    base = "colour" if kind in COLOUR else "quick"
    samples = SAMPLES_OF.get(kind, SAMPLES)
    return Member(kind=kind, base=base, samples=samples, eps=load(base, 1).eps, truth=samples)


@cache
def find_truth(member: Member) -> Tensor:
    """(n,) bool: samples that are robust to the adaptive attack."""
    base, pair = member.open()
    eps = truth.budget(member.eps)
    if pair.counterpart is base.net and pair.judge is None and member.kind != "none":
        with torch.no_grad():
            alike = pair.defended(base.x).argmax(1) == base.net(base.x).argmax(1)
        if bool(alike.all()) and not pair.surrogates:
            # The class is that of the network everywhere, and so is the truth.
            return find_truth(replace(member, kind="none"))
    return truth.robust(pair, base, eps, flaw=member.entry.flaw, steps=STEPS, seed=SEED)


# --- their networks
# ------------------------------------------------------------------------------------------------


def train_base(name: str) -> nn.Module:
    """The network of a base, trained on its images without any defence."""
    base = load(name, 1)
    x, y = base.train(2000)
    net, rng = base.empty(), torch.Generator().manual_seed(0)
    trained.begin(net, rng)
    net.train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    for _ in range(30):
        for rows in torch.randperm(len(x), generator=rng).split(64):
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    return net.eval().requires_grad_(False)


def keep(name: str, net: nn.Module) -> None:
    """Add the weights of a network to those that are kept, in half precision."""
    weights = load_file(SMALL_WEIGHTS) if SMALL_WEIGHTS.is_file() else {}
    for key, value in net.state_dict().items():
        weights[f"{name}/{key}"] = value.half() if value.is_floating_point() else value
    save_file(dict(sorted(weights.items())), SMALL_WEIGHTS)


def make_networks() -> None:
    """Train what is not kept: the bases, and the networks of the kinds that are trainings."""
    for name in SMALL:
        if not any(load(name, 1).net[1].running_mean):
            keep(name, train_base(name))
    trained.keep_small = keep
    try:
        base = load("quick", 1)
        for entry in ZOO.values():
            if entry.make.__module__ == trained.__name__:
                entry.build(base)
    finally:
        trained.keep_small = None


def main() -> None:
    """Make the networks and the truths that are missing."""
    torch.set_num_threads(1)
    make_networks()
    members = read_members()
    for kind in ZOO:
        if kind not in members:
            member = new_member(kind)
            members[kind] = replace(member, truth=int(find_truth(member).sum()))
            print(members[kind], flush=True)
            write_members(members.values())


if __name__ == "__main__":
    main()
