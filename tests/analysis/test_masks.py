"""Where distortions stand: told by the attack, kept in the run, and drawn over the clean input."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from _helpers import Recorder, draw_closest, run_audit
from brinell.analysis.masks import PlacedDistortion, PlacedDistortions, placements_of
from brinell.attacks.rlab import RLAB
from brinell.core.contracts import Extras
from brinell.core.domain import Domain
from brinell.core.errors import ContractError
from brinell.reports.examples import COLOURS

SHAPES = {"image": (1, 6, 6), "signal": (1, 12), "video": (1, 2, 4, 4)}


def weighed(kind, places):
    """Class 1 where the mean of the values at `places` exceeds a half: nothing else counts."""
    domain = Domain(kind=kind, shape=SHAPES[kind])

    def logits(x):
        z = 20 * (x[(slice(None), 0, *places)].flatten(1).mean(1) - 0.5)
        return torch.stack([-z, z], 1)

    return Recorder(logits, domain)


def played(tmp_path, kind, places, distortions="brightness+dead-pixel", **request):
    x = np.full((3, *SHAPES[kind]), 0.45, dtype=np.float32)
    attack = f"rlab?distortions={distortions}&patch=2&steps=80&policy=greedy"
    return run_audit(
        tmp_path / kind,
        weighed(kind, places),
        x,
        np.zeros(3, dtype=np.int64),
        attack=(attack,),
        norm="l2",
        **request,
    )


def stage(run):
    return run.manifest["models"][0]["name"], run.manifest["stages"][0]["name"]


@pytest.fixture(scope="module")
def image_run(tmp_path_factory):
    """A run on images; read-only."""
    return played(
        tmp_path_factory.mktemp("masks"), "image", (slice(2, 4), slice(0, 2)), eps="0.5,1,2"
    )


@pytest.mark.parametrize("kind", ["image", "video"])
def test_the_mask_is_what_changed(tmp_path, image_run, kind):
    """Only the patch that counts is needed; the values that differ from the clean input lie below
    the mask.
    """
    run = (
        image_run if kind == "image" else played(tmp_path, kind, (slice(0, 2),) * 3, eps="0.5,1,2")
    )
    model, attack = stage(run)
    marks, inputs = (
        placements_of(run, model, attack, [0, 1, 2]),
        run.adversarial(model, attack, [0, 1, 2]),
    )
    assert sorted(marks) == sorted(inputs) == [0, 1, 2]
    for sample, changed_places in marks.items():
        changed = (inputs[sample] != np.float32(0.45)).any(0)
        assert changed.any() and (changed <= (changed_places.mask() >= 0)).all()
        assert (
            changed_places.standing[0].distortion in ("brightness", "dead-pixel")
            and 1 <= changed_places.standing[0].severity <= 5
        )
    drawn = draw_closest(run, model)
    assert sorted(drawn) == [0, 1, 2]
    for example in drawn.values():
        assert (
            example.pictures[-1].caption == "where distortions are placed"
            and "1 of " in example.caption
        )
        assert "severity" in example.legend[0][1]


def test_other_attacks_say_nothing(tmp_path):
    x = np.full((2, 1, 6, 6), 0.45, dtype=np.float32)
    places = (slice(0, 2), slice(0, 2))
    run = run_audit(
        tmp_path / "run",
        weighed("image", places),
        x,
        np.zeros(2, dtype=np.int64),
        attack=("square",),
        norm="l2",
        eps="2",
    )
    model, attack = stage(run)
    assert (
        run.adversarial(model, attack, [0, 1])
        and not run.extras(model, attack, [0, 1])
        and not run.legend(model, attack)
    )
    assert placements_of(run, model, attack, [0, 1]) == {}
    drawn = draw_closest(run, model)
    assert sorted(drawn) == [0, 1] and not any(example.legend for example in drawn.values())


def test_overlap_and_ragged_edges_by_hand():
    """Length 5, sides of 2 every 1...
    patches 0 and 1 overlap at place 1, which the lower number keeps; the last is cut off.
    """
    standing = (
        PlacedDistortion(patch=0, distortion="a", severity=1),
        PlacedDistortion(patch=1, distortion="b", severity=2),
    )
    placement = PlacedDistortions.on({"shape": (5,), "patch": (2,), "stride": (1,)}, standing)
    assert len(placement.patches) == 4 and placement.mask().tolist() == [0, 0, 1, -1, -1]
    assert placement.share() == pytest.approx(0.6)
    ragged = PlacedDistortions.on({"shape": (5, 3), "patch": (2, 2), "stride": (2, 2)}, ())
    assert len(ragged.patches) == 6 and ragged.patches[-1] == (slice(4, 5), slice(2, 3))


def test_each_filter_has_its_colour(image_run):
    """Of the picture that is shown, the pixels of the patch are of the hue of the distortion that
    stands there."""
    example = draw_closest(image_run, stage(image_run)[0])[0]
    ((key, text),) = example.legend
    colour = COLOURS[("brightness", "dead-pixel").index(text.split()[0])]
    assert key == f"rgb{colour}"
    encoded = re.search(r'base64,([^"]+)"', example.pictures[-1].image).group(1)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")).astype(
        int
    )
    inside_colour, outside = pixels[2, 0], pixels[5, 5]
    assert len(set(outside.tolist())) == 1, "what bears nothing is grey"
    assert (
        np.argsort(inside_colour).tolist() == np.argsort(colour).tolist()
        and np.ptp(inside_colour) > 60
    )


def test_extras_that_nobody_could_read_are_refused(tmp_path, monkeypatch):
    for extras, line in (
        (
            Extras(arrays={"a": torch.zeros(2)}, legend={"kind": "x"}),
            "extras 'a' have shape .2,. for 3 samples",
        ),
        (Extras(arrays={"a": torch.zeros(3)}), "have no legend"),
    ):
        monkeypatch.setattr(RLAB, "__call__", lambda *_: extras)
        with pytest.raises(ContractError, match=line):
            played(tmp_path / line[:5], "signal", (slice(4, 6),), eps="1")
