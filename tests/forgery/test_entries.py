"""Entries of a manifest that nothing compares, and sentences under the name of another machine, do
not verify."""

import json
import random
import shutil

import pytest

import brinell
from brinell.core.errors import BrinellError
from brinell.store.run import LAYOUT
from brinell.studies.register import write_page

SAMPLES = 24
SEED = 430
WORDS = "certified by an independent laboratory for 99 % of all inputs".split()
CLAIMED = ("seconds", "versions", "hardware", "traffic")
"""Tables of claims, in which entries may be added."""


@pytest.fixture
def honest(audit_run):
    return audit_run


def tables_of(value, path=()):
    """Paths of all tables and lists in a JSON tree."""
    if isinstance(value, dict | list):
        yield path
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tables_of(inner, (*path, key))


def at(manifest, path):
    for key in path:
        manifest = manifest[key]
    return manifest


def add_entry(manifest, rng):
    """Add a key to a table, double an entry of a list with another sentence, or warn about no model
    or another one."""
    if rng.random() < 0.3:
        warning = {
            "code": rng.choice(WORDS),
            "model": rng.choice([None, "ghost"]),
            "text": " ".join(rng.sample(WORDS, 6)),
        }
        manifest["warnings"].insert(rng.randrange(len(manifest["warnings"]) + 1), warning)
        return
    paths = [
        path
        for path in tables_of(manifest)
        if path and path[0] not in (*CLAIMED, "files", "request")
    ]
    place = at(manifest, rng.choice([(), *paths]))
    if isinstance(place, dict):
        place[rng.choice([*WORDS, "reject_class", "towards", "served", "ghost"])] = rng.choice(
            [3, "certified", None]
        )
    elif place and isinstance(place[0], dict):
        twin = {
            key: " ".join(rng.sample(WORDS, 4)) if key in ("text", "label") else value
            for key, value in place[0].items()
        }
        place.insert(rng.randrange(2), twin)
    else:
        place.append("certified")


def restate(manifest, rng):
    """State another machine, and change a sentence or a figure of a check, or the repair."""
    manifest["versions"]["numpy"] = "1.99.0"
    name = manifest["models"][0]["name"]
    checks = manifest["checks"][name]
    kind = rng.choice(["text", "figure", "limit", "repairs"])
    if kind == "text":
        rng.choice(checks)["text"] = " ".join(rng.sample(WORDS, 7))
    elif kind in ("figure", "limit"):
        check = rng.choice(
            [check for check in checks if (check["figure"] or 0) + (check["limit"] or 0) > 0]
        )
        check[kind] = (check[kind] or 0) + rng.choice([-1, 1]) * (
            (check["figure"] or 0) + (check["limit"] or 0)
        )
    else:
        manifest["repairs"] = {name: {"forwards": 3, "backwards": 3, "way": "finite differences"}}


def is_refused(folder, edit, seed):
    """Edit a copy of a run, and verify it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest, random.Random(seed))
    try:
        LAYOUT.save(folder, manifest)
        write_page(folder)
        return brinell.verify(folder, replay=SAMPLES, trust=folder).status == "refused"
    except BrinellError:
        return True


@pytest.mark.parametrize(
    "seeds",
    [range(SEED, SEED + 4), pytest.param(range(SEED + 4, SEED + 16), marks=pytest.mark.slow)],
    ids=len,
)
@pytest.mark.parametrize("edit", [add_entry, restate])
def test_an_entry_is_refused(honest, tmp_path, edit, seeds):
    assert not [
        seed
        for seed in seeds
        if not is_refused(shutil.copytree(honest, tmp_path / str(seed)), edit, seed)
    ]


def test_another_machine_alone_is_proved(honest, tmp_path):
    folder = shutil.copytree(honest, tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["versions"]["numpy"] = "1.99.0"
    for check in manifest["checks"][manifest["models"][0]["name"]]:
        check["text"] = check["text"].replace("24", "23")
    LAYOUT.save(folder, manifest)
    write_page(folder)
    result = brinell.verify(folder, replay=SAMPLES, trust=folder)
    assert result.passed, result.problems
    assert any(
        "the figure and the sentence of" in sentence for sentence in result.unverified_claims
    )
