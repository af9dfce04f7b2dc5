"""What a repository of the Hugging Face hub gets: evaluation results, the robustness of each model
as a field that programs read, and the section of its model card; of a benchmark set its dataset
card.

Nothing leaves this machine unless `push` names a repository.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from brinell.analysis.results import AuditResult
from brinell.analysis.robustness_field import field_of
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
        files[f"{FIELDS}/{model.name.replace('/', '-')}.json"] = (
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
            f"the hub did not take the files ({type(error).__name__}: {one_line(error, most=160)}): they "
            f"are in {folder}; log in by `hf auth login`, and see that {repository} exists"
        ) from None
    return str(answer)
