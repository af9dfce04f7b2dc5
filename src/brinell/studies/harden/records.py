"""The folder of a hardening.

harden.toml  harden.json        the request; what was trained, how it went, check by check
<model>-hardened.safetensors    the hardened weights, a state dict
checkpoints/last.safetensors    everything that the training needs to go on
before/  after/                 the audits, each a run folder like any other
tables/*.csv  report.html
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brinell.analysis.compare import Side
from brinell.core import facts
from brinell.core.form import Count, Number
from brinell.core.settings import MOST_COUNT
from brinell.store.folder import Layout
from brinell.store.run import Run

_CHECK = {
    **{name: Count(0, MOST_COUNT) for name in ("n", "clean", "seen", "pgd", "robust")},
    **{"step": Count(), "seconds": Number(0), "recipe": str, "eps": Number(0), "loss": (float, None), "good": bool},
}
_TRAINING = {
    **{"weights?": str, "spec?": (str, None), "recipe?": str, "seconds?": Number(0), "curve?": [_CHECK]},
    **{"step?": Count(), "forwards?": Count(), "backwards?": Count(), "events?": list},
}
FORM: dict[str, Any] = {
    **facts.HEAD,
    "cell": str,
    "model": facts.MODEL,
    "data": facts.DATA,
    "train": facts.DATA,
    "trained_on": Count(),
    "validation": Count(),
    "eps": Number(0),
    "eps_text": str,
    "training": _TRAINING,
}
"""What the manifest says; `training` is empty until the network is trained."""
LAYOUT = Layout(
    what="hardening",
    verb="brinell harden",
    version=1,
    version_key="format",
    manifest="harden.json",
    request="harden.toml",
    form=FORM,
    misfit=lambda manifest: facts.misfit(manifest["data"]) or facts.misfit(manifest["train"]),
    folders=(),
)
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


def manifest(folder: Path) -> dict[str, Any]:
    """What was trained and how it went.

    Raises:
        RequestError: no hardening there, or a damaged manifest.
    """
    return LAYOUT.open(folder)
