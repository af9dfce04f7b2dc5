"""RobustBench's model_info: one JSON file for a model, in the folders of its data set and threat model.

The form is that of https://github.com/RobustBench/robustbench, model_info: accuracies are texts of two decimals, in per cent, and
`eps` is a text. `autoattack_acc` is what AutoAttack's standard version leaves, so it is null for other attacks, whose figure
stands as `external`, as the leaderboard calls evaluations that are not its own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from brinell.analysis.results import ModelResult, Rate
from brinell.core.errors import RequestError, option
from brinell.engine.cascade import CASCADES
from brinell.engine.eps_grid import parse_eps
from brinell.studies.export.about import told

PAPER = ("link", "name", "authors", "venue", "additional_data", "architecture", "reported")
"""Fields that a run cannot know."""
THREATS = {"linf": "Linf", "l2": "L2"}
TESTED = {"cifar10": 10_000, "cifar100": 10_000, "imagenet": 5_000}
"""Data sets of the leaderboard, and the test images on which its entries are compared."""
FLAGS = {"true": True, "false": False}


def entry(
    result: ModelResult, manifest: Mapping[str, Any], eps: str | None, about: Sequence[str]
) -> tuple[str, str, tuple[str, ...]]:
    """The path of an entry below model_info, its text, and what is missing from it.

    Args:
        result: the model's figures.
        manifest: of its run.
        eps: the budget; the largest where none is named.
        about: what the paper says, as KEY=VALUE.

    Raises:
        RequestError: a norm, criterion or eps that the leaderboard has not, or a field that it has not.
    """
    if result.distance not in THREATS:
        raise RequestError(f"RobustBench has Linf and L2, and the run is in {result.distance}: there is no entry to make of it")
    if result.criterion != "misclassified":
        raise RequestError(
            f"RobustBench counts any wrong class, and the run is {result.criterion}: audit without {option('targeted')}"
        )
    said = _about(about)
    data = _dataset(str(manifest["data"]["name"]))
    text, robust = _budget(result, eps)
    facts: Mapping[str, Any] = next(one for one in manifest["models"] if one["name"] == result.model)
    standard = tuple(stage["name"] for stage in manifest["stages"]) == CASCADES["standard"] and result.complete
    failed = [check.code for check in result.checks if check.passed is False]
    figure, missing = _percent(robust), []
    found = {
        "link": None,
        "name": None,
        "authors": None,
        "additional_data": None,
        "number_forward_passes": max(int(stage.get("eot", 1)) for stage in manifest["stages"]),
        "dataset": data,
        "venue": None,
        "architecture": facts.get("architecture"),
        "eps": text,
        "clean_acc": _percent(result.clean_accuracy),
        "reported": None,
        "autoattack_acc": figure if standard else None,
        "unreliable": bool(failed),
        "footnote": None,
    } | said
    if not standard:
        found["external"] = figure
        missing.append("autoattack_acc is left out, since the attacks are not AutoAttack's: audit with --attack standard")
    if data not in TESTED:
        missing.append(f"{data} is none of RobustBench's data sets, {', '.join(TESTED)}")
    elif result.n != TESTED[data]:
        missing.append(f"entries for {data} are compared on {TESTED[data]:,} test images, and this run has {result.n:,}")
    if unknown := [key for key in PAPER if found[key] is None]:
        missing.append(f"null because the run cannot know it: {', '.join(unknown)}; give each as --about KEY=VALUE")
    if failed:
        missing.append(f"unreliable is true, since checks failed: {', '.join(failed)}")
    path = f"{data}/{THREATS[result.distance]}/{result.model.replace('/', '-')}.json"
    return path, json.dumps(found, indent=2, ensure_ascii=False) + "\n", tuple(missing)


def _about(about: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in told(about, (*PAPER, "footnote")).items():
        if key == "additional_data" and value not in FLAGS:
            raise RequestError(f"additional_data is {value!r}: it is true or false")
        found[key] = FLAGS[value] if key == "additional_data" else value
    return found


def _dataset(name: str) -> str:
    """The name of the data as the leaderboard has it, where it is one of its data sets."""
    plain = name.lower().replace("-", "").replace("_", "")
    return next((one for one in sorted(TESTED, key=len, reverse=True) if plain.startswith(one)), name)


def _budget(result: ModelResult, eps: str | None) -> tuple[str, Rate]:
    """A budget above 0 as it is written, and the robust accuracy there."""
    if eps is None:
        return result.eps_text[-1], result.robust_accuracy[-1]
    wanted = parse_eps(eps).values[0]
    for rate in result.robust_accuracy:
        if abs(rate.eps - wanted) <= 1e-9 * max(1.0, wanted):
            return eps, rate
    raise RequestError(f"the run has no eps {eps}: it has {', '.join(result.eps_text)}")


def _percent(rate: Rate) -> str | None:
    return None if rate.value is None else f"{100 * rate.value:.2f}"
