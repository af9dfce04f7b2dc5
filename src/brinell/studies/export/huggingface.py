"""Evaluation results of the Hugging Face hub: a YAML file for each model, for the folder .eval_results of its repository.

The form is that of https://huggingface.co/docs/hub/eval-results: a list of entries, each with the dataset (which must be a
benchmark of the hub), a value, and where it comes from. Texts are written as JSON, which YAML reads.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from brinell.analysis.results import ModelResult
from brinell.core.errors import RequestError, option
from brinell.studies.export.about import told

KEYS = ("dataset", "revision", "task", "url", "source", "user")
"""The benchmark on the hub and its revision, the name of the task, and the address, name and user of what is cited."""


def results_file(result: ModelResult, manifest: Mapping[str, Any], about: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """The path of a model's file, its text, and what is missing from it.

    Args:
        result: the model's figures.
        manifest: of its run.
        about: what the run cannot know, as KEY=VALUE with a KEY of `KEYS`.

    Raises:
        RequestError: no benchmark is named, or a key that is unknown.
    """
    said = told(about, KEYS)
    if not said.get("dataset"):
        raise RequestError(f"an entry of the hub names a benchmark there: give it as {option('about', 'dataset=OWNER/NAME')}")
    task = said.get("task", "robustness")
    lines: list[str] = []
    figures = [("clean", "clean accuracy", result.clean_accuracy)]
    for text, rate in zip(result.eps_text, result.robust_accuracy, strict=True):
        if rate.eps > 0:
            figures.append((f"{result.distance}-{text.replace('/', '-')}", f"robust accuracy, {result.distance} {text}", rate))
    for name, what, rate in figures:
        if rate.value is None or rate.low is None or rate.high is None:
            continue
        dataset = [("id", said["dataset"]), ("task_id", f"{task}_{name}"), ("revision", said.get("revision"))]
        source = [(key, said.get(key if key != "name" else "source")) for key in ("url", "name", "user")]
        ends = f"95 % interval {100 * rate.low:.2f} to {100 * rate.high:.2f}"
        lines += ["- dataset:", *_pairs(dataset, 4), f"  value: {100 * rate.value:.2f}"]
        if manifest.get("finished"):
            lines.append(f"  date: {json.dumps(str(manifest['finished']))}")
        if said.get("url"):
            lines += ["  source:", *_pairs(source, 4)]
        lines.append(f"  notes: {json.dumps(f'{what}, {rate.n} samples, {ends}, Brinell', ensure_ascii=False)}")
    missing = [] if said.get("url") else ["no source is cited: give --about url=ADDRESS of the report or the run"]
    if result.caveat:
        missing.append(f"the entries do not say that {result.caveat}")
    return f".eval_results/{result.model.replace('/', '-')}.yaml", "\n".join(lines) + "\n", tuple(missing)


def _pairs(pairs: Sequence[tuple[str, str | None]], indent: int) -> list[str]:
    return [f"{' ' * indent}{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in pairs if value]
