"""Forged runs, as a careful forger makes them: digests, tables and page are made anew, and verify still says no.

Each forgery raises or lowers a figure, or hides a cost or a failure. The model is asked again, robust samples are attacked again,
all of them here, so that nothing hangs on which are drawn.
"""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import brinell
from _cli import words
from _helpers import workspace
from brinell.cli import run as cli
from brinell.pages import html
from brinell.store.files import write_arrays
from brinell.store.parquet import write_table
from brinell.store.run import LAYOUT, Run
from brinell.studies.verification.alone import alone
from brinell.studies.verification.result import Notes

EVERY = 24
"""Samples of the run."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    work = workspace(tmp_path_factory.mktemp("work"), n=EVERY)
    assert cli(words(work, work / "honest")) == 0
    return work / "honest"


class Forger:
    """Changes the rows, arrays and manifest of a run, and covers the traces."""

    def __init__(self, path):
        self.path = path
        self.files = {file: pq.read_table(file) for file in sorted((path / "records").glob("part-*.parquet"))}
        self.rows = {file: table.to_pylist() for file, table in self.files.items()}
        self.manifest = json.loads((path / "manifest.json").read_text())

    def each(self, attack=None, outcome=None, samples=None):
        """All rows that are meant, of every stage unless one is named."""
        for rows in self.rows.values():
            for row in rows:
                named = attack is None or row["attack"] == attack
                meant = outcome is None or row["outcome"] == outcome
                if named and meant and (samples is None or row["sample_id"] in samples):
                    yield row

    def change(self, column, value, **which):
        found = list(self.each(**which))
        assert found, "the forgery changes nothing"
        for row in found:
            row[column] = value(row) if callable(value) else value

    def forget(self, samples, attack=None):
        """Deletes the stored inputs of samples."""
        cells = [stage["cells"] for stage in self.manifest["stages"] if attack in (None, stage["name"])]
        for cell in cells:
            for file in (self.path / "arrays").glob(f"part-{next(iter(cell.values()))}*"):
                left = {name: array for name, array in load_file(file).items() if int(name) not in samples}
                write_arrays(file, left)

    def first(self, attack="fgsm", outcome="fooled"):
        return next(self.each(attack, outcome))

    def done(self):
        """Writes everything, digests, tables and page included."""
        for file, rows in self.rows.items():
            schema = self.files[file].schema
            write_table(file, pa.Table.from_pylist(rows, schema))
        self.manifest["files"] = Run(self.path, self.manifest).digests()
        LAYOUT.save(self.path, self.manifest)
        html.write(self.path)


def survive(row):
    """A fooled row as that of an attack that failed."""
    for name in ("adv_pred", "adv_confidence", "adv_margin", "linf", "l2", "l1", "l0", "quantised_pred", "quantised_within"):
        row[name] = None
    row |= {"outcome": "survived", "queries_to_success": None, "judge_forwards": 0, "best_margin": -0.5}


def whitewash(forger, count, *, arrays):
    """Makes samples robust at every budget and in every stage, as an attack would leave them that fails at the largest."""
    names = [stage["name"] for stage in forger.manifest["stages"]]
    samples = sorted({row["sample_id"] for row in forger.each(outcome="fooled")})[:count]
    for sample in samples:
        for name in names:
            rows = sorted(forger.each(name, samples=[sample]), key=lambda row: row["eps"])
            cost = {"forwards": 1 if name == "fgsm" else 4, "backwards": 1 if name == "fgsm" else 3}
            for row in rows:
                survive(row)
                row |= {"outcome": "survived_above", "forwards": 0, "backwards": 0, "best_margin": None, "seconds": 0.0}
            rows[-1] |= {"outcome": "survived", "best_margin": -0.5} | cost
    if arrays:
        forger.forget(samples)


def one_survives(forger):
    survive(forger.first())


def one_survives_and_its_input_is_gone(forger):
    row = forger.first()
    forger.forget([row["sample_id"]], "fgsm")
    survive(row)


def other_stage(forger, index, key, value):
    forger.manifest["stages"][index][key] = value


def removed_stage(forger):
    stage = forger.manifest["stages"].pop()
    for file in list(forger.rows):
        if next(iter(stage["cells"].values())) in file.name:
            del forger.rows[file]
            file.unlink()
    for file in (forger.path / "arrays").glob(f"part-{next(iter(stage['cells'].values()))}*"):
        file.unlink()


def extra_part(forger):
    file, rows = next(iter(forger.rows.items()))
    shutil.copy(file, file.with_name("part-000000000000000000000000.parquet"))


def fewer_rows(forger):
    for rows in forger.rows.values():
        rows[:] = [row for row in rows if row["sample_id"] != 3]


def doubled_rows(forger):
    for rows in forger.rows.values():
        rows += [dict(row) for row in rows if row["sample_id"] == 3]


def a_request_for_less(forger):
    text = (forger.path / "run.toml").read_text()
    (forger.path / "run.toml").write_text(text.replace('eps = "0,0.05,0.1,0.2"', 'eps = "0,0.5,1,2"'))


def request_and_manifest_for_less(forger):
    a_request_for_less(forger)
    forger.manifest["request"]["eps"] = "0,0.5,1,2"


def text_of_eps(forger):
    forger.manifest["eps_text"] = ["0", "0.5", "1", "2"]


def failed_without_a_reason(forger):
    row = forger.first()
    survive(row)
    row |= {"outcome": "failed", "best_margin": None}


def failed_with_a_reason(forger):
    """The manifest says why, so that the sample leaves the denominator."""
    samples = sorted({row["sample_id"] for row in forger.each(outcome="fooled")})[:2]
    told = {str(sample): "the server refuses it" for sample in samples}
    forger.manifest["failed"] = {forger.manifest["models"][0]["name"]: {"clean": told}}
    for row in forger.each(samples=samples):
        survive(row)
        row |= {
            "outcome": "failed",
            "clean_pred": -1,
            "clean_confidence": 0.0,
            "best_margin": None,
            "forwards": 0,
            "backwards": 0,
        }
    forger.forget(samples)


def table_alone(forger):
    forger.after = lambda path: (path / "tables" / "robust_accuracy.csv").write_text("model,what\n")


def page_alone(forger):
    def after(path):
        file = path / "report.html"
        file.write_text(file.read_text().replace(" %", " % "))

    forger.after = after


def check_passed(forger):
    name = forger.manifest["models"][0]["name"]
    del forger.manifest["checks"][name][3]


def every_check_gone(forger):
    forger.manifest["checks"] = {}


FORGERIES = {
    "an attack that failed": one_survives,
    "and its input deleted": one_survives_and_its_input_is_gone,
    "blamed on an earlier stage": lambda f: f.change("outcome", "fooled_before", attack="fgsm", outcome="survived"),
    "every stage failed on one": lambda f: whitewash(f, 1, arrays=True),
    "every stage failed on six": lambda f: whitewash(f, 6, arrays=True),
    "every stage failed, arrays left": lambda f: whitewash(f, 2, arrays=False),
    "spared": lambda f: f.change("outcome", "spared", attack="fgsm", outcome="survived"),
    "skipped": lambda f: f.change("outcome", "skipped", attack="pgd?steps=3"),
    "fooled below": lambda f: f.change("outcome", "fooled_below", attack="fgsm", outcome="fooled"),
    "fooled at a larger eps": lambda f: f.change("outcome", "survived", outcome="fooled_below"),
    "more are fooled": lambda f: f.change("outcome", "fooled", attack="pgd?steps=3", outcome="survived"),
    "misclassified to correct": lambda f: (
        f.change("label", lambda row: row["clean_pred"]) or f.change("outcome", "correct", attack="clean")
    ),
    "correct to misclassified": lambda f: f.change("outcome", "misclassified", samples=[0, 1, 2]),
    "labels are predictions": lambda f: f.change("label", 1, samples=[4]),
    "another clean class": lambda f: f.change("clean_pred", lambda row: 1 - row["clean_pred"], samples=[5]),
    "another confidence": lambda f: f.change("clean_confidence", 0.9, attack="fgsm"),
    "another target": lambda f: f.change("target", 1, attack="fgsm"),
    "another model's rows": lambda f: f.change("model", "other", attack="fgsm"),
    "another attack's rows": lambda f: f.change("attack", "pgd?steps=3", attack="fgsm"),
    "another distance in the rows": lambda f: f.change("distance", "l2"),
    "eps in the rows": lambda f: f.change("eps", lambda row: 2 * row["eps"]),
    "radius in the rows": lambda f: f.change("radius", lambda row: 2 * row["radius"]),
    "a smaller perturbation": lambda f: f.change("linf", lambda row: row["linf"] / 2, outcome="fooled"),
    "a larger one": lambda f: f.change("linf", lambda row: row["linf"] * 3, outcome="fooled"),
    "another adversarial class": lambda f: f.change("adv_pred", 0, outcome="fooled"),
    "quantised otherwise": lambda f: f.change("quantised_pred", 0, outcome="fooled"),
    "sooner than it was": lambda f: f.change("queries_to_success", 0, outcome="fooled"),
    "later than its last query": lambda f: f.change("queries_to_success", 999, outcome="fooled"),
    "dearer than can be": lambda f: f.change("forwards", 10_000, outcome="survived"),
    "cheaper than it is": lambda f: f.change("forwards", 1, attack="pgd?steps=3", outcome="survived"),
    "for nothing": lambda f: f.change("forwards", 0, outcome="survived"),
    "backwards for nothing": lambda f: f.change("backwards", 0, attack="pgd?steps=3", outcome="survived"),
    "below nothing": lambda f: f.change("forwards", -5, outcome="survived"),
    "costs where nothing was done": lambda f: f.change("backwards", 7, outcome="survived_above"),
    "over the boundary and robust": lambda f: f.change("best_margin", 0.5, outcome="survived"),
    "failed without a reason": failed_without_a_reason,
    "failed with a reason": failed_with_a_reason,
    "a stage removed": removed_stage,
    "a file more": extra_part,
    "samples removed": fewer_rows,
    "samples twice": doubled_rows,
    "another label": lambda f: other_stage(f, 0, "label", "APGD, 100 steps"),
    "other settings": lambda f: other_stage(f, 1, "settings", {"steps": 100}),
    "another distance": lambda f: f.manifest.update(distance="l2"),
    "another text of eps": text_of_eps,
    "other classes": lambda f: f.manifest["data"].update(classes=["cat", "dog"]),
    "more samples": lambda f: f.manifest["data"].update(n=1000),
    "another architecture": lambda f: f.manifest["models"][0].update(parameters=10**9),
    "another criterion": lambda f: f.manifest.update(criterion={"name": "targeted"}),
    "another request file": a_request_for_less,
    "another request": request_and_manifest_for_less,
    "another seed": lambda f: f.manifest.update(seed=7),
    "a check left out": check_passed,
    "every check left out": every_check_gone,
    "a table alone": table_alone,
    "the page alone": page_alone,
}
"""What is forged, by name."""


OFTEN = ("every stage failed on six", "every stage failed, arrays left", "another clean class", "cheaper than it is") + (
    "failed with a reason",
    "a stage removed",
    "samples removed",
    "other settings",
    "another request",
    "every check left out",
    "the page alone",
)
"""Those that are tried each time; the others are slow together."""


@pytest.mark.parametrize("what", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.slow) for one in FORGERIES])
def test_a_forgery_is_refused(honest, tmp_path, what):
    copy = shutil.copytree(honest, tmp_path / "forged")
    forger = Forger(copy)
    forger.after = lambda path: None
    FORGERIES[what](forger)
    forger.done()
    forger.after(copy)
    assert cli(["verify", str(copy), "--rerun", str(EVERY)]) in (1, 2), "the forgery verifies"


def test_the_honest_run_verifies(honest):
    result = brinell.verify(honest, rerun=EVERY)
    assert result.passed and result.rows == EVERY * 7 and 0 < result.rerun < EVERY
    assert any("attacked again" in sentence for sentence in result.proved) and result.trusted


def test_how_likely_a_forgery_is_missed():
    from brinell.studies.verification.rerun import Rerun

    assert Rerun(samples=10, of=100, boundary=0).missed(1) == pytest.approx(0.9)
    assert Rerun(samples=2, of=4, boundary=0).missed(2) == pytest.approx(1 / 6)
    assert Rerun(samples=100, of=100, boundary=0).missed(1) == 0


def test_a_part_of_the_robust_samples_is_attacked_by_default(honest):
    assert brinell.verify(honest).rerun == 8 and brinell.verify(honest, rerun=0).rerun == 0


@pytest.mark.parametrize(
    "what",
    ["an attack that failed", "more are fooled", "misclassified to correct", "a smaller perturbation", "another request file"]
    + ["costs where nothing was done", "samples removed", "a file more", "the page alone", "another adversarial class"],
)
def test_a_folder_alone_shows_many(honest, tmp_path, what):
    copy = shutil.copytree(honest, tmp_path / "forged")
    forger = Forger(copy)
    forger.after = lambda path: None
    FORGERIES[what](forger)
    forger.done()
    forger.after(copy)
    notes = Notes()
    alone(Run.open(copy), notes)
    seen = bool(notes.problems)
    assert seen == (what != "a smaller perturbation"), "that the stored input is farther away takes the clean one"


def test_an_honest_folder_agrees_with_itself(honest):
    notes = Notes()
    assert alone(Run.open(honest), notes) == EVERY * 7 and not notes.problems
