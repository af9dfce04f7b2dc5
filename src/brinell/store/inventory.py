"""The closed inventory of a folder: the exact files that its manifest lists, each with its digest,
and none beside them.

A reader of a folder reads these files and no others. So a file that somebody adds, removes or
changes is refused by every command alike. Pages and tables follow from the files and are written
again at will; they are no part of the inventory.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brinell.core.bounded import digest
from brinell.core.errors import RequestError

FILES = "files"
"""The key of a manifest that holds the inventory: the digest of each file by its path in the
folder."""
DERIVED_FOLDERS = {"tables": (".csv",), "samples": (".png", ".svg")}
"""Folders whose files of these endings follow from the rows: tables, and pictures of the page."""
UNFINISHED = ".parts"
"""The folder that a command keeps within the one that it fills, until that is complete; nobody
reads the rest before."""
GONE = "is missing"
FOREIGN = "was not there when the run ended"
CHANGED = "was changed after the run ended"
MANIFEST = "manifest.json"


def list_files(folder: Path, derived: frozenset[str]) -> list[str]:
    """Paths of all files in a folder that a command may read, sorted, without hidden ones and those
    that follow from others.

    A folder within it that has a manifest has its own inventory: of its files only the manifest is
    listed. Of a folder that another command still fills nothing is listed.

    Args:
        folder: the folder.
        derived: names of files in it that are no part of an inventory, such as its manifest and its
            page.
    """
    names: list[str] = []
    for parent, folders, files in os.walk(folder):
        place = Path(parent)
        # An inventory within this one covers its own files; its manifest binds it.
        if place != folder and (MANIFEST in files or UNFINISHED in folders):
            files = [name for name in files if name == MANIFEST]
            folders.clear()
        # In place: the walk enters the folders that are left in this list.
        folders[:] = [name for name in folders if not name.startswith(".")]

        visible = [name for name in files if not name.startswith(".")]
        # A link could lead out of the folder, to a file that no digest covers.
        for name in [*visible, *folders]:
            if (place / name).is_symlink():
                raise RequestError(f"{place / name} is a symbolic link: replace it by the file")
        endings = DERIVED_FOLDERS.get(place.name, ()) if place.parent == folder else ()
        following = derived if place == folder else frozenset()
        names += [
            (place / name).relative_to(folder).as_posix()
            for name in visible
            if name not in following and not name.endswith(endings)
        ]
    return sorted(names)


def take_inventory(folder: Path, derived: frozenset[str]) -> dict[str, str]:
    """The digest of each file of a folder, by its path."""
    return {name: digest(folder / name) for name in list_files(folder, derived)}


def find_faults(
    folder: Path, manifest: Mapping[str, Any], derived: frozenset[str]
) -> list[tuple[str, str]]:
    """Files of a folder that are not as its manifest lists them: the path of each in the folder,
    and what is wrong.
    """
    entries = manifest.get(FILES) or {}
    try:
        present = set(list_files(folder, derived))
    except RequestError as error:
        return [(MANIFEST, str(error))]

    # A folder with another manifest is not foreign, since no reader looks into it.
    foreign = [name for name in present - entries.keys() if not name.endswith(f"/{MANIFEST}")]
    kept = present & entries.keys()
    changed = [name for name in kept if digest(folder / name) != entries[name]]
    by_problem = {GONE: entries.keys() - present, FOREIGN: foreign, CHANGED: changed}
    return sorted((name, problem) for problem, names in by_problem.items() for name in names)
