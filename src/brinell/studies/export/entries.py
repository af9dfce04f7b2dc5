"""Entries of leaderboards, one file for each model: of the Hugging Face hub, and of RobustBench.

The hub takes a YAML file, in the folder .eval_results of the repository of the model.

The form is that of https://huggingface.co/docs/hub/eval-results: a list of entries, each with the
dataset (which must be a benchmark of the hub), a value, and where it comes from. Texts are written
as JSON, which YAML reads.

RobustBench takes a JSON file of its model_info, in the folders of its data set and threat model.
The form is that of https://github.com/RobustBench/robustbench, model_info: accuracies are texts of
two decimals, in per cent, and `eps` is a text. `autoattack_acc` is what AutoAttack's standard
version leaves, so it is null for other attacks, whose figure stands as `external`, as the
leaderboard calls evaluations that are not its own.
"""

import json
from collections.abc import Mapping
from typing import Any

from brinell.analysis.results import ModelResult, Rate
from brinell.core.errors import RequestError, option
from brinell.engine.attack_names import CASCADES


def hub_entry(result: ModelResult, manifest: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """The path of a model's file, its text, and what is missing from it."""
    lines: list[str] = []
    figures = [("clean", "clean accuracy", result.clean_accuracy)]
    for text, rate in zip(result.eps_text, result.robust_accuracy, strict=True):
        if rate.eps > 0:
            figures.append(
                (
                    f"{result.distance}-{text.replace('/', '-')}",
                    f"robust accuracy, {result.distance} {text}",
                    rate,
                )
            )

    for name, description, rate in figures:
        if rate.value is None or rate.low is None or rate.high is None:
            continue
        interval = f"95 % interval {100 * rate.low:.2f} to {100 * rate.high:.2f}"
        notes = json.dumps(
            f"{description}, {rate.n} samples, {interval}, Brinell", ensure_ascii=False
        )
        lines += [
            "- dataset:",
            "    id: null",
            f"    task_id: {json.dumps(f'robustness_{name}')}",
            f"  value: {100 * rate.value:.2f}",
            *(
                [f"  date: {json.dumps(str(manifest['finished']))}"]
                if manifest.get("finished")
                else []
            ),
            "  source:",
            "    url: null",
            f"  notes: {notes}",
        ]

    missing = [
        "null because the run cannot know it: the dataset's id, which is a "
        "benchmark of the hub, and the address of the source"
    ]
    if result.caveat:
        missing.append(f"the entries do not say: {result.caveat}")
    return (
        f".eval_results/{result.name.replace('/', '-')}.yaml",
        "\n".join(lines) + "\n",
        tuple(missing),
    )


PAPER = ("link", "name", "authors", "venue", "additional_data", "architecture", "reported")
"""Fields that a run cannot know."""
THREATS = {"linf": "Linf", "l2": "L2"}
TESTED = {"cifar10": 10_000, "cifar100": 10_000, "imagenet": 5_000}
"""Data sets of the leaderboard, and the test images on which its entries are compared."""


def robustbench_entry(
    result: ModelResult, manifest: Mapping[str, Any]
) -> tuple[str, str, tuple[str, ...]]:
    """The path of an entry below model_info, its text, and what is missing from it."""
    if result.distance not in THREATS:
        raise RequestError(
            f"RobustBench has Linf and L2, and the run is in {result.distance}: "
            "there is no entry to make of it"
        )
    if result.criterion != "misclassified":
        raise RequestError(
            "RobustBench counts any wrong class, and the run is "
            f"{result.criterion}: audit without {option('targeted')}"
        )

    data = _test_set(str(manifest["data"]["name"]))
    facts: Mapping[str, Any] = next(
        model for model in manifest["models"] if model["name"] == result.name
    )
    # Only a finished cascade of AutoAttack's standard version has its figure.
    standard = (
        tuple(stage["name"] for stage in manifest["stages"]) == CASCADES["standard"]
        and result.complete
    )
    failed = [check.code for check in result.checks if check.passed is False]
    figure = _percent(result.robust_accuracy[-1])  # at the largest budget, which `eps` names
    missing = []
    fields = {
        **dict.fromkeys(PAPER),  # null until somebody fills them in
        "number_forward_passes": max(int(stage.get("eot", 1)) for stage in manifest["stages"]),
        "dataset": data,
        "architecture": facts.get("architecture"),
        "eps": result.eps_text[-1],
        "clean_acc": _percent(result.clean_accuracy),
        "autoattack_acc": figure if standard else None,
        "unreliable": bool(failed),
        "footnote": None,
    }

    if not standard:
        fields["external"] = figure
        missing.append(
            "autoattack_acc is left out, since the attacks are not AutoAttack's: "
            "audit with --attack standard"
        )
    if data not in TESTED:
        missing.append(f"{data} is none of RobustBench's data sets, {', '.join(TESTED)}")
    elif result.n != TESTED[data]:
        missing.append(
            f"entries for {data} are compared on {TESTED[data]:,} test images, "
            f"and this run has {result.n:,}"
        )

    if unknown := [key for key in PAPER if fields[key] is None]:
        missing.append(f"null because the run cannot know it: {', '.join(unknown)}; fill it in")
    if failed:
        missing.append(f"unreliable is true, since checks failed: {', '.join(failed)}")
    path = f"{data}/{THREATS[result.distance]}/{result.name.replace('/', '-')}.json"
    return path, json.dumps(fields, indent=2, ensure_ascii=False) + "\n", tuple(missing)


def _test_set(name: str) -> str:
    """The data set of RobustBench whose name data begin with; their own name without one."""
    plain = name.lower().replace("-", "").replace("_", "")
    # The longest first: cifar100 begins like cifar10.
    longest_first = sorted(TESTED, key=len, reverse=True)
    return next((dataset for dataset in longest_first if plain.startswith(dataset)), name)


def _percent(rate: Rate) -> str | None:
    return None if rate.value is None else f"{100 * rate.value:.2f}"
