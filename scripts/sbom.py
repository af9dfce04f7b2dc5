"""Software bill of materials of a plain installation of Brinell, in CycloneDX: `make sbom` writes
sbom.json.

    python scripts/sbom.py CYCLONEDX_PY OUT

cyclonedx-py lists all packages of this Python environment. The script keeps the dependencies of
Brinell without extras and tools, and their dependencies. The environment is not changed, and
nothing is fetched.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def closure(requirements: list[str]) -> set[str]:
    """The names of the packages that are installed for these requirements, as indexes compare them."""
    names: set[tuple[str, str]] = set()
    open_ = [Requirement(requirement) for requirement in requirements]
    while open_:
        requirement = open_.pop()
        for extra in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), extra)
            if key not in names:
                names.add(key)
                needed = map(Requirement, distribution(requirement.name).requires or ())
                open_ += [
                    dependency
                    for dependency in needed
                    if dependency.marker is None or dependency.marker.evaluate({"extra": extra})
                ]
    return {name for name, _ in names}


def main(tool: str, out: str) -> None:
    """List, keep what runs, write."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        arguments = [
            "environment",
            "--pyproject",
            str(ROOT / "pyproject.toml"),
            "--output-format",
            "JSON",
            "--output-reproducible",
        ]
        subprocess.run(
            [tool, *arguments, "--output-file", file.name, sys.executable],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        sbom = json.loads(Path(file.name).read_text(encoding="utf-8"))
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    names = closure(needed)
    sbom["components"] = [
        component
        for component in sbom["components"]
        if canonicalize_name(component["name"]) in names
    ]
    references = {component["bom-ref"] for component in sbom["components"]}
    root = sbom["metadata"]["component"]["bom-ref"]
    for dependency in sbom["dependencies"]:
        dependency["dependsOn"] = [
            reference for reference in dependency.get("dependsOn", ()) if reference in references
        ]
    sbom["dependencies"] = [
        dependency
        for dependency in sbom["dependencies"]
        if dependency["ref"] in references | {root}
    ]
    Path(out).write_text(json.dumps(sbom, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{out}: {len(references)} packages, CycloneDX {sbom['specVersion']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
