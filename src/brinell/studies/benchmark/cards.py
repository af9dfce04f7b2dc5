"""What a benchmark set says of itself: README.md, the data card of the Hugging Face hub, and croissant.json (Croissant 1.0)."""

import json
import math
import re
import statistics
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np
from markupsafe import Markup

from brinell.analysis.results import FolderResult, Result
from brinell.core.record import Column
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.studies.benchmark.records import COLUMNS, PATCH, SAMPLES, SPLIT, BenchmarkSet, Form

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
TABLES = {"columns": COLUMNS, "patch": PATCH, "samples": SAMPLES}
SIZES = ((1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"), (math.inf, "n>1M"))
"""The size categories of the hub, each with the number of rows that it ends at."""


class LevelResult(Result):
    """The inputs of a benchmark set at one level."""

    level: float
    """Multiple of the L2 distance of the adversarial example, which is 1; 0 is the clean input."""
    inputs: int
    """How many are in the set."""
    unreached: int
    """Samples whose bounds do not allow this multiple."""
    accuracy: float | None
    """Share of the inputs that the model gets right; null where there are none."""
    accuracy_quantised: float | None
    """The same of the pictures in 8 bits; null where nothing is rounded."""
    adversarial: float | None
    """Share that meets the criterion."""
    median_l2: float | None
    """Median L2 distance from the clean input."""


class BenchmarkResult(FolderResult):
    """`brinell benchmark --json`."""

    samples: int
    """Samples that were looked at."""
    outcomes: dict[str, int]
    """What became of them: reached, not_reached, misclassified, already, own_class."""
    queries: int
    """Every forward of the model: those of all samples, and those by which the kind of its answers was recognised."""
    training_queries: int | None
    """Forwards that the policy was trained with; null where its file does not say."""
    median_queries_to_success: float | None
    """Of the samples with an adversarial example: forwards until the first one."""
    median_queries_to_refined: float | None
    """The same until it was settled, refinement and clean-up included."""
    median_l2: float | None
    """Median L2 distance of the adversarial examples."""
    median_patches: float | None
    """Median number of patches that have something on them in the adversarial example."""
    levels: tuple[LevelResult, ...]
    """Every level, the clean inputs first."""


def write(folder: BenchmarkSet) -> None:
    """Write README.md and croissant.json of a complete set."""
    write_text(folder.path / "README.md", card(folder))
    write_text(folder.path / "croissant.json", json.dumps(croissant(folder), indent=1, ensure_ascii=False) + "\n")


def title(manifest: Mapping[str, Any]) -> str:
    """What the set is called."""
    return f"{manifest['data']['name']} against {manifest['model']['name']}, distorted by RLAB"


def criterion_text(criterion: Mapping[str, Any], classes: list[str]) -> str:
    """The criterion in words."""
    if criterion["wrong_class"] is not None:
        at = criterion["wrong_class"]
        name = classes[at] if at < len(classes) else str(at)
        return f"class {name} is predicted where it is not the true one, with a probability above {criterion['wrong_above']:g}"
    if criterion["true_below"] is not None:
        return f"the model is wrong, and the probability of the true class falls below {criterion['true_below']:g}"
    return "the model is wrong"


def figures(folder: BenchmarkSet) -> dict[str, Any]:
    """The figures of a complete set: what became of the samples, the adversarial examples, and each level."""
    samples, manifest = folder.samples(), folder.manifest
    columns = ("level", "reached", "label", "prediction", "prediction_quantised", "adversarial", "l2", "linf", "l0", "confidence")
    rows = folder.rows(columns)
    levels = [_level(rows, level) for level in (0.0, *manifest["levels"])]

    def middle(name: str) -> float | None:
        values = [value for value in samples[name] if value is not None]
        return float(statistics.median(values)) if values else None

    return {
        "samples": len(samples["sample_id"]),
        "outcomes": manifest["counts"],
        "queries": sum(samples["queries"]) + sum(one["forwards"] for one in manifest.get("probes", {}).values()),
        "training_queries": manifest["training_queries"],
        "median_queries_to_success": middle("queries_to_success"),
        "median_queries_to_refined": middle("queries_to_refined"),
        "median_l2": middle("l2"),
        "median_patches": middle("patch_count"),
        "levels": levels,
    }


def _level(rows: Mapping[str, list[Any]], level: float) -> dict[str, Any]:
    at = [k for k, (one, reached) in enumerate(zip(rows["level"], rows["reached"], strict=True)) if one == level and reached]

    def share(name: str) -> float | None:
        held = [rows[name][k] == rows["label"][k] for k in at if rows[name][k] is not None]
        return sum(held) / len(held) if held else None

    return {
        "level": level,
        "inputs": len(at),
        "unreached": rows["level"].count(level) - len(at),
        "accuracy": share("prediction"),
        "accuracy_quantised": share("prediction_quantised"),
        "adversarial": sum(bool(rows["adversarial"][k]) for k in at) / len(at) if at else None,
        "median_l2": float(statistics.median([rows["l2"][k] for k in at])) if at else None,
    }


def card(folder: BenchmarkSet) -> str:
    """README.md: YAML for the hub, then what the set is, how it was made, its columns and its figures."""
    found, manifest = figures(folder), folder.manifest
    rows = sum(level["inputs"] + level["unreached"] for level in found["levels"])
    data = manifest["data"]
    low, high = (f"{best(data['domain'][end]):g}" for best, end in ((np.min, "low"), (np.max, "high")))
    return fill(
        __package__,
        "card.md",
        {"json": _json, "without_folders": _without_folders, "text": _text, "share": _share},
        title=title(manifest),
        form=folder.form,
        size=Markup(next(text for most, text in SIZES if rows < most)),
        split=SPLIT,
        papers=PAPERS,
        manifest=manifest,
        request=manifest["request"],
        policy=manifest.get("policy", {"name": manifest["request"]["policy"], "why": "it was asked for"}),
        data=data,
        model=manifest["model"],
        cap="without a cap on the distance" if manifest["eps"] is None else f"at an L2 distance of at most {manifest['eps']:g}",
        criterion=criterion_text(manifest["criterion"], data["classes"]),
        shape=tuple(data["domain"]["shape"]),
        low=low,
        high=high,
        fixed=[column[0] for column in data["domain"].get("columns", ()) if column[3]],
        outcomes=", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found["outcomes"].items() if count),
        found=found,
        trained="unknown" if found["training_queries"] is None else f"{found['training_queries']:,}",
        **TABLES,
    )


def columns() -> str:
    """What each column means, in Markdown."""
    return fill(__package__, "columns.md", {}, **TABLES)


def _json(value: Any) -> Markup:
    """JSON, which YAML is too, that opens no tag on a page made of it."""
    return Markup(json.dumps(value).replace("<", "\\u003c"))


def _without_folders(spec: str) -> str:
    """A spec with the names of its files but not where they lay."""
    return re.sub(r"[^:?&=+]*/", "", spec)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def croissant(folder: BenchmarkSet) -> dict[str, Any]:
    """The metadata as JSON-LD. Files are named relative to the folder that it lies in."""
    manifest = folder.manifest
    files = [
        _named("FileObject", name)
        | {
            "contentUrl": name,
            "encodingFormat": "application/x-parquet" if name.endswith("parquet") else "application/octet-stream",
            "sha256": sum_,
            "contentSize": f"{(folder.path / name).stat().st_size} B",
        }
        for name, sum_ in folder.sums().items()
        if name.endswith((".parquet", ".safetensors"))
    ]
    sets = [
        _named("FileSet", f"{name}-files") | {"encodingFormat": "application/x-parquet", "includes": f"{name}/*.parquet"}
        for name in ("data", "samples")
    ]
    criterion = criterion_text(manifest["criterion"], manifest["data"]["classes"])
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "".join(c if c.isalnum() else "-" for c in title(manifest)),
        "description": f"{title(manifest)}: inputs at which {criterion}, and graded severities beyond.",
        "license": manifest["request"]["licence"],
        "url": "README.md",
        "version": f"{manifest['schema']}.0.0",
        "datePublished": manifest["finished"][:10],
        "citeAs": PAPERS,
        "distribution": [*files, *sets],
        "recordSet": [
            _records("data", "A row per sample and level.", COLUMNS, folder.form),
            _records("samples", "A row per sample.", SAMPLES, folder.form),
        ],
    }


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": name, "name": name}


def _records(name: str, what: str, columns: Mapping[str, Column], form: Form) -> dict[str, Any]:
    fields = [_field(name, column, one, form) for column, one in columns.items()]
    return _named("RecordSet", name) | {"description": what, "field": fields}


def _field(records: str, name: str, column: Column, form: Form) -> dict[str, Any]:
    found = _named("Field", f"{records}/{name}") | {"description": column.doc}
    source: dict[str, Any] = {"fileSet": {"@id": f"{records}-files"}, "extract": {"column": name}}
    if column.kind == "patches":
        inner = [
            _named("Field", f"{found['name']}/{entry}")
            | {"description": doc, "dataType": CROISSANT[kind], "source": {**source, "transform": {"jsonPath": entry}}}
            for entry, (kind, doc) in PATCH.items()
        ]
        return found | {"repeated": True, "subField": inner}
    if column.kind in ("input", "mask") and form.pictures:
        return found | {"source": source | {"transform": {"jsonPath": "bytes"}}, "dataType": "sc:ImageObject"}
    if column.kind in ("input", "mask"):
        kind = "sc:Float" if column.kind == "input" else "sc:Boolean"
        return found | {"source": source, "dataType": kind, "repeated": True}
    return found | {"source": source, "dataType": CROISSANT[column.kind]}
