"""A detection folder: the scores of all detectors on clean and adversarial inputs (design/0016-detection.md).

manifest.json          the request, the audited run, thresholds, costs
rows.parquet         one row per model, detector, input
evading.safetensors    inputs of the adaptive attacks: MODEL/DETECTOR/FORM/SAMPLE
report.html            the page; made from the files above
"""

from dataclasses import dataclass

from pydantic import model_validator

from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, Count, Listing, Manifest, Share, TableOf, misfit
from brinell.store.folder import Layout
from brinell.store.table import Table


class DetectionSettings(Content):
    """Settings that the figures depend on."""

    fpr: Share
    """The false-alarm rate on clean inputs."""


class DetectorFacts(Content):
    """A detector on one model."""

    name: str
    """Spec of the detector."""
    threshold: float
    """Inputs with a higher score raise an alarm."""


class DetectedModel(Content):
    """A model of the run and its detectors."""

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
        """Check that the counts fit each other."""
        if not self.robust <= self.right <= self.samples:
            raise misfit("has more samples that are robust or right than there are")
        return self


class DetectionManifest(Manifest):
    """The manifest of a detection study."""

    request: DetectionSettings
    """Settings of the request."""
    run: str
    """The folder of the run."""
    data: str
    """The data of the run."""
    train: str
    """The data that the detectors are fitted to."""
    distance: str
    """The distance in which eps is measured."""
    eps: Amount
    """The budget."""
    models: Listing[DetectedModel]
    """The models of the run."""
    attacks: Listing[str]
    """The attacks whose examples are scored."""
    titles: TableOf[str] = {}
    """Short names of the attacks."""


LAYOUT = Layout(verb="detect", noun="detection", version=2, manifest=DetectionManifest, resumable=False)
CLEAN = "clean"
EVADING = ("evading", "evading, background kept")
"""Names of the adaptive attacks, in the column `attack`."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Rows as columns, each a (rows,) array."""

    model: Array = column("string", "name of the model in the run")
    detector: Array = column("string", "spec of the detector")
    attack: Array = column("string", "a stage of the run, `clean`, or one of `EVADING`")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    score: Array = column("float64", "score of the detector; higher is more suspicious")
    fooled: Array = column("bool", "true if the classifier errs on this input")
    backwards: Array = column("int64", "gradient steps for this input; 0 for an input of the run", zero=True)

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(LAYOUT, Scores)
