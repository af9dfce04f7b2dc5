"""The folder of an unrestricted attack: one row per attempt, model and variant, and the inputs behind the rows.

    records/part-00000.parquet      COLUMNS, a block of attempts at a time
    arrays/part-00000.safetensors   "<attempt>/plain", "<attempt>/<model>/<variant>" and "reference/<position>": float32 inputs;
                                    "<attempt>/<model>/<variant>/latent": the last latent of the search
    run.toml  manifest.json         the request; the models, data and generator
    tables/*.csv  report.html

A part is there when its file in records/ is, which is written last. Inputs are kept of searches that ended with an error of the
model, with the plain sample that they began at and the training samples nearest to them.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import model_validator

from brinell.core.record import Array, Column
from brinell.manifest import Amount, Content, Count, DataFacts, GrowingManifest, Listing, ModelFacts, Parts, TableOf, misfit
from brinell.store import parquet
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import Layout


class VariantFacts(Content):
    """A variant of the search."""

    noise: Amount
    """Largest change of a value by the added noise; 0 for a search of the latent only."""


class GeneratorHistory(Content):
    """How the generator was trained."""

    steps: Count
    """Steps of the training."""
    samples: Count
    """Samples that it was trained on."""


class GeneratorFacts(Content):
    """The generator that drew the inputs."""

    file: str
    """Its file."""
    digest: str
    """Hash of everything that determines the generated inputs."""
    same_data: bool
    """True if the generator was trained on this data."""
    about: GeneratorHistory
    """How it was trained."""


class UnrestrictedManifest(GrowingManifest):
    """The manifest of an unrestricted attack."""

    cell: str
    """Hash of everything that determines the rows."""
    parts: Parts
    """Number of parts."""
    attempts: Count
    """Number of inputs that the generator draws."""
    data: DataFacts
    """The data whose classes the generator draws."""
    models: Listing[ModelFacts]
    """The models under attack."""
    judges: Listing[ModelFacts]
    """The judges, which check the class of the examples."""
    variants: TableOf[VariantFacts]
    """The variants of the search."""
    target: Count | None
    """The target class; null for an untargeted attack."""
    generator: GeneratorFacts
    """The generator."""
    seconds: Amount
    """Wall time."""

    @model_validator(mode="after")
    def _fits(self) -> "UnrestrictedManifest":
        """Check models and target class."""
        names = [model.name for model in self.models]
        if not names or len({*names}) < len(names):
            raise misfit("does not list models once each")
        if self.target is not None and self.target >= len(self.data.classes):
            raise misfit(f"has the target {self.target}, which is none of the classes")
        return self


LAYOUT = Layout(verb="unrestricted", noun="unrestricted attack", version=2, manifest=UnrestrictedManifest)
NORMS = ("l2", "linf")
"""Norms of the nearest-neighbour search."""


class Outcome(StrEnum):
    """Outcome of an attempt."""

    UNCLEAR = "unclear"
    """The auxiliary classifier or a judge does not see the intended class in the plain sample. No search follows."""
    GENERALISATION = "generalisation"
    """They see the intended class, and the model errs on the plain sample. No search follows."""
    FOOLED = "fooled"
    """The model errs on the last input, and the auxiliary classifier and every judge see the intended class."""
    CONTESTED = "contested"
    """The model errs and the auxiliary classifier sees the intended class, but a judge does not: the class may have changed."""
    SURVIVED = "survived"
    """The search found no input on which the model errs while the auxiliary classifier sees the intended class."""


CLEAR = frozenset(Outcome) - {Outcome.UNCLEAR}
SEARCHED = frozenset({Outcome.FOOLED, Outcome.CONTESTED, Outcome.SURVIVED})


def _neighbours(prefix: str, subject: str, *, null: bool) -> dict[str, Column]:
    """Columns of distances to the nearest training samples."""
    columns = {}
    for norm in NORMS:
        for side, group in (("same", "of the intended class"), ("other", "of another class")):
            nearest = f"the training sample {group} nearest to {subject}"
            columns[f"{prefix}{norm}_{side}"] = Column("float64", f"{norm} distance to {nearest}", null)
            columns[f"{prefix}{norm}_{side}_at"] = Column("int64", f"position of {nearest}", null)
            anchored = f"{norm} distance from {prefix}{norm}_same_at to its own nearest training sample {group}"
            if side == "same":
                anchored += ", itself left out"
            columns[f"{prefix}{norm}_anchor_{side}"] = Column("float64", anchored, null)
    return columns


COLUMNS = {
    "attempt": Column("int64", "number of the attempt: its latent is the same for every model and variant"),
    "model": Column("string", "name of the model"),
    "variant": Column("string", "latent: the latent alone is searched; noise: small noise on each value too"),
    "intended": Column("int32", "class that the generator was asked for"),
    "target": Column("int32", "target class; null where any wrong class counts", null=True),
    "outcome": Column("string", "one of Outcome"),
    "plain_pred": Column("int32", "the model's answer to the plain sample"),
    "plain_confidence": Column("float64", "its probability"),
    "plain_aux": Column("int32", "the auxiliary classifier's answer to it"),
    "plain_aux_probability": Column("float64", "the auxiliary classifier's probability of the intended class"),
    "plain_judges": Column("list", "the judges' answers to it, in the order of the manifest"),
    "pred": Column(
        "int32", "the model's answer to the input that the search ended at; null where nothing was searched", null=True
    ),
    "confidence": Column("float64", "its probability", null=True),
    "aux": Column("int32", "the auxiliary classifier's answer to it", null=True),
    "aux_probability": Column("float64", "the auxiliary classifier's probability of the intended class", null=True),
    "judges": Column("list", "the judges' answers to it", null=True),
    "latent_l2": Column("float64", "how far the latent moved, L2", null=True),
    "latent_linf": Column("float64", "the largest change of a value of the latent", null=True),
    "moved_l2": Column("float64", "L2 distance between the two inputs", null=True),
    "moved_linf": Column("float64", "the largest change of a value", null=True),
    "forwards": Column("int64", "forward evaluations of the model that the search cost"),
    "backwards": Column("int64", "backward evaluations"),
    "queries_to_success": Column("int64", "forward at which the model first erred, whatever the class was then", null=True),
    "judge_forwards": Column("int64", "forwards of the model spent on the verdict: on the plain sample and on what was found"),
    "seconds": Column("float64", "wall time of the search, shared among the attempts of a block by their evaluations"),
    **_neighbours("plain_", "the plain sample", null=False),
    **_neighbours("", "the input that the search ended at", null=True),
}
"""A row. Inputs are as they are stored: rounded to the levels of the data."""

SCHEMA = parquet.schema_of(COLUMNS, {"list": pa.list_(pa.int32())})


class UnrestrictedRun:
    """The run folder of an unrestricted attack, finished or not."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest, self.parts = path, manifest, manifest["parts"]

    @classmethod
    def open(cls, path: Path) -> "UnrestrictedRun":
        """Open the folder.

        Raises:
            RequestError: the folder is missing or damaged.
        """
        return cls(path, LAYOUT.open(path))

    def file(self, folder: str, number: int) -> Path:
        """Path of the records or arrays of a part."""
        return self.path / folder / f"part-{number:05d}.{'safetensors' if folder == 'arrays' else 'parquet'}"

    def has_part(self, number: int) -> bool:
        """True if the part is complete."""
        return self.file("records", number).exists()

    def save_part(self, number: int, rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, Array]) -> None:
        """Write a part. The records come last, since they mark the part as complete."""
        write_arrays(self.file("arrays", number), arrays)
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA)
        parquet.write_table(self.file("records", number), table)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all complete parts, in order.

        Raises:
            RequestError: a part is damaged.
        """
        files = [self.file("records", number) for number in range(self.parts) if self.has_part(number)]
        return [row for file in files for row in parquet.read_table(file, schema=SCHEMA).to_pylist()]

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """The stored arrays among `names`.

        Raises:
            RequestError: a file is damaged.
        """
        requested = set(names)
        arrays: dict[str, Array] = {}
        for number in filter(self.has_part, range(self.parts)):
            arrays |= read_arrays(self.file("arrays", number), requested.__contains__)
        return arrays
