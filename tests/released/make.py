"""Makes the archive of a version: `python tests/released/make.py 0.1`, once, when it is released.

A folder for each verb that leaves one, without what follows from its records (page, tables), and
beside it the JSON of its result. Every later version reads, verifies and reports them
(`test_released.py`).
"""

import json
import os
import shutil
import sys
from pathlib import Path

import brinell

DATA = "digits"
MODEL = "digits-cnn"
DERIVED = ("report.html", "tables", "film.html")


def make(archive: Path) -> None:
    """Write the folders of an archive that does not exist."""
    archive.mkdir(parents=True)
    # Folders name each other by paths, which are those within the archive.
    os.chdir(archive)
    inputs = {"samples": 12, "device": "cpu", "progress": False}
    brinell.audit(MODEL, DATA, eps="0.05,0.1", certify=True, out="audit", **inputs)
    brinell.certify(MODEL, DATA, eps="0.02", out="certify", **inputs)
    brinell.corrupt(MODEL, DATA, out="corrupt", **inputs)
    brinell.epsilon(DATA, samples=40, out="epsilon")
    brinell.benchmark(MODEL, DATA, **inputs | {"samples": 3}, out="set")
    brinell.transfer("set", model=MODEL, out="transfer")
    brinell.explain(MODEL, DATA, **inputs | {"samples": 3}, out="explain")
    brinell.claim("audit", out="claim")

    for folder in sorted(Path().iterdir()):
        content = brinell.open(folder).payload()
        for name in DERIVED:
            for path in [*folder.rglob(name)]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        text = json.dumps(content, indent=0, ensure_ascii=False, sort_keys=True)
        Path(f"{folder.name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(__file__).resolve().parent / sys.argv[1])
