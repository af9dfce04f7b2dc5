"""A corruption folder: the answers of every model to every corruption (design/0023-across-models.md).

run.toml          the request
manifest.json     the request, data, kinds and models
rows.parquet      one row per corruption, severity, sample and model
examples/*.safetensors  for each kind of the manifest, by position: a sample as it is and corrupted at the largest severity
set/KIND/*.npz    the corrupted inputs, a file for each severity, with --keep
report.html       the page; made from the files above
.parts/           during the run: finished parts (`engine.parts`)
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from brinell.core.record import Array, column
from brinell.manifest import Content, Count, FolderManifest, Listing, abbreviate, misfit
from brinell.store.folder import Layout
from brinell.store.table import Table


class CorruptionSettings(Content):
    """Settings that the figures depend on."""

    placed: Count
    """Number of samples on which corruptions are placed."""
    reference: str | None
    """The model relative to which errors are measured; null for none."""


class CorruptionManifest(FolderManifest):
    """The manifest of a corruption study."""

    request: CorruptionSettings  # type: ignore[assignment]  # those that figures need
    """Settings of the request."""
    kinds: Listing[str]
    """The names of the corruptions."""
    severities: Listing[Annotated[int, Field(ge=1, le=5)]]
    """The severities of each."""

    @model_validator(mode="after")
    def _fits(self) -> "CorruptionManifest":
        """Check that the reference is one of the models."""
        names, reference = [model.name for model in self.models], self.request.reference
        if reference is not None and reference not in names:
            raise misfit(f"has the reference {abbreviate(reference)}, which is none of its models")
        if not names or not self.severities:
            raise misfit("holds no model or no severity")
        return self


LAYOUT = Layout(verb="corrupt", noun="corruption", version=1, manifest=CorruptionManifest)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Rows as columns, each a (rows,) array."""

    model: Array = column("string", "name of the model")
    kind: Array = column("string", "name of the corruption; `clean` for the clean input")
    severity: Array = column("int32", "1 to 5; 0 for the clean input")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    pred: Array = column("int32", "the model's answer")
    l2: Array = column("float32", "Euclidean length of the change, in the units of the data", zero=True)
    placed: Array = column("bool", "true if RLAB finds patches within that length on which the model errs", null=True)
    queries: Array = column("int64", "forward evaluations of RLAB", zero=True)

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(LAYOUT, Answers)


def example_path(number: int) -> str:
    """Path of the example of a kind, by its position in the manifest, relative to the folder."""
    return f"examples/{number:03d}.safetensors"
