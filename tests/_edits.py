"""Random forgeries of a run: an edit of rows, arrays, manifest, request, files, tables or page,
with digests made anew.
"""

import copy
import json
import random
import shutil
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from brinell.core.errors import BrinellError
from brinell.store.files import write_arrays
from brinell.store.parquet import write_table
from brinell.store.run import LAYOUT
from brinell.studies.register import write_page


@dataclass(frozen=True)
class Edit:
    """What a forgery changed."""

    kind: str
    target: str
    """The column, the key of the manifest, or the file."""
    detail: str


def forge(folder, seed):
    """Change something in a folder at random, and write again what depends on it.

    Returns the edit.
    """
    rng = random.Random(seed)
    kind = rng.choice(list(KINDS))
    edit, derived = KINDS[kind](folder, rng)
    manifest = json.loads((folder / "manifest.json").read_text())
    try:
        LAYOUT.save(folder, manifest)
        if derived:
            write_page(folder)
    except (BrinellError, KeyError, TypeError, ValueError, AttributeError):
        pass  # a reader refuses it: the tables and the page stay those of before
    return Edit(kind, *edit)


# Rows


def _rows_of(folder):
    """The file of rows, with its rows and schema."""
    file = folder / "rows.parquet"
    table = pq.read_table(file)
    return file, table.to_pylist(), table.schema


def _other_value(value, field, rng, column):
    """Another value for a cell."""
    if field.nullable and (value is None) != (rng.random() < 0.2):
        if value is not None:
            return None
    if field.type == pa.string():
        alternatives = [text for text in set(column) if text != value] + [
            "survived",
            "broken",
            "spared",
            "failed",
            "correct",
        ]
        return rng.choice([text for text in alternatives if text != value])
    if field.type == pa.bool_():
        return not value
    value = 0 if value is None else value
    if pa.types.is_integer(field.type):
        return rng.choice(
            [
                value + 1,
                value - 1,
                0,
                1,
                2 * value + 1,
                value + rng.randrange(1, 100),
                2**31 - 1,
                -5,
            ]
        )
    return float(
        rng.choice(
            [value * 1.5 + 0.01, value / 2 - 0.01, -value - 0.1, 0.99 - value, value + 0.25, -5.0]
        )
    )


def edit_cells(folder, rng):
    """Change a column in one row, in a sample's rows, in the rows of an outcome, or in all."""
    file, rows, schema = _rows_of(folder)
    name = rng.choice(schema.names)
    anchor = rng.choice(rows)
    scope = rng.choice(["row", "sample", "outcome", "all"])
    scopes = {
        "row": lambda row: row is anchor,
        "sample": lambda row: row["sample_id"] == anchor["sample_id"],
    }
    scopes |= {"outcome": lambda row: row["outcome"] == anchor["outcome"], "all": lambda row: True}
    column = [row[name] for row in rows]
    shared = _other_value(anchor[name], schema.field(name), rng, column)
    for row in filter(scopes[scope], rows):
        row[name] = (
            shared
            if scope != "row" or row[name] != shared
            else _other_value(row[name], schema.field(name), rng, column)
        )
    write_table(file, pa.Table.from_pylist(rows, schema))
    return (name, f"{file.name} {scope} of {anchor['outcome']} to {shared!r}"), True


def swap_cells(folder, rng):
    """Swap a column, or all columns but the keys, between two rows."""
    file, rows, schema = _rows_of(folder)
    first, second = rng.sample(rows, 2)
    names = rng.choice(
        [
            [rng.choice(schema.names)],
            [name for name in schema.names if name not in ("sample_id", "attacked", "label")],
        ]
    )
    for name in names:
        first[name], second[name] = second[name], first[name]
    write_table(file, pa.Table.from_pylist(rows, schema))
    return ("+".join(names), f"{file.name} swapped"), True


def edit_row_list(folder, rng):
    """Remove, double or move rows."""
    file, rows, schema = _rows_of(folder)
    row = rng.choice(rows)
    edit = rng.choice(["remove", "double", "remove sample", "rename sample"])
    if edit == "remove":
        rows.remove(row)
    elif edit == "double":
        rows.append(dict(row))
    elif edit == "remove sample":
        rows = [entry for entry in rows if entry["sample_id"] != row["sample_id"]]
    else:
        for record in [record for record in rows if record["sample_id"] == row["sample_id"]]:
            record["sample_id"] += 1000
    write_table(file, pa.Table.from_pylist(rows, schema))
    return ("rows", f"{file.name} {edit}"), True


def edit_robustness(folder, rng):
    """Make samples robust, or broken, in all rows of all stages, as a forger does who knows the
    columns."""
    files = [folder / "rows.parquet"]
    ids = sorted({row["sample_id"] for row in pq.read_table(files[0]).to_pylist()})
    sample_ids = set(rng.sample(ids, rng.randrange(1, len(ids))))
    margin = rng.choice([-0.5, -0.01, None])
    for file in files:
        table = pq.read_table(file)
        rows = table.to_pylist()
        for row in rows:
            if row["sample_id"] in sample_ids and row["outcome"] == "broken":
                for name in table.schema.names:
                    if name.startswith(("adv_", "quantised")) or name in (
                        "linf",
                        "l2",
                        "l1",
                        "l0",
                        "queries_to_success",
                    ):
                        row[name] = None
                row |= {
                    "outcome": "survived",
                    "broken": None,
                    "judge_forwards": 0,
                    "margin": margin,
                }
        write_table(file, pa.Table.from_pylist(rows, table.schema))
    for file in sorted((folder / "arrays").glob("*-0*")) if rng.random() < 0.7 else ():
        arrays = {
            name: array
            for name, array in load_file(file).items()
            if int(name.partition("/")[0]) not in sample_ids
        }
        write_arrays(file, arrays)
    return ("outcome", f"{len(sample_ids)} samples made robust, margin {margin}"), True


# Files and arrays


def add_file(folder, rng):
    """Put a file, or a changed copy of one, beside the others."""
    sources = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (".parquet", ".safetensors", ".csv")
    )
    source = rng.choice(sources)
    name = rng.choice(
        [f"{source.stem}-x", f"{source.stem}-9999", "1-01-fgsm", "9-00-clean", "more"]
    )
    target = source.with_name(name + source.suffix)
    if rng.random() < 0.2:
        target = folder / name / source.name
        target.parent.mkdir()
    shutil.copy(source, target)
    return (target.relative_to(folder).as_posix(), "added"), rng.random() < 0.5


def remove_or_swap_files(folder, rng):
    """Remove a file, or swap the content of two."""
    files = sorted([folder / "rows.parquet", *(folder / "arrays").iterdir()])
    first = rng.choice(files)
    peers = [file for file in files if file.suffix == first.suffix and file != first]
    if rng.random() < 0.5 or not peers:
        first.unlink()
        return (first.name, "removed"), True
    second = rng.choice(peers)
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    return (first.name, f"swapped with {second.name}"), True


def edit_arrays(folder, rng):
    """Change, swap, remove or add a stored array."""
    files = [file for file in sorted((folder / "arrays").iterdir()) if load_file(file)]
    file = rng.choice(files)
    arrays = load_file(file)
    name = rng.choice(sorted(arrays))
    edit = rng.choice(["change", "swap", "remove", "add"])
    noise = np.random.default_rng(rng.randrange(2**32))
    if edit == "change":
        array = arrays[name]
        arrays[name] = (
            array + noise.choice([0.3, 0.02, 1.0]) * noise.standard_normal(array.shape)
        ).astype(array.dtype)
    elif edit == "swap" and len(arrays) > 1:
        partner = rng.choice([key for key in sorted(arrays) if key != name])
        arrays[name], arrays[partner] = arrays[partner], arrays[name]
    elif edit == "add":
        arrays[f"{rng.randrange(1000, 2000)}"] = arrays[name]
    else:
        del arrays[name]
    write_arrays(file, arrays)
    return (file.name, f"{edit} {name}"), True


# Manifest and request


def _paths(value, prefix=()):
    """Paths of all values in a JSON tree."""
    yield prefix
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from _paths(inner, (*prefix, key))


def _mutated(value, rng):
    """Another JSON value."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, max(0, value - 1), 0, 2 * value + 3])
    if isinstance(value, float):
        return rng.choice([value + 0.5, value / 2, -value - 0.1, 0.0])
    if isinstance(value, str):
        return rng.choice(
            [value + "!", value[:-1], "passed", "0.0.9", "<b>x</b>", value.swapcase()]
        )
    if value is None:
        return rng.choice([True, False, 1, "text", 0.5])
    if isinstance(value, list):
        return rng.choice([value[:-1], value[::-1], value * 2, []])
    return rng.choice([{}, {**value, "more": 1}, dict(list(value.items())[1:])])


def edit_manifest(folder, rng):
    """Change, remove, double or swap a value anywhere in the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    tops = [key for key in manifest if key != "files"]
    top = rng.choice(tops)
    path = rng.choice([path for path in _paths(manifest[top])])
    keys = (top, *path)
    parent = manifest
    for key in keys[:-1]:
        parent = parent[key]
    before = copy.deepcopy(parent[keys[-1]])
    edit = rng.choice(["change", "change", "change", "remove"])
    if edit == "remove":
        del parent[keys[-1]]
    else:
        parent[keys[-1]] = _mutated(before, rng)
    LAYOUT.save(folder, manifest)
    return (
        top,
        f"{edit} {'.'.join(map(str, keys))}: {str(before)[:60]!r}, "
        f"{str(parent[keys[-1]])[:60] if edit == 'change' else None!r}",
    ), True


def edit_request(folder, rng):
    """Change a line of the request, in its file alone or in the manifest too."""
    file = folder / "run.toml"
    lines = file.read_text().splitlines()
    number = rng.choice([number for number, line in enumerate(lines) if " = " in line])
    key, _, value = lines[number].partition(" = ")
    lines[number : number + 1] = rng.choice(
        [
            [],
            [f"{key} = {value}0"],
            [f"{key} = 1"],
            [f'{key} = "0.5"'],
            [f"{key} = {value}", "x = 1"],
        ]
    )
    file.write_text("\n".join(lines) + "\n")
    return ("run.toml", f"{key} = {value}"), True


# Tables and page


def edit_table(folder, rng):
    """Change a cell of a table."""
    file = rng.choice(sorted((folder / "tables").glob("*.csv")))
    text = file.read_text()
    place = rng.choice([place for place, sign in enumerate(text) if sign.isalnum()] or [0])
    file.write_text(text[:place] + rng.choice("0123456789x") * 2 + text[place + 1 :])
    return (file.name, f"character {place}"), False


def edit_page(folder, rng):
    """Change, insert or remove something in the page, in text or in a tag."""
    file = folder / "report.html"
    text = file.read_text()
    place = rng.randrange(len(text))
    insert = rng.choice(
        ["<b>x</b>", "9", "<dt>Run</dt><dd>99 %</dd>", "<script>1</script>", " ", "<!-- x -->", ""]
    )
    width = rng.choice([0, 1, 5]) if insert else 3
    file.write_text(text[:place] + insert + text[place + width :])
    return ("report.html", f"{insert!r} at {place}"), False


KINDS = {
    "cells": edit_cells,
    "cells again": edit_cells,
    "swapped cells": swap_cells,
    "rows": edit_row_list,
    "robustness": edit_robustness,
    "file added": add_file,
    "file gone": remove_or_swap_files,
    "arrays": edit_arrays,
    "manifest": edit_manifest,
    "manifest again": edit_manifest,
    "request": edit_request,
    "table": edit_table,
    "page": edit_page,
}
"""Makers of edits; each returns what it changed, and whether tables and page are to be written
again."""
