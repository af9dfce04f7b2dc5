"""Random forgeries of a run, for tests of boards: each breaks something that files, rows and labels
can show.
"""

import json

from _forger import Forger

BYTES = (
    "manifest.json",
    "report.html",
    "run.toml",
    "rows.parquet",
    "arrays/*.safetensors",
    "tables/*.csv",
)
FIGURES = ("outcome", "label", "clean_pred", "sample_id", "eps", "model", "attack", "distance")
"""Columns from which figures are counted."""


def flip_bytes(path, rng):
    """Change some bytes of a random file."""
    files = sorted(file for pattern in BYTES for file in path.glob(pattern))
    file = files[rng.integers(len(files))]
    content = bytearray(file.read_bytes())
    for place in rng.integers(0, len(content), 3):
        content[place] ^= int(rng.integers(1, 256))
    file.write_bytes(bytes(content))
    return f"bytes of {file.name}"


def remove_file(path, rng):
    """Delete a random file of the inventory, or the manifest."""
    files = sorted([path / "rows.parquet", *path.glob("arrays/*"), path / "manifest.json"])
    file = files[rng.integers(len(files))]
    file.unlink()
    return f"no {file.name}"


def cut_file(path, rng):
    """Cut a random file short."""
    files = sorted(
        [
            path / "rows.parquet",
            *path.glob("arrays/*"),
            path / "manifest.json",
            *path.glob("tables/*"),
        ]
    )
    file = files[rng.integers(len(files))]
    content = file.read_bytes()
    file.write_bytes(content[: int(rng.integers(len(content)))])
    return f"{file.name} cut short"


def add_file(path, rng):
    """Put a file beside those of the inventory."""
    file = path / (".", "arrays")[rng.integers(2)] / f"{rng.integers(1 << 40):024x}.parquet"
    file.write_bytes(b"PAR1")
    return f"{file.name} added"


def change_cell(path, rng):
    """Change one cell of a column from which figures are counted, and update digests, tables and
    page."""
    forger = Forger(path)
    column = FIGURES[rng.integers(len(FIGURES))]
    rows = list(forger.select())
    row = rows[rng.integers(len(rows))]
    before = row[column]
    others = sorted({other[column] for other in rows} - {before}) or [f"{before}x"]
    row[column] = others[rng.integers(len(others))]
    forger.save()
    return f"{column} of one row is {row[column]!r}, was {before!r}"


def change_label(path, rng):
    """Relabel a sample in all its rows as the class that the model predicts, and update digests,
    tables and page."""
    forger = Forger(path)
    wrong = list(forger.select("clean", "misclassified")) or list(forger.select("clean"))
    sample = wrong[rng.integers(len(wrong))]["sample_id"]
    for row in forger.select(samples=[sample]):
        row["label"] = (
            row["clean_pred"] if row["outcome"] == "misclassified" else (row["label"] + 1) % 10
        )
        row["outcome"] = {"misclassified": "survived"}.get(row["outcome"], row["outcome"])
        if row["attack"] == "clean":
            row["outcome"] = "correct" if row["label"] == row["clean_pred"] else "misclassified"
    forger.save()
    return f"sample {sample} relabelled"


def change_table(path, rng):
    """Change a figure in a table or on the page."""
    files = sorted([*path.glob("tables/*.csv"), path / "report.html"])
    files = [file for file in files if any(digit in file.read_text() for digit in "123456789")]
    file = files[rng.integers(len(files))]
    text = file.read_text()
    places = [place for place, letter in enumerate(text) if letter in "123456789"]
    place = places[rng.integers(len(places))]
    file.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    return f"a digit of {file.name}"


def change_manifest(path, rng):
    """Change a fact in the manifest, with or without a new seal."""
    manifest = json.loads((path / "manifest.json").read_text())
    key = ("n", "eps", "request", "schema", "verb", "distance", "stage")[rng.integers(7)]
    if key == "n":
        manifest["data"]["n"] += 1
    elif key == "eps":
        manifest["eps"][-1] *= 2
    elif key == "request":
        manifest["request"]["seed"] = 99
    elif key == "stage":
        manifest["stages"].pop()
    else:
        manifest[key] = {"schema": 1, "verb": "nothing", "distance": "l2"}[key]
    if key in ("schema", "verb") or rng.integers(2):
        (path / "manifest.json").write_text(json.dumps(manifest))
    else:
        forger = Forger(path)
        forger.manifest = manifest
        forger.save()
    return f"{key} of the manifest"


FORGERIES = (
    flip_bytes,
    remove_file,
    cut_file,
    add_file,
    change_cell,
    change_label,
    change_table,
    change_manifest,
)
