"""A detection folder: the score of every detector on every clean and adversarial input (design/0016-detection.md).

manifest.json          the request, the run it is about, thresholds, costs
rows.parquet         one row per model, detector, input
evading.safetensors    inputs of the attack that knows the detector: MODEL/DETECTOR/FORM/SAMPLE
report.html            the page; made from the files above
"""

from dataclasses import dataclass

from pydantic import model_validator

from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, Count, Listing, Manifest, Named, Share, misfit
from brinell.store.folder import Layout
from brinell.store.table import Table


class DetectionSettings(Content):
    """What the figures need of the request."""

    fpr: Share
    """The share of clean inputs that a detector may flag."""


class DetectorFacts(Content):
    """A detector beside a model."""

    name: str
    """The detector, as it was asked for."""
    threshold: float
    """The score from which an input is flagged."""


class DetectedModel(Content):
    """A model of the run."""

    name: str
    """The name of the model."""
    digest: str
    """The hash of its weights."""
    samples: Count
    """How many samples the run has."""
    right: Count
    """How many the model classifies correctly."""
    robust: Count
    """How many are robust in the run."""
    forwards: Count
    """Forward evaluations of the model."""
    detectors: Listing[DetectorFacts]
    """The detectors beside it."""

    @model_validator(mode="after")
    def _fits(self) -> "DetectedModel":
        if not self.robust <= self.right <= self.samples:
            raise misfit("has more samples that are robust or right than there are")
        return self


class DetectionManifest(Manifest):
    """What the manifest of a detection says."""

    request: DetectionSettings
    """Every setting that was asked for."""
    run: str
    """The folder of the run."""
    data: str
    """The data of the run."""
    train: str
    """The data that detectors were fitted on."""
    distance: str
    """The distance in which eps is measured."""
    eps: Amount
    """The budget."""
    models: Listing[DetectedModel]
    """The models of the run."""
    attacks: Listing[str]
    """The attacks whose examples were scored."""
    titles: Named[str] = {}
    """Their names for people."""


LAYOUT = Layout(verb="detect", what="detection", version=2, manifest=DetectionManifest, resumable=False)
CLEAN = "clean"
EVADING = ("evading", "evading, background kept")
"""Names of the attacks that know the detector, in the column `attack`."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Rows as columns, each a (rows,) array."""

    model: Array = column("string", "name of the model in the run")
    detector: Array = column("string", "the detector, as it was asked for")
    attack: Array = column("string", "a stage of the run, `clean`, or one of `EVADING`")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    score: Array = column("float64", "what the detector says; higher is more suspicious")
    fooled: Array = column("bool", "whether the classifier errs on this input")
    backwards: Array = column("int64", "gradient steps that this input cost; 0 for what the run had stored", zero=True)

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(LAYOUT, Scores)
