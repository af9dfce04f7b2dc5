"""Attacks change a region of inputs alone, and find what lies within it."""

import numpy as np
import pytest
import torch

import brinell
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.region import Region
from brinell.engine.sources import open_data
from brinell.studies import register

ATTACKS = ("apgd-ce?steps=10", "fab?steps=10", "square?steps=60", "rlab?steps=60", "ddn?steps=20")
SHAPES = {"image": (2, 9, 8), "signal": (2, 24), "video": (1, 3, 6, 7), "vector": (30,)}


def draw_region(rng, kind, shape):
    """A region as people write it, and the values that it holds."""
    mask = np.zeros(shape, dtype=bool)
    if rng.integers(2):
        mask = rng.uniform(size=shape) < 0.4
        return mask, mask
    sides = shape[-2:] if kind in ("image", "video") else shape[-1:]
    starts = [int(rng.integers(0, side - 2)) for side in sides]
    stops = [
        int(rng.integers(start + 2, side + 1)) for start, side in zip(starts, sides, strict=True)
    ]
    mask[(..., *map(slice, starts, stops))] = True
    return tuple([*starts[::-1], *stops[::-1]]), mask


def linear(weights):
    flat = torch.as_tensor(weights).flatten()

    def model(x):
        score = x.flatten(1) @ flat - 0.5 * flat.sum()
        return torch.stack([score, -score], 1)

    return model


@pytest.mark.parametrize("kind", SHAPES)
def test_attacks_change_the_region_alone_and_find_what_is_in_it(kind, tmp_path):
    rng = np.random.default_rng(len(kind))
    shape = SHAPES[kind]
    region, mask = draw_region(rng, kind, shape)
    weights = rng.normal(size=shape).astype(np.float32)
    x = rng.uniform(0.3, 0.7, size=(12, *shape)).astype(np.float32)
    model = linear(weights)
    lead = (x - 0.5).reshape(12, -1) @ weights.ravel()
    y = (lead <= 0).astype(int)
    data = brinell.data(x, y, kind=kind, layout="first", bounds=(0, 1), region=region)
    eps = float(np.quantile(np.abs(lead), 0.6) / np.abs(weights * mask).sum())

    attack = ATTACKS if kind in ("image", "signal") else ATTACKS[:3]
    result = brinell.audit(
        model, data, eps=[min(eps, 0.29)], attack=attack, out=tmp_path / "run", device="cpu"
    )
    stored = result.x_adv()
    change = stored.x - x[stored.ids]
    assert len(stored.ids) and (change[:, ~mask] == 0).all() and change[:, mask].any()
    # APGD reaches the corner of the ball within the region, which decides for a linear model.
    reach = min(eps, 0.29) * np.abs(weights * mask).sum()
    broken = np.isin(np.arange(12), stored.ids)
    clear = np.abs(np.abs(lead) - reach) > 0.02 * reach
    assert (broken == (np.abs(lead) < reach))[clear].all()

    if kind != "vector":
        assert "region" in str(result.report().subject)
        domain = data.domain
        assert Domain.from_json(domain.to_json()).region == domain.region
    assert "those in the region" in " ".join(data.info.notes)
    brinell.verify(tmp_path / "run", model, data)


def test_what_is_no_region_is_refused(tmp_path):
    x, y = np.zeros((4, 1, 8, 8), np.float32), [0, 1, 0, 1]
    for region in (
        "1,2,3",
        (0, 0, 9, 4),
        (3, 3, 3, 5),
        "a,b,c,d",
        np.zeros((8, 8)),
        np.ones((3, 3)),
    ):
        with pytest.raises(RequestError) as error:
            brinell.data(x, y, region=region)
        assert error.value.option == "region"

    mask = np.zeros((8, 8))
    mask[2:5, 1:3] = 1
    np.save(tmp_path / "mask.npy", mask)
    for text in (f"digits?region={tmp_path / 'mask.npy'}", "digits?region=1,2,3,5"):
        for verb in ("explain", "corrupt", "certify"):
            with pytest.raises(RequestError, match="about whole inputs"):
                getattr(brinell, verb)(model="digits-cnn", data=text, out=tmp_path / verb)
        assert open_data(text).domain.region == Region(((2, 5), (1, 3)))
    studies = register.studies().values()
    commands = {study.command for study in studies if study.keeps_region}
    assert commands == {"audit", "transfer", "benchmark", "verify", "gate"}
