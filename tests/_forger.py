"""Changes rows, arrays and manifest of a run as a forger does who updates the files that depend on
them."""

import json
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from brinell.core.errors import BrinellError
from brinell.store.files import write_arrays
from brinell.store.parquet import write_table
from brinell.store.run import LAYOUT
from brinell.store.run_manifest import stage_files
from brinell.studies.register import write_page


class Forger:
    """Changes the rows, arrays and manifest of a run, and updates the files that depend on them."""

    def __init__(self, path):
        self.path = path
        table = pq.read_table(path / "rows.parquet")
        self.schema, self.rows = table.schema, table.to_pylist()
        self.manifest = json.loads((path / "manifest.json").read_text())

    def select(self, attack=None, outcome=None, samples=None):
        """Rows of an attack, an outcome and samples; all where one is None."""
        for row in self.rows:
            attack_matches = attack is None or row["attack"] == attack
            outcome_matches = outcome is None or row["outcome"] == outcome
            is_of_samples = samples is None or row["sample_id"] in samples
            if attack_matches and outcome_matches and is_of_samples:
                yield row

    def change(self, column, value, **selection):
        rows = list(self.select(**selection))
        assert rows, "the forgery changes nothing"
        for row in rows:
            row[column] = value(row) if callable(value) else value

    def delete_inputs(self, samples, attack=None):
        """Delete the stored inputs of samples."""
        for file in self.path.glob("arrays/*-0*.safetensors"):
            if attack is None or file.stem.startswith(self.stem(attack)):
                write_arrays(
                    file,
                    {
                        name: array
                        for name, array in load_file(file).items()
                        if int(name) not in samples
                    },
                )

    def stem(self, attack):
        """The name of the files of an attack of the first model."""
        return stage_files(self.manifest)[self.manifest["models"][0]["name"], attack]

    def sort(self):
        """Put the rows into the order that a run has: models, stages, samples."""
        models = [entry["name"] for entry in self.manifest["models"]]
        stages = ["clean", *(stage["name"] for stage in self.manifest["stages"])]
        self.rows.sort(
            key=lambda row: (
                models.index(row["model"]),
                stages.index(row["attack"]),
                row["sample_id"],
            )
        )

    def first(self, attack="fgsm", outcome="broken"):
        return next(self.select(attack, outcome))

    def save(self):
        """Write all files, with digests, tables and page."""
        write_table(self.path / "rows.parquet", pa.Table.from_pylist(self.rows, self.schema))
        LAYOUT.save(self.path, self.manifest)
        with suppress(BrinellError):
            write_page(self.path)


def survive(row):
    """Change the row of a broken sample into that of an attack that failed."""
    for name in (
        "adv_pred",
        "adv_confidence",
        "adv_margin",
        "linf",
        "l2",
        "l1",
        "l0",
        "quantised_pred",
        "quantised_within",
    ):
        row[name] = None
    row |= {
        "outcome": "survived",
        "broken": None,
        "queries_to_success": None,
        "judge_forwards": 0,
        "margin": -0.5,
    }


def whitewash(forger, samples, costs):
    """Make samples robust in every stage, with the rows of attacks that fail at the largest budget
    at these costs by stage."""
    largest = max(forger.manifest["eps"])
    for stage in forger.manifest["stages"]:
        rows = list(forger.select(attack=stage["name"]))
        for sample in samples if rows else ():
            row = next((row for row in rows if row["sample_id"] == sample), None)
            if row is None:
                first = forger.manifest["stages"][0]["name"]
                row = dict(next(forger.select(samples=[sample], attack=first)))
                forger.rows.append(row)
            survive(row)
            row |= {"attack": stage["name"], "attacked": largest, "seconds": 0.0} | costs(
                stage["name"]
            )
    forger.sort()
