"""Names that somebody chose to be mistaken, for patterns, keys, paths or other names, claim nothing:
in folders full of them each random edit is noticed, or changes what is declared as claimed, which
stands on the page with its mark.
"""

import re
import shutil
import zlib

import numpy as np
import pytest

import brinell
from _helpers import mlp
from _nights import of_tonight
from _study_edits import Edit, is_claimed
from brinell.core.errors import BrinellError
from brinell.store.folder import MANIFEST
from brinell.studies.register import study_of
from brinell.studies.verification.run import claims_of

PARTS = (
    *("*", "**", "?", "[", "]", "[!a]", ".", "..", "/", "\\", "'", '"', " ", ",", ":", "#", "%"),
    *("seconds", "records", "manifest.json", "request", "claimed", "files", "FOLDER", "N", "†"),
    *("а", "е", "о", "ℓ", "\u00a0", "\u200b", "\u202e", "{0}", "${x}", "<b>", "&amp;", "--trust"),
)
"""Words of hostile names."""
SEED = 75
KINDS = ("audit", "certify", "explain", "transfer", "epsilon", "claim")


def hostile_names(rng, count):
    """So many names, each another one."""
    names = set[str]()
    while len(names) < count:
        name = "".join(rng.choice(PARTS, int(rng.integers(1, 4))).tolist()).strip()
        if name:
            names.add(name)
    return sorted(names)


def make_folder(kind, folder, rng):
    """A small folder of a kind with hostile names; returns what verification needs in memory."""
    first, second, data_name, *classes = hostile_names(rng, 6)
    x = rng.random((16, 6)).astype(np.float32)
    models = {first: mlp(6, 3), second: mlp(6, 3, seed=1)}
    y = models[first](brinell.data(x, np.zeros(16, int)).load(range(16))).argmax(1).numpy()
    data = brinell.data(x, y, classes=classes, name=data_name)
    one, out = {first: models[first]}, {"out": folder}
    if kind == "audit":
        brinell.audit(models, data, eps="0.05,0.1", attack=["fgsm", "pgd?steps=3"], **out)
        return (models, data)
    if kind == "certify":
        brinell.certify(one, data, eps="0.01,0.05", method="crown", attack="fgsm", **out)
    elif kind == "explain":
        brinell.explain(model=one, data=data, method=["gradient"], samples=8, steps=4, **out)
    elif kind == "transfer":
        brinell.transfer(model=models, data=data, eps="0.1", attack="fgsm", **out)
        return (models, data)
    elif kind == "epsilon":
        brinell.epsilon(data, norm="linf", pairs=0, **out)
        return (None, data)
    else:
        run = folder.with_name("run")
        brinell.audit(one, data, eps="0.05,0.1", attack="fgsm", out=run)
        brinell.claim(run, **out)
    return (one, data)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A folder of each kind, made once, with what its verification needs."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind) / "folder"
            made[kind] = folder, make_folder(kind, folder, np.random.default_rng([SEED, len(kind)]))
        return made[kind]

    return get


def verify(folder, objects):
    model, data = objects
    models = () if model is None else (model,)
    return brinell.verify(folder, *models, data=data, replay=16)


def texts_of(page):
    """The texts of the elements of a page, each row of a table as one."""
    rows = re.sub(r"</t[dh]>", " ", page)
    return {" ".join(text.split()) for text in re.split(r"<[^>]*>", rows) if text.strip()}


def check_edit(honest, kind, folder, seed):
    """Forge a copy of a folder; the forgery is noticed, or is claimed and marked where it is shown."""
    source, objects = honest(kind)
    shutil.copytree(source, folder)
    edit = Edit(folder, np.random.default_rng([seed, zlib.crc32(kind.encode())]))
    try:
        result = verify(folder, objects)
    except BrinellError:
        return
    if not result.passed:
        return
    claims = claims_of(study_of(source), source, {"model": None, "data": None})
    file, key = edit.target
    in_memory = file == MANIFEST and claims.cover_value(claims.manifest, key)
    assert in_memory or is_claimed(study_of(source), source, file, key), (kind, seed, edit.target)
    pages = [texts_of((place / "report.html").read_text()) for place in (source, folder)]
    shown = [text for text in pages[1] - pages[0] if "†" not in text and re.search(r"\w", text)]
    assert not shown, (kind, seed, edit.target, shown)


@pytest.mark.slow
def test_an_edit_under_hostile_names_is_noticed(honest, tmp_path):
    for seed in range(10):
        check_edit(honest, KINDS[seed % len(KINDS)], tmp_path / str(seed), SEED + seed)


@pytest.mark.nightly
def test_two_hundred_edits_of_tonight_are_noticed(honest, tmp_path_factory, subtests):
    """Without a failure among 200, less than 1.5 % of edits pass, with 95 % confidence."""
    for kind in KINDS:
        place = tmp_path_factory.mktemp("edits")
        with subtests.test(kind):
            assert verify(*honest(kind)).exit_code in (0, 4)
        for seed in of_tonight(34):
            with subtests.test(f"{kind} {seed}"):
                check_edit(honest, kind, place / str(seed), seed)
            shutil.rmtree(place / str(seed), ignore_errors=True)
