"""The folder of a hardening.

run.toml  manifest.json         the request; the training facts and every check
<model>-hardened.safetensors    the hardened weights, a state dict
checkpoints/last.safetensors    the state from which a training resumes
before/  after/                 the audits, each a run folder of `brinell audit`
tables/*.csv  report.html
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from brinell.analysis.compare import Side
from brinell.core.settings import MOST_COUNT
from brinell.manifest import Amount, Content, Count, DataFacts, GrowingManifest, Listing, ModelFacts
from brinell.store.folder import Layout
from brinell.store.run import Run

Samples = Annotated[int, Field(ge=0, le=MOST_COUNT)]


class ValidationCheck(Content):
    """Result of one check on validation samples during training."""

    n: Samples
    """Samples evaluated."""
    clean: Samples
    """Samples classified correctly."""
    seen: Samples
    """Samples robust to the training attack."""
    pgd: Samples
    """Samples robust to PGD."""
    robust: Samples
    """Samples robust to both attacks."""
    step: Count
    """Training steps so far."""
    seconds: Amount
    """Wall time so far, in seconds."""
    recipe: str
    """The recipe in use."""
    eps: Amount
    """The training budget at this step."""
    loss: float | None
    """The training loss; null before the first step."""
    good: bool
    """True if the check found no problem."""


class TrainingFacts(Content):
    """Outcome of the training; empty until it ends."""

    weights: str = ""
    """File name of the hardened weights."""
    spec: str | None = None
    """Model spec with these weights, as on the command line."""
    recipe: str = ""
    """The recipe that produced the stored weights."""
    seconds: Amount = 0.0
    """Wall time, in seconds."""
    curve: Listing[ValidationCheck] = []
    """Every check, in order."""
    step: Count = 0
    """The step of the stored weights."""
    forwards: Count = 0
    """Forward evaluations."""
    backwards: Count = 0
    """Backward evaluations."""
    events: list[Any] = []
    """Events during the training, such as overfitting or an early stop."""


class HardenManifest(GrowingManifest):
    """The manifest of a hardening."""

    cell: str
    """Hash of everything that the training depends on."""
    model: ModelFacts
    """The model before the training."""
    data: DataFacts
    """The data of both audits."""
    train: DataFacts
    """The data of the training."""
    trained_on: Count
    """Number of training samples."""
    validation: Count
    """Number of validation samples."""
    eps: Amount
    """The training budget."""
    eps_text: str
    """The training budget as written in the request."""
    training: TrainingFacts
    """Outcome of the training."""


LAYOUT = Layout(verb="harden", noun="hardening", version=1, manifest=HardenManifest, folders=())
BEFORE, AFTER = "before", "after"
STEPS, SEVERITY = 20, 3
"""Steps of PGD, and severity of the distortions, in the comparison on unseen changes."""


def pgd_row_name(norm: str, eps: float) -> str:
    """Name of a PGD row in the comparison on unseen changes."""
    return f"PGD, {STEPS} steps, {norm} {eps:.3g}"


def distortion_row_name(distortion: str) -> str:
    """Name of a distortion row in the comparison on unseen changes."""
    return f"{distortion}, severity {SEVERITY}"


def checkpoint_path(folder: Path) -> Path:
    """Path of the training checkpoint."""
    return folder / "checkpoints" / "last.safetensors"


def locate_hardened(folder: Path, manifest: Mapping[str, Any]) -> tuple[Path, str | None]:
    """Path of the hardened weights, and the model spec that loads them from the current folder, or None without a spec."""
    training = manifest["training"]
    file, spec = folder / Path(training["weights"]).name, training["spec"]
    return file, None if spec is None else spec.replace(f"weights={training['weights']}", f"weights={file}", 1)


def load_audit(folder: Path, audit: str) -> Side:
    """Open the audit before or after the training for a comparison.

    Args:
        folder: folder of the hardening.
        audit: `BEFORE` or `AFTER`.

    Raises:
        RequestError: the audit is missing or damaged.
    """
    run = Run.open(folder / audit)
    (model,) = run.manifest["models"]
    return Side(run=str(folder / audit), manifest=run.manifest, records=run.records(), model=str(model["name"]))
