"""Documents a benchmark set: README.md, the data card of the Hugging Face hub, and croissant.json (Croissant 1.0)."""

import json
import math
import re
import statistics
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np
from markupsafe import Markup

from brinell.analysis.folder_result import FolderResult, Result
from brinell.core.data import Task
from brinell.core.record import Column
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.studies.benchmark.columns import COLUMNS, PATCH, SAMPLES, columns_of_task, samples_of_task
from brinell.studies.benchmark.records import SPLIT, BenchmarkSet, Form

PAPERS = "arXiv 2310.18626 and 2403.18985"
CONTEXT = json.loads((resources.files(__package__) / "croissant_context.json").read_text(encoding="utf-8"))
"""The context that every Croissant 1.0 file begins with."""
CROISSANT = {
    "int32": "sc:Integer",
    "int64": "sc:Integer",
    "label": "sc:Integer",
    "float32": "sc:Float",
    "float64": "sc:Float",
    "bool": "sc:Boolean",
    "string": "sc:Text",
}
ANSWERS, WRONG = ("prediction", "prediction_quantised"), ("wrong", "wrong_quantised")
"""Columns of the answers to the exact inputs and to those in 8 bits: predicted classes, or counts of wrong pixels or objects."""
CATEGORIES = {None: "image-classification", "segmentation": "image-segmentation", "detection": "object-detection"}
"""Categories of the hub, by task."""
SIZES = ((1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"), (math.inf, "n>1M"))
"""Size categories of the hub, each with the number of rows below which it applies."""


class LevelResult(Result):
    """Figures of a benchmark set at one level."""

    level: float
    """Multiple of the L2 distance of the adversarial example, which is 1; 0 is the clean input."""
    inputs: int
    """The number of inputs in the set."""
    unreached: int
    """Samples for which the bounds of the data do not allow this multiple."""
    accuracy: float | None
    """Share of the inputs that the model classifies correctly, or of the pixels or objects in them that it gets right; null
    without inputs."""
    accuracy_quantised: float | None
    """The same for the pictures in 8 bits; null if inputs are not rounded."""
    adversarial: float | None
    """Share of the inputs that meet the criterion."""
    median_l2: float | None
    """Median L2 distance from the clean input."""


class BenchmarkResult(FolderResult):
    """The result of `brinell benchmark`."""

    samples: int
    """The number of samples."""
    outcomes: dict[str, int]
    """Samples by outcome: reached, not_reached, misclassified, already, own_class."""
    queries: int
    """All forwards of the model, with those that recognise the kind of its answers."""
    training_queries: int | None
    """Forwards of the policy's training; null if its file does not record them."""
    median_queries_to_success: float | None
    """Median forwards until the first adversarial example, over the samples that have one."""
    median_queries_to_refined: float | None
    """Median forwards until the final adversarial example, with refinement and clean-up."""
    median_l2: float | None
    """Median L2 distance of the adversarial examples."""
    median_patches: float | None
    """Median number of distorted patches of the adversarial examples."""
    levels: tuple[LevelResult, ...]
    """All levels, clean inputs first."""


def write(folder: BenchmarkSet) -> None:
    """Write README.md and croissant.json of a complete set."""
    write_text(folder.path / "README.md", card(folder))
    write_text(folder.path / "croissant.json", json.dumps(croissant(folder), indent=1, ensure_ascii=False) + "\n")


def title(manifest: Mapping[str, Any]) -> str:
    """Title of the set."""
    return f"{manifest['data']['name']} against {manifest['model']['name']}, distorted by RLAB"


def criterion_text(criterion: Mapping[str, Any], classes: list[str]) -> str:
    """The criterion as a clause."""
    if criterion["wrong_class"] is not None:
        index = criterion["wrong_class"]
        name = classes[index] if index < len(classes) else str(index)
        return f"the probability of class {name}, which is not the true one, exceeds {criterion['wrong_above']:g}"
    if criterion["true_below"] is not None:
        return f"the model is wrong, and the probability of the true class falls below {criterion['true_below']:g}"
    return "the model is wrong" if criterion.get("text") is None else f"the criterion {criterion['text']} is met"


def figures(folder: BenchmarkSet) -> dict[str, Any]:
    """Figures of a complete set: outcomes of the samples, adversarial examples, and each level."""
    samples, manifest = folder.samples(), folder.manifest
    common = ("level", "reached", "adversarial", "l2")
    rows = folder.rows((*common, "label", *ANSWERS) if folder.form.task is None else (*common, "valid", *WRONG))
    levels = [_level_figures(rows, level) for level in (0.0, *manifest["levels"])]

    def median(name: str) -> float | None:
        """Median of a column of the samples, without empty cells; None if all are empty."""
        values = [value for value in samples[name] if value is not None]
        return float(statistics.median(values)) if values else None

    return {
        "samples": len(samples["sample_id"]),
        "outcomes": manifest["counts"],
        "queries": sum(samples["queries"]) + sum(probe["forwards"] for probe in manifest.get("probes", {}).values()),
        "training_queries": manifest["training_queries"],
        "median_queries_to_success": median("queries_to_success"),
        "median_queries_to_refined": median("queries_to_refined"),
        "median_l2": median("l2"),
        "median_patches": median("patch_count"),
        "levels": levels,
    }


def _level_figures(rows: Mapping[str, list[Any]], level: float) -> dict[str, Any]:
    """Fields of the `LevelResult` of a level."""
    index = [
        k for k, (value, reached) in enumerate(zip(rows["level"], rows["reached"], strict=True)) if value == level and reached
    ]

    def share(name: str) -> float | None:
        """Share of the rows in which a column of predictions equals the label."""
        matches = [rows[name][k] == rows["label"][k] for k in index if rows[name][k] is not None]
        return sum(matches) / len(matches) if matches else None

    def share_right(name: str) -> float | None:
        """Share of the pixels or objects that are not among the wrong ones of a column."""
        counts = [(rows["valid"][k], rows[name][k]) for k in index if rows[name][k] is not None]
        valid = sum(count for count, _ in counts)
        return 1 - sum(wrong for _, wrong in counts) / valid if valid else None

    exact, stored = map(share, ANSWERS) if "label" in rows else map(share_right, WRONG)
    return {
        "level": level,
        "inputs": len(index),
        "unreached": rows["level"].count(level) - len(index),
        "accuracy": exact,
        "accuracy_quantised": stored,
        "adversarial": sum(bool(rows["adversarial"][k]) for k in index) / len(index) if index else None,
        "median_l2": float(statistics.median([rows["l2"][k] for k in index])) if index else None,
    }


def card(folder: BenchmarkSet) -> str:
    """Text of README.md: YAML for the hub, the method, the figures and the columns."""
    summary, manifest = figures(folder), folder.manifest
    rows = sum(level["inputs"] + level["unreached"] for level in summary["levels"])
    data = manifest["data"]
    low, high = (f"{reduce(data['domain'][end]):g}" for reduce, end in ((np.min, "low"), (np.max, "high")))
    return fill(
        __package__,
        "card.md",
        {"json": _json, "without_folders": _without_folders, "text": _number_text, "share": _percent_text},
        title=title(manifest),
        form=folder.form,
        size=Markup(next(text for limit, text in SIZES if rows < limit)),
        split=SPLIT,
        papers=PAPERS,
        manifest=manifest,
        request=manifest["request"],
        policy=manifest.get("policy", {"name": manifest["request"]["policy"], "reason": "it was asked for"}),
        data=data,
        model=manifest["model"],
        cap="without a cap on the distance" if manifest["eps"] is None else f"at an L2 distance of at most {manifest['eps']:g}",
        criterion=criterion_text(manifest["criterion"], data["classes"]),
        shape=tuple(data["domain"]["shape"]),
        low=low,
        high=high,
        fixed=[column[0] for column in data["domain"].get("columns", ()) if column[3]],
        outcomes=", ".join(f"{count} {name.replace('_', ' ')}" for name, count in summary["outcomes"].items() if count),
        summary=summary,
        training_queries="unknown" if summary["training_queries"] is None else f"{summary['training_queries']:,}",
        category=CATEGORIES[folder.form.task],
        **_tables(folder.form.task),
    )


def _tables(task: Task | None) -> dict[str, Any]:
    """The columns of a set."""
    return {"columns": columns_of_task(task), "patch": PATCH, "samples": samples_of_task(task), "task": task}


def columns() -> str:
    """The meaning of each column, in Markdown."""
    others: dict[Task, str] = {"segmentation": "masks", "detection": "boxes"}
    parts = [fill(__package__, "columns.md", {}, **_tables(None))]
    for task, noun in others.items():
        names = [(columns_of_task(task), COLUMNS), (samples_of_task(task), SAMPLES)]
        new = [{name: column for name, column in recorded.items() if name not in usual} for recorded, usual in names]
        old = [[name for name in usual if name not in recorded] for recorded, usual in names]
        parts.append(fill(__package__, "dense_columns.md", {}, noun=noun, columns=new[0], samples=new[1], without=old))
    return "".join(parts)


def _json(value: Any) -> Markup:
    """JSON for a YAML header, escaped so that it cannot open an HTML tag."""
    return Markup(json.dumps(value).replace("<", "\\u003c"))


def _without_folders(spec: str) -> str:
    """A spec with the names of its files, but without their folders."""
    return re.sub(r"[^:?&=+]*/", "", spec)


def _number_text(value: float | None) -> str:
    """A number with four digits; a dash for None."""
    return "-" if value is None else f"{value:.4g}"


def _percent_text(value: float | None) -> str:
    """A share in percent; a dash for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def croissant(folder: BenchmarkSet) -> dict[str, Any]:
    """Metadata as JSON-LD. File names are relative to the folder of the set."""
    manifest = folder.manifest
    files = [
        _entity("FileObject", name)
        | {
            "contentUrl": name,
            "encodingFormat": "application/x-parquet" if name.endswith("parquet") else "application/octet-stream",
            "sha256": sum_,
            "contentSize": f"{(folder.path / name).stat().st_size} B",
        }
        for name, sum_ in folder.checksums().items()
        if name.endswith((".parquet", ".safetensors"))
    ]
    sets = [
        _entity("FileSet", f"{name}-files") | {"encodingFormat": "application/x-parquet", "includes": f"{name}/*.parquet"}
        for name in ("data", "samples")
    ]
    criterion = criterion_text(manifest["criterion"], manifest["data"]["classes"])
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "".join(c if c.isalnum() else "-" for c in title(manifest)),
        "description": f"{title(manifest)}: inputs at which {criterion}, and inputs at larger distances.",
        "license": manifest["request"]["licence"],
        "url": "README.md",
        "version": f"{manifest['schema']}.0.0",
        "datePublished": manifest["finished"][:10],
        "citeAs": PAPERS,
        "distribution": [*files, *sets],
        "recordSet": [
            _records("data", "A row for each sample and level.", folder.form.columns, folder.form),
            _records("samples", "A row for each sample.", folder.form.sample_columns, folder.form),
        ],
    }


def _entity(kind: str, name: str) -> dict[str, Any]:
    """The keys that every entity of Croissant has."""
    return {"@type": f"cr:{kind}", "@id": name, "name": name}


def _records(name: str, description: str, columns: Mapping[str, Column], form: Form) -> dict[str, Any]:
    """A table as a Croissant record set."""
    fields = [_field(name, column, definition, form) for column, definition in columns.items()]
    return _entity("RecordSet", name) | {"description": description, "field": fields}


def _field(records: str, name: str, column: Column, form: Form) -> dict[str, Any]:
    field = _entity("Field", f"{records}/{name}") | {"description": column.doc}
    source: dict[str, Any] = {"fileSet": {"@id": f"{records}-files"}, "extract": {"column": name}}
    if column.kind == "patches":
        inner = [
            _entity("Field", f"{field['name']}/{entry}")
            | {"description": doc, "dataType": CROISSANT[kind], "source": {**source, "transform": {"jsonPath": entry}}}
            for entry, (kind, doc) in PATCH.items()
        ]
        return field | {"repeated": True, "subField": inner}
    if column.kind == "truth" or (column.kind in ("input", "mask") and form.pictures):
        return field | {"source": source | {"transform": {"jsonPath": "bytes"}}, "dataType": "sc:ImageObject"}
    if column.kind in ("input", "mask"):
        kind = "sc:Float" if column.kind == "input" else "sc:Boolean"
        return field | {"source": source, "dataType": kind, "repeated": True}
    return field | {"source": source, "dataType": CROISSANT[column.kind]}
