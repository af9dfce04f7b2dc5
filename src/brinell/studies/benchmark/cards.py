"""What a benchmark set says of itself: README.md, the data card of the Hugging Face hub, and croissant.json (Croissant 1.0)."""

import json
import math
import re
import statistics
from collections.abc import Mapping
from importlib import resources
from typing import Any

from brinell.core.record import Column
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


def write(folder: BenchmarkSet, manifest: Mapping[str, Any]) -> None:
    """Write README.md and croissant.json of a complete set."""
    form = folder.form
    write_text(folder.path / "README.md", card(folder, manifest, form))
    write_text(folder.path / "croissant.json", json.dumps(croissant(folder, manifest, form), indent=1, ensure_ascii=False) + "\n")


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


def figures(folder: BenchmarkSet, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a complete set: what became of the samples, the adversarial examples, and each level."""
    samples = folder.samples()
    columns = ("level", "reached", "label", "prediction", "prediction_quantised", "adversarial", "l2", "linf", "l0", "confidence")
    rows = folder.rows(columns)
    levels = [_level(rows, level) for level in (0.0, *manifest["levels"])]

    def middle(name: str) -> float | None:
        values = [value for value in samples[name] if value is not None]
        return float(statistics.median(values)) if values else None

    return {
        "samples": len(samples["sample_id"]),
        "outcomes": manifest["counts"],
        "queries": sum(samples["queries"]),
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


def card(folder: BenchmarkSet, manifest: Mapping[str, Any], form: Form) -> str:
    """README.md: YAML for the hub, then what the set is, how it was made, its columns and its figures."""
    found = figures(folder, manifest)
    rows = sum(level["inputs"] + level["unreached"] for level in found["levels"])
    return "\n".join([*_head(manifest, form, rows), *_story(manifest, form, found), *_use(form), *columns()]) + "\n"


def _head(manifest: Mapping[str, Any], form: Form, rows: int) -> list[str]:
    sizes = [(1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"), (math.inf, "n>1M")]
    lines = ["---", f"license: {json.dumps(manifest['request']['licence'])}", f"pretty_name: {json.dumps(title(manifest))}"]
    lines += ["task_categories:", "- image-classification"] if form.kind == "image" else []
    lines += [
        "tags:",
        "- adversarial",
        "- robustness",
        "- benchmark",
        "size_categories:",
        f"- {next(t for n, t in sizes if rows < n)}",
    ]
    lines += ["configs:"]
    for name, where in (("default", "data"), ("samples", "samples")):
        lines += [f"- config_name: {name}", "  data_files:", f"  - split: {SPLIT}", f"    path: {where}/{SPLIT}-*.parquet"]
        lines += ["  default: true"] if name == "default" else []
    return [*lines, "---", ""]


def _story(manifest: Mapping[str, Any], form: Form, found: Mapping[str, Any]) -> list[str]:
    data, model, request = manifest["data"], manifest["model"], manifest["request"]
    criterion = criterion_text(manifest["criterion"], data["classes"])
    cap = "without a cap on the distance" if manifest["eps"] is None else f"at an L2 distance of at most {manifest['eps']:g}"
    outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found["outcomes"].items() if count)
    trained = "unknown" if found["training_queries"] is None else f"{found['training_queries']:,}"
    domain = data["domain"]
    low, high = (f"{best(_listed(domain[end])):g}" for best, end in ((min, "low"), (max, "high")))
    fixed = [column[0] for column in domain.get("columns", ()) if column[3]]
    lattice, patch = (" x ".join(map(str, manifest["grid"][name])) for name in ("lattice", "patch"))
    lines = [
        f"# {title(manifest)}",
        "",
        f"Inputs of {data['name']} on which {model['name']} was made to fail by distortions on few patches, each at the",
        "distance at which it fails and at multiples of it. For scoring other models on what broke this one.",
        "",
        "## How it was made",
        "",
        f"RLAB ({PAPERS}), as brinell {manifest['brinell']} plays it, seeing class probabilities alone, placed",
        f"`{_without_folders(request['distortions'])}` on a grid of {lattice} patches of {patch} values",
        f"with the policy `{_without_folders(request['policy'])}`, {cap}, until {criterion};",
        "then it took away what was not needed and scaled down the rest. That is the adversarial example, level 1. A further level",
        "continues past it to exactly that multiple of its L2 distance: what stands grows to its full strength, then",
        "further patches are added in the order of what they promise, then everything grows, within the bounds of the",
        "data. A multiple that the bounds do not allow is marked (`reached` is false) and holds no input. Level 0 is the",
        "clean input.",
        "",
        f"- data: `{_without_folders(data['spec'])}`, the first {data['n']} of {data['total']} samples, digest {data['digest']}",
        f"- model: `{_without_folders(model['spec'])}`, digest {model['digest']}",
        f"- inputs: {data['domain']['kind']} of shape {tuple(data['domain']['shape'])}, values from {low} to {high}; distances",
        "  are in these units",
        *([f"- columns that may not change, and that patches are not counted along: {', '.join(fixed)}"] if fixed else []),
        f"- samples: {outcomes}; queries in all: {found['queries']:,}, and {trained} to train the policy",
        f"- repeat it: `brinell benchmark benchmark.toml`, seed {request['seed']}",
        "",
        "## Figures",
        "",
        f"Of the adversarial examples, medians: L2 {_text(found['median_l2'])}, patches {_text(found['median_patches'])},",
        f"queries until the first one {_text(found['median_queries_to_success'])}, until it was settled "
        f"{_text(found['median_queries_to_refined'])}.",
        "",
        "| level | inputs | not reachable | accuracy | accuracy in 8 bits | adversarial | median L2 |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found["levels"]:
        shares = " | ".join(_percent(one[name]) for name in ("accuracy", "accuracy_quantised", "adversarial"))
        lines.append(f"| {one['level']:g} | {one['inputs']} | {one['unreached']} | {shares} | {_text(one['median_l2'])} |")
    if not form.pictures:
        lines += ["", f"`input` and `mask` are flat, in C order; their shape is {form.shape}."]
    return lines


def _use(form: Form) -> list[str]:
    return [
        "",
        "## How to use it",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        f'rows = load_dataset("PATH/TO/THIS/FOLDER", split="{SPLIT}")',
        'adversarial = rows.filter(lambda row: row["level"] == 1)',
        "```",
        "",
        "    brinell audit --data bench:PATH/TO/THIS/FOLDER --model MODEL --eps 0              # accuracy on the adversarial examples",
        '    brinell audit --data "bench:PATH/TO/THIS/FOLDER?level=4" --model MODEL --eps 0    # at four times their distance',
        "",
        "`arrays/*.safetensors` holds the exact inputs (float32) and masks of what changed by the name",
        '"SAMPLE/LEVEL/input" and "SAMPLE/LEVEL/mask"' + ("; the pictures are rounded to 8 bits." if form.pictures else "."),
        "",
        "## Licence",
        "",
        "The inputs derive from the source data, whose licence applies to them: see `license` above, which whoever made this set",
        "filled in.",
    ]


def columns() -> list[str]:
    """What each column means, in Markdown."""
    lines = ["", "## Columns", "", "`data/` (the default configuration), a row per sample and level:", ""]
    lines += _table(COLUMNS)
    lines += ["", "An entry of `patches`:", "", "| name | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {doc} |" for name, (kind, doc) in PATCH.items()]
    lines += ["", "`samples/` (the configuration `samples`), a row per sample, those without an adversarial example too:", ""]
    return lines + _table(SAMPLES)


def _table(columns: Mapping[str, Column]) -> list[str]:
    head = ["| column | type | may be null | meaning |", "|---|---|---|---|"]
    return head + [f"| `{name}` | {one.kind} | {'yes' if one.null else ''} | {one.doc} |" for name, one in columns.items()]


def _listed(bound: Any) -> list[float]:
    """A bound for all values, or one for each of them, as a list."""
    return list(bound) if isinstance(bound, list | tuple) else [bound]


def _without_folders(spec: str) -> str:
    """A spec with the names of its files but not where they lay."""
    return re.sub(r"[^:?&=+]*/", "", spec)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def croissant(folder: BenchmarkSet, manifest: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """The metadata as JSON-LD. Files are named relative to the folder that it lies in."""
    files: list[dict[str, Any]] = []
    for name, sum_ in folder.sums().items():
        if name.endswith((".parquet", ".safetensors")):
            kind = "application/x-parquet" if name.endswith("parquet") else "application/octet-stream"
            files.append(
                {
                    "@type": "cr:FileObject",
                    "@id": name,
                    "name": name,
                    "contentUrl": name,
                    "encodingFormat": kind,
                    "sha256": sum_,
                    "contentSize": f"{(folder.path / name).stat().st_size} B",
                }
            )
    sets = [
        {
            "@type": "cr:FileSet",
            "@id": f"{name}-files",
            "name": f"{name}-files",
            "encodingFormat": "application/x-parquet",
            "includes": f"{name}/*.parquet",
        }
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
        "version": f"{manifest['format']}.0.0",
        "datePublished": manifest["finished"][:10],
        "citeAs": PAPERS,
        "distribution": [*files, *sets],
        "recordSet": [_records("data", COLUMNS, form), _records("samples", SAMPLES, form)],
    }


def _records(name: str, columns: Mapping[str, Column], form: Form) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": "A row per sample and level." if name == "data" else "A row per sample.",
        "field": [_field(name, column, one, form) for column, one in columns.items()],
    }


def _sub_field(records: str, name: str, entry: str) -> dict[str, Any]:
    kind, doc = PATCH[entry]
    extract = {"extract": {"column": name}, "transform": {"jsonPath": entry}}
    return {
        "@type": "cr:Field",
        "@id": f"{records}/{name}/{entry}",
        "name": f"{records}/{name}/{entry}",
        "description": doc,
        "dataType": CROISSANT[kind],
        "source": {"fileSet": {"@id": f"{records}-files"}, **extract},
    }


def _field(records: str, name: str, column: Column, form: Form) -> dict[str, Any]:
    where = f"{records}/{name}"
    found: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": where,
        "name": where,
        "description": column.doc,
        "source": {"fileSet": {"@id": f"{records}-files"}, "extract": {"column": name}},
    }
    if column.kind in ("input", "mask") and form.pictures:
        found["dataType"] = "sc:ImageObject"
        found["source"]["transform"] = {"jsonPath": "bytes"}
    elif column.kind in ("input", "mask"):
        found |= {"dataType": "sc:Float" if column.kind == "input" else "sc:Boolean", "repeated": True}
    elif column.kind == "patches":
        del found["source"]
        found |= {"repeated": True, "subField": [_sub_field(records, name, one) for one in PATCH]}
    else:
        found["dataType"] = CROISSANT[column.kind]
    return found
