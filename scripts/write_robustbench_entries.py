"""Write the published entries that `brinell claim --against robustbench` ranks against, from a copy of RobustBench's model_info.

python scripts/write_robustbench_entries.py FOLDER [FILE]
"""

import json
import re
import sys
from pathlib import Path

FILE = Path(__file__).parents[1] / "src/brinell/studies/claim/robustbench.json"
PROTOCOLS = {
    ("cifar10", "Linf"): ("8/255", 10_000),
    ("cifar10", "L2"): ("0.5", 10_000),
    ("cifar100", "Linf"): ("8/255", 10_000),
    ("imagenet", "Linf"): ("4/255", 5_000),
}
"""Budget and number of test images of each table of the leaderboard."""
DIGESTS = {"cifar10": "15361c8fa4580db634e33f164ebc720d"}
"""Brinell's digests of the test images, where they are known."""
SOURCE = {
    "name": "RobustBench, model_info",
    "address": "https://github.com/RobustBench/robustbench",
    "commit": "78fcc9e48a07",
    "date": "2025-03-31",
    "licence": "MIT",
}
ATTACKS = ["apgd-ce", "apgd-t", "fab-t?stop_at_eps=true", "square?rescale_schedule=false"]
"""AutoAttack's standard version, as the stages of an audit are named."""


def entry(file: Path) -> dict[str, object]:
    """The facts of one entry: figures in per cent as the leaderboard writes them."""
    facts = json.loads(file.read_text(encoding="utf-8"))
    external = facts.get("external")
    return {
        "name": file.stem,
        "clean": float(facts["clean_acc"]),
        "autoattack": float(facts["autoattack_acc"]),
        "external": float(external) if external else None,
        "venue": facts["venue"],
        "architecture": facts["architecture"],
        "eps": str(facts["eps"]),
        "unreliable": bool(facts.get("unreliable")),
    }


def main(folder: Path, target: Path) -> None:
    """Write all tables, each in the order of the leaderboard: by AutoAttack's figure, the highest first."""
    tables = []
    for (data, norm), (eps, n) in PROTOCOLS.items():
        entries = sorted(
            (entry(file) for file in (folder / data / norm).glob("*.json")), key=lambda e: (-e["autoattack"], e["name"])
        )
        tables.append(
            {"data": data, "digest": DIGESTS.get(data), "distance": norm.lower(), "eps": eps, "n": n, "entries": entries}
        )
    target.write_text(text({"source": SOURCE, "attacks": ATTACKS, "tables": tables}), encoding="utf-8")


def text(content: dict[str, object]) -> str:
    """The content as JSON with a line for each entry."""
    return (
        re.sub(
            r"\{\s*(\"name\": [^{}]*?\"unreliable\"[^{}]*?)\s*\}", _on_one_line, json.dumps(content, ensure_ascii=False, indent=1)
        )
        + "\n"
    )


def _on_one_line(match: re.Match[str]) -> str:
    """An entry without line breaks."""
    return "{" + re.sub(r",\s*\n\s*", ", ", match[1]) + "}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else FILE)
