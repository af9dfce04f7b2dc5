"""What a repository of the Hugging Face hub gets: evaluation results, the robustness of each model as
a field that programs read, and the section of its model card; of a benchmark set its dataset card.

Nothing leaves this machine unless `push` names a repository.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from brinell.analysis.folder_result import Result
from brinell.analysis.results import AuditResult, ModelResult, Rate
from brinell.core.errors import RequestError, one_line
from brinell.reports.markdown import markdown
from brinell.studies import register
from brinell.studies.export.entries import hub_entry

SECTION = "ROBUSTNESS.md"
"""The section of the model card."""
CARD = "README.md"
"""The card of a benchmark set, which is in its folder."""
FIELDS = "robustness"
"""The folder of the fields."""


class RobustnessField(Result):
    """The robustness of a model at one budget after another, as `export --to hub` writes it."""

    brinell: Literal["0.1"] = "0.1"
    """The version of this form."""
    model: str
    """Name of the model in the run."""
    model_digest: str
    """Digest of its weights."""
    data: str
    """Name of the data."""
    data_digest: str
    """Digest of the data."""
    distance: str
    """Distance in which budgets are measured."""
    eps_text: list[str]
    """Budgets as they were asked for."""
    attacks: str
    """The attacks that ran."""
    clean_accuracy: Rate
    """Share of the untouched inputs on which the model is right."""
    robust_accuracy: list[Rate]
    """Robust accuracy at each budget: bounded from above, since attacks may miss examples."""
    certified: list[Rate] | None
    """Share that is proven robust at each budget; null without proofs."""
    failed_checks: list[str]
    """Codes of the checks that failed: with any, the robust accuracy may be lower."""
    complete: bool
    """False if the run stopped early."""
    rows: dict[str, str]
    """Digest of each file of rows in the run folder."""
    address: str | None = None
    """Where the run folder is published: fill it in."""


def field_of(model: ModelResult, manifest: Mapping[str, Any]) -> RobustnessField:
    """The field of a model of a run."""
    facts = next(entry for entry in manifest["models"] if entry["name"] == model.model)
    inventory = manifest.get("files", {})
    return RobustnessField(
        model=model.model,
        model_digest=facts["digest"],
        data=manifest["data"]["name"],
        data_digest=manifest["data"]["digest"],
        distance=model.distance,
        eps_text=model.eps_text,
        attacks=model.attacks,
        clean_accuracy=model.clean_accuracy,
        robust_accuracy=model.robust_accuracy,
        certified=model.certified,
        failed_checks=[check.code for check in model.checks if check.passed is False],
        complete=model.complete,
        rows={name: value for name, value in inventory.items() if name.endswith(".parquet")},
    )


def files_of(
    result: AuditResult, manifest: Mapping[str, Any], folder: Path
) -> tuple[dict[str, str], list[str]]:
    """The files for the repositories of the models of a run, by path, and notes."""
    files: dict[str, str] = {}
    notes: list[str] = []
    for model in result.models:
        path, text, missing = hub_entry(model, manifest)
        field = field_of(model, manifest)
        files[path] = text
        files[f"{FIELDS}/{model.model.replace('/', '-')}.json"] = (
            json.dumps(field.payload(), indent=1, ensure_ascii=False) + "\n"
        )
        notes += missing
    files[SECTION] = markdown(register.open_folder(folder).report())
    return files, list(dict.fromkeys(notes))


def push(repository: str, folder: Path, kind: str, names: Sequence[str] | None) -> str:
    """Upload files of a folder to a repository; returns its address.

    Args:
        repository: OWNER/NAME.
        folder: the folder of the files.
        kind: model or dataset.
        names: the files; None for the whole folder.

    Raises:
        RequestError: huggingface_hub is not installed, or the hub refuses.
    """
    if find_spec("huggingface_hub") is None:
        raise RequestError(
            "huggingface_hub is not installed, which push needs: pip install 'brinell[hf]'"
        )
    import huggingface_hub

    try:
        answer = huggingface_hub.HfApi().upload_folder(
            repo_id=repository,
            folder_path=folder,
            repo_type=kind,
            allow_patterns=None if names is None else list(names),
            commit_message="Robustness measured by Brinell",
        )
    except Exception as error:
        raise RequestError(
            f"the hub did not take the files ({type(error).__name__}: {one_line(error, 160)}): they "
            f"are in {folder}; log in by `hf auth login`, and see that {repository} exists"
        ) from None
    return str(answer)
