"""Random edits of a folder by somebody who read the source: values, rows, keys, arrays and files,
with digests made again.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.core.errors import BrinellError
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import MANIFEST
from brinell.store.inventory import FILES
from brinell.store.parquet import write_table
from brinell.studies.differences import DATA, list_files
from brinell.studies.register import study_of
from brinell.studies.verification.run import declared_claims

OWN_KEYS = ("verb", "schema", FILES)
"""Keys that saving a manifest writes itself."""


def another(value, rng):
    """A value of the same kind that is clearly another one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([-1, 1, 7]))
    if isinstance(value, float):
        changed = 1.5 * value + float(rng.choice([-0.25, 0.25]))
        return changed if changed != value else value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1]) if value else b"x"
    if isinstance(value, dict):
        key = sorted(value)[int(rng.integers(len(value)))] if value else None
        return {"x": 1} if key is None else value | {key: another(value[key], rng)}
    if isinstance(value, list):
        return value[:-1] if value else [1]
    return 1


class Edit:
    """One random edit of a copy of a folder.

    `target` says what it changed: a file, and a column or the place of a value in a manifest.
    """

    def __init__(self, folder, rng):
        self.folder, self.rng, self.target = folder, rng, ("", "")
        kinds = [
            self.rows,
            self.rows,
            self.manifest,
            self.manifest,
            self.arrays,
            self.files,
            self.texts,
            self.settings,
        ]
        while not self.target[0]:
            kinds[int(rng.integers(len(kinds)))]()

    def pick(self, suffix):
        """A file with this suffix; None without one."""
        names = [name for name in list_files(self.folder) if name.endswith(suffix)]
        return names[int(self.rng.integers(len(names)))] if names else None

    def rows(self):
        """Change a value, turn a column round, remove a row, or write one twice."""
        if (name := self.pick(".parquet")) is None:
            return
        table = pq.read_table(self.folder / name)
        rows, column = (
            table.to_pylist(),
            table.column_names[int(self.rng.integers(table.num_columns))],
        )
        if not rows:
            return
        before, index = [row[column] for row in rows], int(self.rng.integers(len(rows)))
        kind = self.rng.choice(["value", "turn", "remove", "twice"])
        if kind == "value":
            value = rows[index][column]
            default = {"string": "x", "bool": True, "double": 0.5, "float": 0.5}.get(
                str(table.schema.field(column).type), 1
            )
            rows[index][column] = default if value is None else another(value, self.rng)
        elif kind == "turn":
            for row, value in zip(rows, before[::-1], strict=True):
                row[column] = value
        elif kind == "remove":
            del rows[index]
        else:
            rows.append(dict(rows[index]))
        if repr([row[column] for row in rows]) == repr(before):  # NaN is not equal to itself
            return
        write_table(self.folder / name, pa.Table.from_pylist(rows, table.schema))
        self.done(name, column if kind in ("value", "turn") else "")

    def manifest(self):
        """Change, remove or add a key of a manifest."""
        name = self.pick(MANIFEST)
        manifest = json.loads((self.folder / name).read_text())
        place, holder = [], manifest
        while isinstance(holder, dict | list) and holder:
            keys = [
                key
                for key in (holder if isinstance(holder, dict) else range(len(holder)))
                if key not in ("verb", "schema", FILES)
            ]
            if not keys:
                break
            place.append((holder, keys[int(self.rng.integers(len(keys)))]))
            holder = holder[place[-1][1]]
        owner, key = place[-1]
        kind = self.rng.choice(["change", "change", "change", "remove", "add"])
        if kind == "change":
            owner[key] = another(owner[key], self.rng)
        elif kind == "remove":
            del owner[key]
        elif isinstance(owner, dict):
            owner["added"] = 1
        else:
            owner.append(1)
        last = "added" if kind == "add" and isinstance(owner, dict) else key
        self.done(name, (*(step for _, step in place[:-1]), last), manifest)

    def arrays(self):
        """Change a value of an array, or remove an array."""
        if (name := self.pick(".safetensors")) is None:
            return
        arrays = read_arrays(self.folder / name)
        if not arrays:
            return
        key = sorted(arrays)[int(self.rng.integers(len(arrays)))]
        if self.rng.random() < 0.3:
            del arrays[key]
        elif arrays[key].size:
            flat = arrays[key].reshape(-1)
            index = int(self.rng.integers(flat.size))
            before = flat[index]
            flat[index] = (
                not before
                if flat.dtype == bool
                else 1
                if flat.dtype.kind == "f" and np.isnan(before)
                else before + 1
            )
        write_arrays(self.folder / name, arrays)
        self.done(name, key)

    def files(self):
        """Remove a file, or add a copy of one beside it."""
        names = list_files(self.folder)
        name = names[int(self.rng.integers(len(names)))]
        file = self.folder / name
        if self.rng.random() < 0.4 and not name.endswith(MANIFEST):
            file.unlink()
        else:
            file = file.with_name(f"{file.stem}-x{file.suffix}")
            file.write_bytes((self.folder / name).read_bytes())
        name = file.relative_to(self.folder).as_posix()
        if name.endswith(DATA):
            self.done(name, "")
        else:
            self.target = (name, "")  # a page that is written anew would be there again

    def texts(self):
        """Change a digit of a page, a table or a card, and write no page after that."""
        names = [name for name in list_files(self.folder) if not name.endswith(DATA)]
        name = names[int(self.rng.integers(len(names)))]
        self._change_digit(name)

    def settings(self):
        """Change a digit of the request file."""
        if (name := self.pick(".toml")) is not None:
            self._change_digit(name)

    def _change_digit(self, name):
        content = bytearray((self.folder / name).read_bytes())
        digits = [index for index, byte in enumerate(content) if 48 <= byte <= 57]
        if digits:
            index = digits[int(self.rng.integers(len(digits)))]
            content[index] = 48 + (content[index] - 47) % 10
            (self.folder / name).write_bytes(content)
            self.target = (name, "")

    def done(self, name, key, manifest=None):
        """Make digests, tables and pages again, as far as the forged records allow."""
        self.target = (name, key)
        manifests = sorted(self.folder.rglob(MANIFEST), key=lambda path: -len(path.parts))
        for file in manifests:
            changed = (
                manifest
                if manifest is not None and file == self.folder / name
                else json.loads(file.read_text())
            )
            save_manifest(file.parent, changed)
        for file in manifests:
            try:
                study = study_of(file.parent)
                if study.leaves_folder:
                    study.write_page(file.parent)
            except (
                BrinellError,
                LookupError,
                ValueError,
                TypeError,
                AttributeError,
                ArithmeticError,
                OSError,
            ):
                pass  # the records are too odd for a page: the old one stays


def is_claimed(study, folder, file, key):
    """True if what an edit changed is declared as claimed."""
    claims = declared_claims(study)
    if file == MANIFEST:
        return claims.cover_value(claims.manifest, key)
    if file.endswith(MANIFEST):
        return claims.cover_value(study_of((folder / file).parent).layout.manifest, key)
    return claims.cover_file(file) or key in claims.columns


def save_manifest(folder, manifest):
    """Write a manifest with the inventory of the files beside it."""
    (folder / MANIFEST).write_text(json.dumps(manifest))
    study = study_of(folder)
    study.layout.save(folder, manifest)
