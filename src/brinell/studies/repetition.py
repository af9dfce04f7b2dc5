"""Verifies the folder of a study: carries its request out again in another folder, and compares both.

The manifest, the rows and the stored arrays must come out again, and the tables and the page must be those that the records
produce. What a study does not make again, because it is dear or because people answered, its record lists as `claimed`.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.engine.job import settings_text
from brinell.engine.progress import SilentProgress
from brinell.engine.toml import parse_request
from brinell.store.differences import (
    Claims,
    Comparison,
    compare_folders,
    compare_single_files,
    compare_texts,
    is_data,
    list_files,
    read_manifest,
)
from brinell.store.folder import MANIFEST, REQUEST, fitting
from brinell.store.run import LAYOUT
from brinell.store.standing import CLAIMED
from brinell.store.trust import without_mark
from brinell.studies.kit import Call, Study
from brinell.studies.register import studies, study_of


def claims_of(study: Study, replaced: Mapping[str, Any] | None = None) -> Claims:
    """The claims of a study's folders; `replaced` are settings that the person gave in place of the folder's."""
    names = {f"{MANIFEST}:request.{name}": "the names of models and data that you replaced" for name in replaced or {}}
    if names:
        names |= {f"{MANIFEST}:{key}": next(iter(names.values())) for key in ("cell", "*.spec", "data.name")}
    return Claims({**CLAIMED, **dict(study.claimed), **names})


def repeat(call: Call, folder: Path, comparison: Comparison, replaced: Mapping[str, Any] | None = None, **settings: Any) -> None:
    """Carry the request of a folder out again, and compare both folders.

    Args:
        call: a call with the models and data that the person gives.
        folder: the folder.
        comparison: collects the differences.
        replaced: settings that the person gave in place of the folder's.
        **settings: the study, the request of the folder, and what else the call is to have.

    Raises:
        RequestError: the request cannot be carried out, or a file of the folder is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="brinell-") as directory:
        again = Path(directory) / f"again{folder.suffix if folder.is_file() else ''}"
        quiet = replace(call, **settings, out=again, progress=SilentProgress())
        study, claims = quiet.study, claims_of(quiet.study, replaced)
        if study.repeat is None:
            study.resolve(study.run)(quiet)
        else:
            study.resolve(study.repeat)(quiet, folder)
        with fitting(folder):
            if folder.is_file():
                compare_single_files(folder, again, claims, comparison)
            else:
                compare_folders(folder, again, claims, comparison)
                if not comparison.differences:
                    check_texts(folder, claims, comparison)


def identify(path: Path) -> tuple[Study, dict[str, Any]]:
    """The study that made a folder or a file, and its manifest.

    Raises:
        RequestError: none did, or the manifest is damaged.
    """
    if not path.is_file():
        study = study_of(path)
        return study, study.resolve(study.layout).read(path)
    for study in (study for study in studies().values() if study.file is not None):
        with suppress(RequestError):
            return study, study.resolve(study.file)(path)
    makers = ", ".join(f"brinell {study.verb}" for study in studies().values() if study.file is not None)
    raise RequestError(f"{path} is no file that can be verified, which {makers} writes: name such a file, or a folder")


def check_texts(folder: Path, claims: Claims, comparison: Comparison) -> None:
    """Compare request file, tables and page of a folder with those that its manifest and records produce.

    An audit that has neither shows nothing.
    """
    for manifest in (Path(name) for name in list_files(folder) if Path(name).name == MANIFEST):
        if not claims.covers(manifest.as_posix()):
            _check_request_file(folder / manifest.parent, (manifest.parent / REQUEST).as_posix(), comparison)
    if all(is_data(name) or claims.covers(name) for name in list_files(folder)) and study_of(folder).verb == LAYOUT.verb:
        return
    with _written_anew(folder) as anew:
        compare_texts(folder, anew, claims, comparison)


def proved_manifests(study: Study, folder: Path, manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The manifest of a study and those of the audits in its folder, without the keys that they claim."""
    paths = [Path(name) for name in list_files(folder) if Path(name).name == MANIFEST] if folder.is_dir() else []
    nested = {path.as_posix(): read_manifest(folder / path.parent) for path in paths if path.as_posix() != MANIFEST}
    claims = claims_of(study)
    return [
        {key: value for key, value in content.items() if not claims.covers(name, key)}
        for name, content in {MANIFEST: manifest, **nested}.items()
    ]


@contextmanager
def _written_anew(folder: Path) -> Iterator[Path]:
    """A copy of a folder with its data, and with tables and pages that are written anew from them."""
    with tempfile.TemporaryDirectory(prefix="brinell-") as directory:
        copy = Path(directory) / "copy"
        for name in list_files(folder):
            if is_data(name):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                if (folder / name).is_symlink():
                    raise RequestError(f"{folder / name} is a link: put the file in its place")
                shutil.copyfile(folder / name, copy / name)
        for manifest in sorted(copy.rglob(MANIFEST), key=lambda path: -len(path.parts)):
            study = study_of(manifest.parent)
            if (reference := study.rewrite or study.page) is not None:
                place = () if study.sources is None else (folder / manifest.parent.relative_to(copy),)
                study.resolve(reference)(manifest.parent, *place)
        yield copy


def _check_request_file(folder: Path, name: str, comparison: Comparison) -> None:
    file, study, manifest = folder / REQUEST, study_of(folder), read_manifest(folder)
    if not file.exists():
        return
    request = parse_request(study.request, dict(manifest["request"]))
    text = settings_text(study.resolve(study.layout), request, str(manifest.get("command")), folder)
    if without_mark(bounded.text(file)) != without_mark(text):
        comparison.note(name, "the file differs from the request in the manifest")
