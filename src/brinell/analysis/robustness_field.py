"""The robustness of a model as a field that programs read, beside its weights: `export --to hub`
writes it, and `verify --field` compares it with the run.
"""

from collections.abc import Mapping
from typing import Any, Literal

from brinell.analysis.folder_result import Result
from brinell.analysis.results import ModelResult, Rate


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
    facts = next(entry for entry in manifest["models"] if entry["name"] == model.name)
    inventory = manifest.get("files", {})

    # Only the rows are named: a reader who has them can compute everything else again.
    return RobustnessField(
        model=model.name,
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


def differing_keys(field: Mapping[str, Any], expected: RobustnessField) -> list[str]:
    """The keys of a field that do not say what the run says; its address is up to its author."""
    values = expected.payload()
    foreign = [key for key in field if key not in values]
    return foreign + [
        key for key, value in values.items() if key != "address" and field.get(key) != value
    ]
