"""The folder of a hardening.

run.toml  manifest.json         the request; what was trained, how it went, check by check
<model>-hardened.safetensors    the hardened weights, a state dict
checkpoints/last.safetensors    everything that the training needs to go on
before/  after/                 the audits, each a run folder like any other
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
    """How the network does on validation samples, as the training goes on."""

    n: Samples
    """Samples that were looked at."""
    clean: Samples
    """Those classified correctly."""
    seen: Samples
    """Those robust to the attack of the training."""
    pgd: Samples
    """Those robust to PGD."""
    robust: Samples
    """Those robust to both."""
    step: Count
    """Steps of the training until then."""
    seconds: Amount
    """Wall time until then."""
    recipe: str
    """The defence."""
    eps: Amount
    """The budget of the training then."""
    loss: float | None
    """The loss of the training; null before it begins."""
    good: bool
    """Whether nothing is wrong with the training."""


class TrainingFacts(Content):
    """How the training went; empty until it is over."""

    weights: str = ""
    """The file of the hardened weights."""
    spec: str | None = None
    """How the model with these weights is named, as on the command line."""
    recipe: str = ""
    """The defence of the weights that were kept."""
    seconds: Amount = 0.0
    """Wall time."""
    curve: Listing[ValidationCheck] = []
    """Every check, in order."""
    step: Count = 0
    """The step of the weights that were kept."""
    forwards: Count = 0
    """Forward evaluations."""
    backwards: Count = 0
    """Backward evaluations."""
    events: list[Any] = []
    """What happened on the way."""


class HardenManifest(GrowingManifest):
    """What the manifest of a hardening says."""

    cell: str
    """The hash of all that the training depends on."""
    model: ModelFacts
    """The model before."""
    data: DataFacts
    """The data of both audits."""
    train: DataFacts
    """The data of the training."""
    trained_on: Count
    """Samples that it is trained on."""
    validation: Count
    """Samples that it is checked on."""
    eps: Amount
    """The budget."""
    eps_text: str
    """The budget as it was written."""
    training: TrainingFacts
    """How the training went."""


LAYOUT = Layout(verb="harden", what="hardening", version=1, manifest=HardenManifest, folders=())
BEFORE, AFTER = "before", "after"
STEPS, SEVERITY = 20, 3
"""Of PGD and of distortions, by which it is seen whether robustness carries over."""


def attacked_by(norm: str, eps: float) -> str:
    """What PGD is called in the rows of what carries over."""
    return f"PGD, {STEPS} steps, {norm} {eps:.3g}"


def distorted_by(distortion: str) -> str:
    """What a distortion is called there."""
    return f"{distortion}, severity {SEVERITY}"


def checkpoint(folder: Path) -> Path:
    """Where the training writes its checkpoints."""
    return folder / "checkpoints" / "last.safetensors"


def hardened_of(folder: Path, manifest: Mapping[str, Any]) -> tuple[Path, str | None]:
    """The hardened weights, and the spec of the model with them, if there is one: where the folder is now."""
    training = manifest["training"]
    file, spec = folder / Path(training["weights"]).name, training["spec"]
    return file, None if spec is None else spec.replace(f"weights={training['weights']}", f"weights={file}", 1)


def side(folder: Path, which: str) -> Side:
    """The audit before or after, ready to be compared.

    Raises:
        RequestError: there is none yet, or it is damaged.
    """
    run = Run.open(folder / which)
    (model,) = run.manifest["models"]
    return Side(run=str(folder / which), manifest=run.manifest, records=run.records(), model=str(model["name"]))
