"""Entries of leaderboards, one file for each model: of the Hugging Face hub, and of RobustBench.

The hub takes a YAML file, in the folder .eval_results of the repository of the model.

The form is that of https://huggingface.co/docs/hub/eval-results: a list of entries, each with the dataset (which must be a
benchmark of the hub), a value, and where it comes from. Texts are written as JSON, which YAML reads.

RobustBench takes a JSON file of its model_info, in the folders of its data set and threat model.
The form is that of https://github.com/RobustBench/robustbench, model_info: accuracies are texts of two decimals, in per cent, and
`eps` is a text. `autoattack_acc` is what AutoAttack's standard version leaves, so it is null for other attacks, whose figure
stands as `external`, as the leaderboard calls evaluations that are not its own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from brinell.analysis.results import ModelResult, Rate
from brinell.core.errors import RequestError, option
from brinell.engine.attack_names import CASCADES
from brinell.engine.eps_grid import parse_eps


def parse_about(details: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """Values by key from texts KEY=VALUE: facts about a run that only its author knows.

    Raises:
        RequestError: another form, or a key that is none of `keys`.
    """
    values: dict[str, str] = {}
    for pair in details:
        key, equals, value = pair.partition("=")
        if not equals or key not in keys:
            raise RequestError(f"about is {pair!r}: write KEY=VALUE with a KEY of {', '.join(keys)}")
        values[key] = value
    return values


HUB_KEYS = ("dataset", "revision", "task", "url", "source", "user")
"""The benchmark on the hub and its revision, the name of the task, and the address, name and user of what is cited."""


def hub_entry(result: ModelResult, manifest: Mapping[str, Any], details: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """The path of a model's file, its text, and what is missing from it.

    Args:
        result: the model's figures.
        manifest: of its run.
        details: what the run cannot know, as KEY=VALUE with a KEY of `HUB_KEYS`.

    Raises:
        RequestError: no benchmark is named, or a key that is unknown.
    """
    stated = parse_about(details, HUB_KEYS)
    if not stated.get("dataset"):
        raise RequestError(f"an entry of the hub names a benchmark there: give it as {option('about', 'dataset=OWNER/NAME')}")
    task = stated.get("task", "robustness")
    lines: list[str] = []
    figures = [("clean", "clean accuracy", result.clean_accuracy)]
    for text, rate in zip(result.eps_text, result.robust_accuracy, strict=True):
        if rate.eps > 0:
            figures.append((f"{result.distance}-{text.replace('/', '-')}", f"robust accuracy, {result.distance} {text}", rate))
    for name, description, rate in figures:
        if rate.value is None or rate.low is None or rate.high is None:
            continue
        dataset = [("id", stated["dataset"]), ("task_id", f"{task}_{name}"), ("revision", stated.get("revision"))]
        source = [(key, stated.get(key if key != "name" else "source")) for key in ("url", "name", "user")]
        ends = f"95 % interval {100 * rate.low:.2f} to {100 * rate.high:.2f}"
        lines += ["- dataset:", *_pairs(dataset, 4), f"  value: {100 * rate.value:.2f}"]
        if manifest.get("finished"):
            lines.append(f"  date: {json.dumps(str(manifest['finished']))}")
        if stated.get("url"):
            lines += ["  source:", *_pairs(source, 4)]
        lines.append(f"  notes: {json.dumps(f'{description}, {rate.n} samples, {ends}, Brinell', ensure_ascii=False)}")
    missing = [] if stated.get("url") else ["no source is cited: give --about url=ADDRESS of the report or the run"]
    if result.caveat:
        missing.append(f"the entries do not say: {result.caveat}")
    return f".eval_results/{result.model.replace('/', '-')}.yaml", "\n".join(lines) + "\n", tuple(missing)


def _pairs(pairs: Sequence[tuple[str, str | None]], indent: int) -> list[str]:
    """Lines of YAML for the pairs that have a value."""
    return [f"{' ' * indent}{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in pairs if value]


PAPER = ("link", "name", "authors", "venue", "additional_data", "architecture", "reported")
"""Fields that a run cannot know."""
THREATS = {"linf": "Linf", "l2": "L2"}
TESTED = {"cifar10": 10_000, "cifar100": 10_000, "imagenet": 5_000}
"""Data sets of the leaderboard, and the test images on which its entries are compared."""
FLAGS = {"true": True, "false": False}


def robustbench_entry(
    result: ModelResult, manifest: Mapping[str, Any], eps: str | None, details: Sequence[str]
) -> tuple[str, str, tuple[str, ...]]:
    """The path of an entry below model_info, its text, and what is missing from it.

    Args:
        result: the model's figures.
        manifest: of its run.
        eps: the budget; the largest where none is named.
        details: what the paper says, as KEY=VALUE.

    Raises:
        RequestError: a norm, criterion or eps that the leaderboard has not, or a field that it has not.
    """
    if result.distance not in THREATS:
        raise RequestError(f"RobustBench has Linf and L2, and the run is in {result.distance}: there is no entry to make of it")
    if result.criterion != "misclassified":
        raise RequestError(
            f"RobustBench counts any wrong class, and the run is {result.criterion}: audit without {option('targeted')}"
        )
    stated = _about(details)
    data = _dataset(str(manifest["data"]["name"]))
    text, robust = _budget(result, eps)
    facts: Mapping[str, Any] = next(model for model in manifest["models"] if model["name"] == result.model)
    standard = tuple(stage["name"] for stage in manifest["stages"]) == CASCADES["standard"] and result.complete
    failed = [check.code for check in result.checks if check.passed is False]
    figure, missing = _percent(robust), []
    fields = {
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
    } | stated
    if not standard:
        fields["external"] = figure
        missing.append("autoattack_acc is left out, since the attacks are not AutoAttack's: audit with --attack standard")
    if data not in TESTED:
        missing.append(f"{data} is none of RobustBench's data sets, {', '.join(TESTED)}")
    elif result.n != TESTED[data]:
        missing.append(f"entries for {data} are compared on {TESTED[data]:,} test images, and this run has {result.n:,}")
    if unknown := [key for key in PAPER if fields[key] is None]:
        missing.append(f"null because the run cannot know it: {', '.join(unknown)}; give each as --about KEY=VALUE")
    if failed:
        missing.append(f"unreliable is true, since checks failed: {', '.join(failed)}")
    path = f"{data}/{THREATS[result.distance]}/{result.model.replace('/', '-')}.json"
    return path, json.dumps(fields, indent=2, ensure_ascii=False) + "\n", tuple(missing)


def _about(details: Sequence[str]) -> dict[str, Any]:
    """Fields of the paper, checked."""
    values: dict[str, Any] = {}
    for key, value in parse_about(details, (*PAPER, "footnote")).items():
        if key == "additional_data" and value not in FLAGS:
            raise RequestError(f"additional_data is {value!r}: it is true or false")
        values[key] = FLAGS[value] if key == "additional_data" else value
    return values


def _dataset(name: str) -> str:
    """The name of the data as the leaderboard has it, where it is one of its data sets."""
    plain = name.lower().replace("-", "").replace("_", "")
    return next((dataset for dataset in sorted(TESTED, key=len, reverse=True) if plain.startswith(dataset)), name)


def _budget(result: ModelResult, eps: str | None) -> tuple[str, Rate]:
    """A budget above 0 as it is written, and the robust accuracy there."""
    if eps is None:
        return result.eps_text[-1], result.robust_accuracy[-1]
    requested = parse_eps(eps).values[0]
    for rate in result.robust_accuracy:
        if abs(rate.eps - requested) <= 1e-9 * max(1.0, requested):
            return eps, rate
    raise RequestError(f"the run has no eps {eps}: it has {', '.join(result.eps_text)}")


def _percent(rate: Rate) -> str | None:
    """A rate in percent with two digits; None if it is not known."""
    return None if rate.value is None else f"{100 * rate.value:.2f}"
