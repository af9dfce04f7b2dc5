"""Bare paths, such as `FILE.npz`, a folder of class folders or `model.onnx`, as the specs that they
stand for.

Nothing is run and nothing is read but names of files, of a Python file its text, and of a folder
its manifest.
"""

import ast
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from brinell import plugins
from brinell.core.errors import RequestError
from brinell.core.settings import NamesOfRun
from brinell.core.user_files import (
    bound_names,
    expand_home,
    is_windows_path,
    path_hint,
    top_level_statements,
)
from brinell.engine.mistakes import mistake_of_path
from brinell.engine.request import BaseRequest
from brinell.store.folder import verb_of

Kind = Literal["dataset", "model"]

FILES: dict[Kind, dict[str, str]] = {
    "dataset": {".npz": "npz", ".csv": "table", ".tsv": "table", ".parquet": "table"},
    "model": {".onnx": "onnx", ".skops": "sklearn"},
}
"""How a file ends, and the plugin that reads it."""

ORIGINALS = {
    "wfdb": ("*.hea",),
    "cifar10": ("test_batch*", "cifar-10-batches-*/test_batch*"),
    "mnist": ("t10k-images*", "raw/t10k-images*", "MNIST/raw/t10k-images*"),
}
PICTURES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
)
VIDEOS = frozenset((".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv"))
MAX_ENTRIES = 1000
"""Largest number of entries of a folder that are inspected."""


def expand_spec(kind: Kind, spec: str) -> str:
    """Expand a bare path to a spec; any other spec is returned as it is."""
    # An address, and a text that begins with the name of a plug-in, are specs already.
    body, mark, options = expand_home(spec).partition("?")
    if not body or "://" in body or body.partition(":")[0] in plugins.names(kind):
        return spec
    if kind == "model" and (source := _function_spec(body)):
        return f"torch:{source}{mark}{options}"

    path = Path(body)
    # On Windows a colon stands behind the letter of a drive, too.
    if ":" in body and not is_windows_path(body):
        file, _, part = body.partition(":")
        if Path(file).suffix.lower() in FILES[kind]:
            raise _unreadable(kind, body, f"{file} has no part {part!r}, write {file}")
        return spec
    if os.path.isdir(body):
        return f"{_folder_plugin(kind, path)}:{body.rstrip('/') or '/'}{mark}{options}"
    if name := FILES[kind].get(path.suffix.lower()):
        return f"{name}:{body}{mark}{options}"
    _check_name(kind, body)
    return spec


def _check_name(kind: Kind, body: str) -> None:
    """Refuse a text that is meant as a path, and is none of a file that is read."""
    suffix = Path(body).suffix.lower()
    if mistake := mistake_of_path(kind, Path(body)):
        raise _unreadable(kind, body, mistake)
    if suffix and os.path.isfile(body):
        endings = ", ".join(FILES[kind])
        raise _unreadable(kind, body, f"it ends with {suffix}, and not with one of {endings}")
    # A dot before a letter begins an ending; before a digit it is a number, as in a name.
    if "/" in body or "\\" in body or suffix[1:2].isalpha():
        raise RequestError(f"there is no file or folder {body}: check the path{path_hint(body)}")


def _unreadable(kind: Kind, body: str, reason: str) -> RequestError:
    """The error about a path of data or of a model that is not read."""
    subject = "the data" if kind == "dataset" else "the model"
    return RequestError(f"{subject} {body!r} cannot be read: {reason}")


def expand_specs(values: Mapping[str, Any], request: type[BaseRequest]) -> dict[str, Any]:
    """Expand every bare path in the values of a request (`expand_spec`); other values stay as they
    are.
    """
    expanded = dict(values)

    for key, value in values.items():
        mark = request.names_of(key)
        if mark is None or isinstance(mark, NamesOfRun) or mark.kind not in FILES:
            continue
        kind: Kind = "model" if mark.kind == "model" else "dataset"
        if isinstance(value, str):
            expanded[key] = expand_spec(kind, value)
        elif isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
            expanded[key] = tuple(expand_spec(kind, text) for text in value)
    return expanded


def _function_spec(body: str) -> str:
    """`FILE.py:FACTORY` where a body names a function of a Python file; empty for a class of a
    plugin and anything else.
    """
    source, _, name = body.rpartition(":")
    if source.endswith(".py"):
        # A decorated class is a plug-in of the user's own, which is built in another way.
        plugin_names = [
            node.name
            for node in top_level_statements(Path(source))
            if isinstance(node, ast.ClassDef) and node.decorator_list
        ]
        return "" if name in plugin_names else body
    if not body.endswith(".py"):
        return ""

    names = [name for name in bound_names(Path(body)) if not name.startswith("_")]
    hint = "a function without arguments that returns it"
    if names:
        hint = f"it has {', '.join(names[:6])}"
    raise RequestError(
        f"the model {body!r} names no function: write "
        f"{body}:{names[0] if len(names) == 1 else 'FACTORY'} ({hint})"
    )


def _folder_plugin(kind: Kind, folder: Path) -> str:
    """The plugin that reads a folder, by the files in it."""
    if kind == "model" and (folder / "config.json").is_file():
        raise RequestError(
            f"the model {folder} is a folder that save_pretrained wrote: write hf:{folder}"
        )
    if kind == "model":
        raise RequestError(
            f"the model {folder} is a folder: name the file in it, as FILE.onnx, "
            "FILE.skops or model.py:FACTORY"
        )

    if verb_of(folder) == "benchmark":
        return "bench"
    for name, patterns in ORIGINALS.items():
        if any(next(folder.glob(pattern), None) for pattern in patterns):
            return name

    below = _endings(folder, "*/*")
    direct = _endings(folder, "*")
    # Pictures in subfolders of classes, or beside a list of labels.
    has_labels = (folder / "labels.csv").is_file()
    for name, suffixes in (("image-folder", PICTURES), ("video-folder", VIDEOS)):
        if suffixes & below or (has_labels and suffixes & direct):
            return name
    raise RequestError(f"the data {folder} is not recognised: {_folder_remedy(folder, direct)}")


def _endings(folder: Path, pattern: str) -> set[str]:
    """The endings of the first files of a pattern in a folder."""
    return {file.suffix.lower() for file in islice(folder.glob(pattern), MAX_ENTRIES)}


def _folder_remedy(folder: Path, endings: set[str]) -> str:
    """The line to type for a folder whose files have these endings, and that no plugin reads."""
    if endings & (PICTURES | VIDEOS):
        return (
            "its files have no classes: put them in a folder for each class, or list "
            "them with their labels in labels.csv"
        )
    for suffix in FILES["dataset"]:
        if files := sorted(folder.glob(f"*{suffix}")):
            return f"name the file, as {files[0]}"

    if (folder / "run.toml").is_file():
        return "it is a run, whose data is named in its run.toml"
    return (
        "write NAME:DIR with a NAME of `brinell plugins dataset`, or name a "
        "folder that holds a folder for each class"
    )
