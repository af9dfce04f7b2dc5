"""«Every Eval Ever» records: one JSON file for each model, and a line for each sample and budget.

The form is schema 0.3.0 of the package every-eval-ever (arXiv 2606.14516), for evaluations and for instances. Its inputs are
texts, so a sample is named by its position in the data; answers are names of classes.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from brinell.analysis.grid import RIGHT, UNJUDGED, grid, worst_case
from brinell.analysis.results import ModelResult, Rate
from brinell.analysis.robust_accuracy import class_name, class_names, judging
from brinell.core.record import CLEAN, Outcome, Records
from brinell.studies.export.entries import parse_about

SCHEMA = "0.3.0"
KEYS = ("organization", "relationship", "developer", "id", "availability")
"""Who evaluated and in which relationship to the model, who made it, its id, and whether its weights are open."""
RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")


def record(
    result: ModelResult, manifest: Mapping[str, Any], records: Records, about: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """The files of one model by their paths, and what is missing from them.

    Args:
        result: the model's figures.
        manifest: of its run.
        records: the rows of the run.
        about: what the run cannot know, as KEY=VALUE with a KEY of `KEYS`.

    Raises:
        RequestError: a key that is unknown.
    """
    stated = parse_about(about, KEYS)
    name, data = result.model.replace("/", "-"), str(manifest["data"]["name"]).replace("/", "-")
    model = stated.get("id", name)
    stamp = str(_seconds(str(manifest.get("finished") or manifest["created"])))
    evaluation = f"{data}/{model}/{stamp}"
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _samples(result, manifest, records, evaluation, model))
    folder = f"data/{data}/{stated.get('developer', 'unknown')}/{name}"
    # The form wants a random UUID; one of the evaluation's own gives the same files for the same run.
    file = str(uuid.UUID(bytes=hashlib.blake2b(evaluation.encode(), digest_size=16).digest(), version=4))
    relationship = stated.get("relationship", "other")
    evaluation_record: dict[str, Any] = {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": stamp,
        "retrieved_timestamp": stamp,
        "source_metadata": {
            "source_name": "Brinell",
            "source_type": "evaluation_run",
            "source_organization_name": stated.get("organization", "unknown"),
            "evaluator_relationship": relationship if relationship in RELATIONSHIPS else "other",
        },
        "eval_library": {"name": "brinell", "version": str(manifest["brinell"])},
        "model_info": _model(result, manifest, stated, model),
        "evaluation_results": [_result(*figure, result, manifest) for figure in _figures(result)],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": f"{folder}/{file}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines.encode()).hexdigest(),
            "total_rows": lines.count("\n"),
        },
    }
    text = json.dumps(evaluation_record, indent=2, ensure_ascii=False) + "\n"
    unstated = [key for key in KEYS if key not in stated]
    missing = [f"unknown to the run: {', '.join(unstated)}; give each as --about KEY=VALUE"] if unstated else []
    return {f"{folder}/{file}.json": text, f"{folder}/{file}_samples.jsonl": lines}, missing


def _seconds(when: str) -> int:
    """Seconds since 1970 of a time in ISO format."""
    return int(datetime.fromisoformat(when).timestamp())


def _figures(result: ModelResult) -> list[tuple[str, Rate, str]]:
    """Name, rate and budget of every figure that is known."""
    figures = [("clean-accuracy", result.clean_accuracy, "0")]
    pairs = zip(result.eps_text, result.robust_accuracy, strict=True)
    figures += [(f"robust-accuracy {result.distance} {text}", rate, text) for text, rate in pairs if rate.eps > 0]
    return [figure for figure in figures if figure[1].value is not None]


def _model(result: ModelResult, manifest: Mapping[str, Any], stated: Mapping[str, str], model: str) -> dict[str, Any]:
    facts = next(entry for entry in manifest["models"] if entry["name"] == result.model)
    details = {key: str(facts[key]) for key in ("digest", "architecture", "parameters", "access") if facts.get(key) is not None}
    availability = stated.get("availability", "unknown")
    details_of_model = {"deployment_type": "self_deployed", "model_availability": availability, **details}
    return {"name": result.model, "id": model, "additional_details": details_of_model} | (
        {"developer": stated["developer"]} if "developer" in stated else {}
    )


def _result(name: str, rate: Rate, text: str, result: ModelResult, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """One figure with its metric and interval."""
    attacks = ", ".join(stage.title for stage in result.stages if stage.skipped is None)
    description = "share of samples that are classified correctly" + (f" under {attacks}" if text != "0" else "")
    return {
        "evaluation_result_id": name,
        "evaluation_name": name,
        "source_data": {
            "dataset_name": str(manifest["data"]["name"]),
            "source_type": "other",
            "additional_details": {"digest": str(manifest["data"]["digest"]), "samples": str(rate.n)},
        },
        "metric_config": {
            "evaluation_description": description,
            "metric_id": "accuracy" if text == "0" else "robust_accuracy",
            "metric_kind": "accuracy",
            "metric_unit": "proportion",
            "metric_parameters": {"norm": result.distance, "eps": rate.eps, "criterion": result.criterion},
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": rate.value,
            "details": {"verdict": result.verdict},
            "uncertainty": {
                "confidence_interval": {"lower": rate.low, "upper": rate.high, "confidence_level": 0.95, "method": "Wilson"},
                "num_samples": rate.n,
            },
        },
    }


def _samples(
    result: ModelResult, manifest: Mapping[str, Any], records: Records, evaluation: str, model: str
) -> Iterator[dict[str, Any]]:
    """A line for each sample and figure: the answer to the clean input, or to the first adversarial one within eps."""
    cells, names = grid(records, manifest, result.model), class_names(manifest)
    worst = worst_case(cells, judging(cells))
    rows_of_model = records.model == result.model
    first = rows_of_model & (records.attack == CLEAN)
    clean = dict(zip(records.sample_id[first].tolist(), records.clean_pred[first].tolist(), strict=True))
    fooled = np.flatnonzero(rows_of_model & (records.outcome == Outcome.FOOLED))
    order = fooled[np.argsort(records.eps[fooled], kind="stable")]
    adversarial: dict[int, list[tuple[float, int]]] = {}
    for row in order.tolist():
        adversarial.setdefault(int(records.sample_id[row]), []).append((float(records.eps[row]), int(records.adv_pred[row])))
    for name, rate, text in _figures(result):
        column = None if text == "0" else int(np.argmin(np.abs(cells.eps - rate.eps)))
        states = cells.clean if column is None else worst[:, column]
        for sample, label, state in zip(cells.ids.tolist(), cells.labels.tolist(), states.tolist(), strict=True):
            if state == UNJUDGED:
                continue
            within_eps = [
                answer for eps, answer in adversarial.get(sample, []) if column is not None and eps <= rate.eps * (1 + 1e-9)
            ]
            answer = class_name(names, within_eps[0] if within_eps else clean[sample])
            right = state == RIGHT
            yield {
                "schema_version": SCHEMA,
                "evaluation_id": evaluation,
                "model_id": model,
                "evaluation_name": name,
                "evaluation_result_id": name,
                "sample_id": str(sample),
                "interaction_type": "single_turn",
                "input": {"raw": f"sample {sample} of {manifest['data']['name']}", "reference": [class_name(names, label)]},
                "output": {"raw": [answer]},
                "answer_attribution": [
                    {
                        "turn_idx": 0,
                        "source": "output.raw",
                        "extracted_value": answer,
                        "extraction_method": "argmax",
                        "is_terminal": True,
                    }
                ],
                "evaluation": {"score": float(right), "is_correct": bool(right)},
            }
