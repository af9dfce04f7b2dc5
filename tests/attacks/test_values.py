"""Attacks ask about the inputs that benchmarks were measured with: sums over their first queries,
held in values.json.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from _helpers import Recorder, mlp, run_attack
from brinell import plugins
from brinell.core.domain import Domain

FILE = Path(__file__).parent / "values.json"
IMAGE, SIGNAL = Domain(kind="image", shape=(2, 5, 6)), Domain(kind="signal", shape=(2, 30))
SHORT = {
    "boundary-walk": {"steps": 2, "restarts": 2},
    "cgba": {"steps": 2, "samples": 6},
    "hop-skip-jump": {"steps": 2, "samples": 6},
    "pgd-estimated": {"steps": 3, "pairs": 2},
    "rlab": {"steps": "12", "draws": "1"},
    "ray-s": {"steps": 40},
}
LEADS = {"rlab": 10.0}
"""Logits by which the true class leads where none is fooled; RLAB compares probabilities, which
rounding alone tells apart where the class leads by more."""
EPS = {
    "linf": 0.15,
    "l2": 0.9,
    "l1": 4.0,
    "l0": 12.0,
    "pixels": 6.0,
    "patch": 3.0,
    "embedding": 0.9,
}


def queries(name):
    """For each distance, where none of three samples is fooled and where some are: queries, and a
    sum over their values.
    """
    attack, sums = (
        plugins.build("attack", name, SHORT.get(name, {"steps": 12} if name != "fgsm" else {})),
        {},
    )
    for number, distance in enumerate(sorted(attack.distances & set(EPS))):
        domain, module = (IMAGE, SIGNAL)[number % 2], mlp(60, 4, seed=3)
        place = torch.arange(60.0)
        x = (0.5 + 0.3 * torch.sin(place * 0.7 + torch.tensor([[0.0], [1.0], [2.0]]))).reshape(
            3, *domain.shape
        )
        y = module(x).argmax(1)
        for lead in (LEADS.get(name, 20.0), 0.0):
            offset = lead * torch.nn.functional.one_hot(y[:1], 4)
            model = Recorder(lambda z, offset=offset: module(z) + offset, domain, classes=4)
            run_attack(attack, model, x, y[:1].expand(3) if lead else y, EPS[distance], distance)
            values = torch.cat(model.calls).flatten(1).double() @ torch.cos(place.double() * 1.3)
            weights = torch.linspace(1, 2, len(values), dtype=torch.float64)
            sums[f"{distance} {lead:g}"] = [
                len(values),
                round(float(values @ weights) / math.sqrt(len(values)), 3),
            ]
    return sums


@pytest.mark.parametrize("part", range(5))
def test_the_first_queries_are_those_of_the_measurements(part):
    """Other queries at the same seed make results of two versions differ: measure anew what
    docs/results states.
    """
    expected, names = json.loads(FILE.read_text()), plugins.names("attack")
    assert sorted(expected) == sorted(names), (
        "write values.json anew: python tests/attacks/test_values.py"
    )
    wrong = [
        (name, key, found[key], value)
        for name in names[part::5]
        for found in [queries(name)]
        for key, value in expected[name].items()
        if found[key] != pytest.approx(value, rel=1e-2, abs=2e-2)
    ]
    assert not wrong


if __name__ == "__main__":
    FILE.write_text(
        "{\n"
        + ",\n".join(f'"{name}": {json.dumps(queries(name))}' for name in plugins.names("attack"))
        + "\n}\n"
    )
