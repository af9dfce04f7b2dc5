"""Distortions make the pictures that severities were calibrated with: sums of their values, held in
values.json.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from brinell import plugins
from brinell.core.streams import Streams

SHAPES = {"image": (3, 12, 17), "signal": (2, 60), "vector": (40,), "video": (3, 11, 9, 8)}
FILE = Path(__file__).parent / "values.json"
BY_PILLOW = {"jpeg", "published-jpeg-compression"}
"""Distortions whose values are those of the installed Pillow."""


def fingerprints(name):
    """Sums over values by place, of four inputs with severities 1, 2, 4 and 5 and draws 0 to 3, for
    each kind of input."""
    distortion, sums = plugins.build("distortion", name, {}), {}
    severity, draw, rng = (
        torch.tensor([1, 2, 4, 5]),
        torch.arange(4),
        Streams.of(7, torch.arange(4)),
    )
    for kind in sorted(distortion.domains):
        place = torch.arange(math.prod(SHAPES[kind]), dtype=torch.float64)
        ramp = 0.5 + 0.35 * torch.sin(place * 0.37) + 0.1 * torch.sin(place * 1.9)
        x = (
            torch.stack([ramp, ramp.flip(0), ramp.roll(5), ramp.square()])
            .reshape(4, *SHAPES[kind])
            .float()
        )
        draws = distortion.draws(SHAPES[kind])
        out = distortion(x, severity, rng, draw % draws if draws else draw)
        sums[kind] = [
            round(value, 4) for value in (out.double().flatten(1) @ torch.cos(place * 1.3)).tolist()
        ]
    return sums


def test_the_pictures_are_those_of_the_calibration():
    """Another picture at the same seed and severity makes runs of two versions incomparable: say so
    in CHANGELOG.
    """
    expected = json.loads(FILE.read_text())
    names = [name for name in plugins.names("distortion") if name not in BY_PILLOW]
    assert sorted(expected) == sorted(names), (
        "write values.json anew: python tests/distortions/test_values.py"
    )
    sums = {name: fingerprints(name) for name in names}
    wrong = [
        (name, kind, sums[name][kind], values)
        for name, kinds in expected.items()
        for kind, values in kinds.items()
        if sums[name][kind] != pytest.approx(values, abs=2e-3, rel=2e-3)
    ]
    assert not wrong


if __name__ == "__main__":
    lines = [
        f'"{n}": {json.dumps(fingerprints(n))}'
        for n in plugins.names("distortion")
        if n not in BY_PILLOW
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
