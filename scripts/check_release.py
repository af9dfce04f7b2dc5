"""Checks what a release consists of: `python scripts/check_release.py dist [--released]`.

The folder holds one source archive and one wheel. Their version is the one of CITATION.cff and
CHANGELOG.md, the licence and the types of the calls are in both, nothing large or unsafe is in
either, and each link of the long description is an address whose file exists. With `--released` the
project has an owner and the changelog a date.
"""

import argparse
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 1_000_000
"""Bytes of a file at most."""
UNSAFE = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".pyc")
"""Endings of files that may hold code or are products of a run."""
LINK = re.compile(r"\]\(([^)\s]+)\)")


def read_archive(folder: Path) -> dict[str, int]:
    """Each file of the source archive, by its path within it, with its bytes."""
    (path,) = folder.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {file.name.partition("/")[2]: file.size for file in archive if file.isfile()}


def read_wheel(folder: Path) -> tuple[dict[str, int], str]:
    """Each file of the wheel with its bytes, and its metadata."""
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        sizes = {file.filename: file.file_size for file in wheel.infolist()}
        (metadata,) = (name for name in sizes if name.endswith(".dist-info/METADATA"))
        return sizes, wheel.read(metadata).decode()


def faults(folder: Path, *, released: bool) -> Iterator[str]:
    """What stands in the way of a release, a sentence each."""
    archive = read_archive(folder)
    wheel, text = read_wheel(folder)
    metadata = Parser().parsestr(text)
    for kind, files in (("archive", archive), ("wheel", wheel)):
        for name, size in files.items():
            if size > LARGEST or name.endswith(UNSAFE):
                yield f"the {kind} holds {name} of {size:,} bytes"
        for ending in ("LICENSE", "brinell/__init__.pyi", "brinell/py.typed"):
            if not any(name.endswith(ending) for name in files):
                yield f"the {kind} lacks {ending}"

    version = metadata["Version"]
    if f"\nversion: {version}\n" not in read("CITATION.cff"):
        yield f"CITATION.cff does not name version {version}"
    number = ".".join(version.split(".")[:2])
    heading = re.search(rf"^## {re.escape(number)}\b.*$", read("CHANGELOG.md"), re.MULTILINE)
    if not heading:
        yield f"CHANGELOG.md has no section {number}"

    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    yield from broken_links(metadata.get_payload(), urls.get("Source", ""))
    if released:
        if "/OWNER/" in urls.get("Source", "/OWNER/"):
            yield "pyproject.toml has no owner: set repository"
        if heading and "unreleased" in heading[0]:
            yield f"CHANGELOG.md has no date for {number}"
        if "dev" in version:
            yield f"{version} is the version of a checkout: set brinell.core.version"


def broken_links(text: str, source: str) -> Iterator[str]:
    """The links of the long description that lead nowhere."""
    for address in LINK.findall(text):
        if not address.startswith(("https://", "#")):
            yield f"the long description links to {address}, which an index does not have"
        elif address.startswith(f"{source}/"):
            path = re.sub(r"^(blob|raw)/main/", "", address.removeprefix(f"{source}/"))
            if not (ROOT / path.partition("#")[0]).is_file():
                yield f"the long description links to {path}, which does not exist"


def read(name: str) -> str:
    """The text of a file of the checkout."""
    return (ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--released", action="store_true")
    arguments = parser.parse_args()
    sentences = list(faults(arguments.folder, released=arguments.released))
    print("\n".join(sentences) or "the archive and the wheel hold what a release needs")
    sys.exit(bool(sentences))
