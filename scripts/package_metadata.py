"""What the build adds to the package's metadata: the addresses of the project, and the README with
links and pictures that work on an index of packages.

All addresses begin with `repository` of `[tool.hatch.metadata.hooks.custom]` in pyproject.toml.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
"""A link or a picture of Markdown that names a file of this checkout."""


class PackageMetadata(MetadataHookInterface):
    """Sets the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the addresses and the README."""
        repository = self.config["repository"].rstrip("/")
        metadata["urls"] = {
            "Homepage": repository,
            "Documentation": f"{repository}/blob/main/docs/index.md",
            "Source": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        }
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(readme, repository),
        }


def with_absolute_links(text: str, repository: str) -> str:
    """The text with the address of each file in place of its path.

    A page shows a file's text, a picture needs its bytes.
    """

    def address(match: re.Match[str]) -> str:
        picture, label, path = match.groups()
        view = "raw" if picture else "blob"
        return f"{picture}[{label}]({repository}/{view}/main/{path})"

    return LINK.sub(address, text)
