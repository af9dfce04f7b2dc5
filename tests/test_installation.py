"""What is installed: little for an audit, known versions for everything, and nothing that only one
machine can reach.
"""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LIMIT = 60
"""Packages in the environment of `make audit`."""


def needed(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """The packages that this one needs on this machine, their needs included, and itself."""
    imports: dict[str, set[str]] = {}
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        key = canonicalize_name(name)
        if key in imports and extras <= imports[key]:
            continue
        imports.setdefault(key, set()).update(extras)
        for requirement in map(Requirement, requires(name) or ()):
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return set(imports)


def pinned(file: Path) -> set[str]:
    """The names of a file of constraints."""
    return {
        canonicalize_name(name)
        for name in re.findall(r"^([\w.-]+)==", file.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_an_audit_needs_few_packages() -> None:
    packages = needed("brinell") | {"pip"}
    assert {"torch", "scikit-learn", "scipy"} < packages
    assert len(packages) <= LIMIT, sorted(packages)


def test_every_package_has_a_known_version(root: Path) -> None:
    packages = needed("brinell", frozenset({"dev"})) - {"brinell"}
    assert {"pytest", "gymnasium", "pluggy"} < packages
    assert not packages - pinned(root / "constraints.txt")


def test_what_builds_has_a_known_version(root: Path) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    site = {
        canonicalize_name(Requirement(line).name) for line in settings["dependency-groups"]["site"]
    }
    assert site <= pinned(root / "constraints.txt")
    builders = {
        canonicalize_name(Requirement(line).name) for line in settings["build-system"]["requires"]
    }
    assert builders | {"editables", "setuptools", "wheel", "pip"} <= pinned(
        root / "constraints.txt"
    )


def test_all_is_every_extra_that_is_not_for_developers(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    (full_extra,) = map(Requirement, extras["all"])
    small = {"ray"}
    assert full_extra.extras == extras.keys() - {"all", "dev"} - small, (
        "and not the clients that few need and that bring many"
    )
