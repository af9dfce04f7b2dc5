"""What a plain installation of Brinell consists of, as a CycloneDX list: `make sbom` writes sbom.json.

    python scripts/sbom.py CYCLONEDX_PY OUT

cyclonedx-py lists all that is installed beside the Python that runs this; kept of that is what Brinell needs to run, without
extras and tools, and what that needs in turn. The environment is not changed, and nothing is fetched.
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
    found: set[tuple[str, str]] = set()
    open_ = [Requirement(one) for one in requirements]
    while open_:
        one = open_.pop()
        for extra in ("", *one.extras):
            key = (canonicalize_name(one.name), extra)
            if key not in found:
                found.add(key)
                needed = map(Requirement, distribution(one.name).requires or ())
                open_ += [more for more in needed if more.marker is None or more.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def main(tool: str, out: str) -> None:
    """List, keep what runs, write."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        asked = ["environment", "--pyproject", str(ROOT / "pyproject.toml"), "--output-format", "JSON", "--output-reproducible"]
        subprocess.run([tool, *asked, "--output-file", file.name, sys.executable], check=True, stderr=subprocess.DEVNULL)
        listed = json.loads(Path(file.name).read_text(encoding="utf-8"))
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = closure(needed)
    listed["components"] = [one for one in listed["components"] if canonicalize_name(one["name"]) in names]
    kept = {one["bom-ref"] for one in listed["components"]}
    root = listed["metadata"]["component"]["bom-ref"]
    for one in listed["dependencies"]:
        one["dependsOn"] = [other for other in one.get("dependsOn", ()) if other in kept]
    listed["dependencies"] = [one for one in listed["dependencies"] if one["ref"] in kept | {root}]
    Path(out).write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{out}: {len(kept)} packages, CycloneDX {listed['specVersion']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
