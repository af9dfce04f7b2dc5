"""The standing of everything in the folder of a run is decided, and nothing is decided that is not there."""

from fnmatch import fnmatch

from brinell.core.record import COLUMNS
from brinell.store.run_manifest import RunManifest
from brinell.store.standing import RUN_COLUMNS, RUN_FILES, RUN_KEYS


def test_every_column_has_a_standing():
    assert set(RUN_COLUMNS) == set(COLUMNS)


def test_every_key_of_a_manifest_has_a_standing():
    assert set(RUN_KEYS) == {field.alias or name for name, field in RunManifest.model_fields.items()}


def test_every_file_of_a_run_has_a_standing(audit_run):
    files = [path for path in audit_run.rglob("*") if path.is_file() and not path.name.startswith(".")]
    names = {path.relative_to(audit_run).as_posix() for path in files}
    assert {name for name in names if not any(fnmatch(name, pattern) for pattern in RUN_FILES)} == {"manifest.json"}
