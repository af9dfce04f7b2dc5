"""How often an attack reads from the device in a step: each read makes the host wait for all that
it has queued.
"""

import collections

import pytest
import torch

from _helpers import mlp
from _second_device import NAME, second_device
from brinell import plugins
from brinell.core.contracts import reach_of
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access, ModelInfo
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat

CEILINGS = {
    "apgd": 1,
    "apgd?targets=2&loss=dlr": 1,
    "pgd": 1,
    "mi-fgsm": 1,
    "square": 1,
    "fmn": 1,
    "ddn": 2,
    "fab": 2,  # two queries a step
    # Before the query which inputs moved, in the ledger, and what follows from the answer.
    "rlab": 3,
    "rlab?policy=greedy": 3,
}
NORMS = {"fmn": "l2", "ddn": "l2"}
DEAR = {"rlab": (2, 5), "rlab?policy=greedy": (2, 5)}
"""Steps of attacks that do much in each."""


class Network:
    name, info, access, classes = "network", ModelInfo(), Access.GRADIENTS, 3
    domain = Domain(kind="image", shape=(1, 4, 4))

    def __init__(self):
        self.module = mlp(16).to(NAME)

    def predict(self, x):
        return self.module(x)


def reads_of(spec, steps, n=6):
    """Reads by place of an attack that fools nobody."""
    with second_device() as reads:
        model, norm = Network(), NORMS.get(spec, "linf")
        name, _, options = plugins.parse(spec)
        attack = plugins.build("attack", name, {**options, "steps": steps})
        x = torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(1)).to(NAME) * 0.5 + 0.25
        with torch.no_grad():
            batch = Batch(ids=torch.arange(n, device=NAME), x=x, y=model.predict(x).argmax(1))
        eps = torch.full((n,), 1e-5, device=NAME)
        threat = Threat(distance=plugins.build("distance", norm, {}), eps=eps, domain=model.domain)
        limits = {"minimal": attack.family == "minimal", "reach": reach_of(attack, norm)}
        ledger = Ledger(model, batch, threat, access=attack.access, **limits)
        reads.clear()
        attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, batch.ids))
        return collections.Counter(reads)


@pytest.mark.parametrize("spec", CEILINGS)
def test_reads_of_a_step(spec):
    fewest, most = DEAR.get(spec, (4, 12))
    few, many = reads_of(spec, fewest), reads_of(spec, most)
    steps = {
        place: (many[place] - few[place]) / (most - fewest)
        for place in many
        if many[place] > few[place]
    }
    assert sum(steps.values()) <= CEILINGS[spec], steps
