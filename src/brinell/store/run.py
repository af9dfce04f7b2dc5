"""One run's folder: what was run, row by row, and the adversarial inputs behind the rows (design/0002-run-folder.md)."""

import fcntl
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save

from brinell.core.errors import RequestError
from brinell.core.record import SCHEMA_VERSION, Outcome, Records
from brinell.store import tables
from brinell.store.files import digest, write_atomically, write_text

PART_BYTES = 8 * 2**20
"""About how much one file of arrays holds, so that a stage's inputs never have to be in memory together."""

NEEDED = ("schema", "state", "request", "data", "models", "distance", "eps", "eps_text", "stages")
"""Keys without which a manifest is none."""

Array = np.ndarray[Any, Any]


class Run:
    """A run folder, finished or not."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest

    @classmethod
    def open(cls, path: Path | str) -> "Run":
        """The run in a folder.

        Raises:
            RequestError: no run there, or a damaged manifest.
        """
        path = Path(path)
        try:
            manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RequestError(f"{path} is no run folder: it has no manifest.json; brinell audit makes one") from None
        except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            raise RequestError(f"{path / 'manifest.json'} is damaged: {error}") from None
        missing = [key for key in NEEDED if not isinstance(manifest, dict) or key not in manifest]
        if missing:
            raise RequestError(f"{path / 'manifest.json'} is damaged: it does not say {missing[0]}")
        if manifest["schema"] != SCHEMA_VERSION:
            raise RequestError(
                f"{path} was written by another version of brinell (schema {manifest['schema']}): read it with that one"
            )
        return cls(path, manifest)

    def save_manifest(self) -> None:
        """Write the manifest as it is now."""
        write_text(self.path / "manifest.json", json.dumps(self.manifest, indent=1, ensure_ascii=False) + "\n")

    def lock(self) -> AbstractContextManager[None]:
        """Keep a second process from writing here.

        Raises:
            RequestError: one already does, or the folder cannot be made.
        """
        return locked(self.path, ("records", "arrays"))

    # Reading

    def records(self) -> Records:
        """All rows there are, in the order of the manifest: finished stages, and the units of unfinished ones."""
        parts = self._files("records", "part-*")
        finished = {path.stem.removeprefix("part-") for path in parts}
        units = [path for path in self._files("records", "unit-*") if path.stem.split("-")[1] not in finished]
        return tables.read(sorted(parts + units, key=self._place))

    def _place(self, file: Path) -> tuple[int, str]:
        """Where the rows of a file stand among the others: model by model, stage by stage."""
        models, stages = self.manifest.get("models") or [], self.manifest.get("stages") or []
        cells = [cell for model in models for cell in model.get("cells", {}).values()]
        cells += [stage["cells"].get(model["name"]) for model in models for stage in stages]
        cell = file.stem.split("-")[1]
        return cells.index(cell) if cell in cells else len(cells), file.stem

    def has_part(self, cell: str) -> bool:
        """Whether the stage with this cell is complete."""
        return (self.path / "records" / f"part-{cell}.parquet").exists()

    def part(self, cell: str) -> Records:
        """All rows of a complete stage."""
        return tables.read([self.path / "records" / f"part-{cell}.parquet"])

    def units(self, cell: str) -> dict[str, Records]:
        """The rows computed so far for an unfinished stage, by unit."""
        return {path.stem: tables.read([path]) for path in self._files("records", f"unit-{cell}-*")}

    def adversarial(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, Array]:
        """The closest adversarial input of a stage, for those of `ids` that have one: float32, shape of the domain."""
        found: dict[int, Array] = {}
        for path, samples in self._holding(model, attack, ids, closest_units):
            found |= _read_arrays([path], samples)
        return found

    def extras(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, dict[str, Array]]:
        """What a stage says of each of `ids` besides, by name: of every sample that it attacked, if it says anything at all.

        Where a sample was fooled they belong to the input that `adversarial` answers. What they mean stands in `legend`.
        """
        found: dict[int, dict[str, Array]] = {}
        if self.legend(model, attack):
            for path, samples in self._holding(model, attack, ids, telling_units):
                for name, array in _read_named([path], samples, inputs=False).items():
                    sample, _, what = name.partition("/")
                    found.setdefault(int(sample), {})[what] = array
        return found

    def legend(self, model: str, attack: str) -> dict[str, Any]:
        """What the numbers in the extras of a stage stand for; empty where there are none."""
        return dict(self.manifest.get("extras", {}).get(model, {}).get(attack, {}))

    def _holding(
        self, model: str, attack: str, ids: Sequence[int], of_units: Callable[[Mapping[str, Records]], dict[int, str]]
    ) -> Iterator[tuple[Path, list[int]]]:
        """The files of a stage, each with those of `ids` that may be in it; of an unfinished one as `of_units` says."""
        cells = [stage["cells"].get(model) for stage in self.manifest["stages"] if stage["name"] == attack]
        if not cells or cells[0] is None:
            return
        samples = [int(sample) for sample in ids]
        parts = self._files("arrays", f"part-{cells[0]}-*")
        for path in parts:
            yield path, samples
        holder = {} if parts else of_units(self.units(cells[0]))
        for unit in sorted({holder[sample] for sample in samples if sample in holder}):
            path = self.path / "arrays" / f"{unit}.safetensors"
            yield path, [sample for sample in samples if holder.get(sample) == unit]

    def clean(self, ids: Sequence[int]) -> dict[int, Array]:
        """The clean inputs that the run keeps for its gallery, for those of `ids` that are among them."""
        return _read_arrays(self._files("arrays", "clean-*"), ids)

    def _files(self, folder: str, pattern: str) -> list[Path]:
        return sorted((self.path / folder).glob(pattern))

    # Writing

    def save_unit(
        self,
        cell: str,
        key: str,
        records: Records,
        arrays: Mapping[int, Array],
        extras: Mapping[int, Mapping[str, Array]] | None = None,
    ) -> str:
        """Write one unit, arrays first, so that rows never point at an input that is not there. Returns its name.

        Args:
            cell: the stage's cell.
            key: what the unit is known by within it.
            records: its rows.
            arrays: adversarial inputs by sample.
            extras: what the attack says of samples besides, by sample and name.
        """
        name = f"unit-{cell}-{key}"
        besides = {f"{sample}/{what}": array for sample, named in (extras or {}).items() for what, array in named.items()}
        if arrays or besides:
            self._save_arrays(name, {str(sample): array for sample, array in arrays.items()} | besides)
        write_atomically(self.path / "records" / f"{name}.parquet", lambda path: tables.write(path, records, cell))
        return name

    def save_clean(self, cell: str, arrays: Mapping[int, Array]) -> None:
        """Keep some clean inputs for the gallery."""
        self._save_arrays(f"clean-{cell}", {str(sample): array for sample, array in arrays.items()})

    def save_part(self, cell: str, records: Records, units: Mapping[int, str]) -> None:
        """Complete a stage: all its rows in one file, what its arrays say of each sample, and no units any more.

        Args:
            cell: the stage's cell.
            records: all rows of the stage.
            units: for each sample of which an array is kept, the unit that holds it.
        """
        samples = sorted(units)
        size = 4 * math.prod(self.manifest["data"]["domain"]["shape"])
        per_part = max(1, PART_BYTES // size)
        for number, start in enumerate(range(0, len(samples), per_part)):
            group = samples[start : start + per_part]
            arrays: dict[str, Array] = {}
            for unit in sorted({units[sample] for sample in group}):
                wanted = [sample for sample in group if units[sample] == unit]
                arrays |= _read_named([self.path / "arrays" / f"{unit}.safetensors"], wanted)
            self._save_arrays(f"part-{cell}-{number:04d}", arrays)
        write_atomically(self.path / "records" / f"part-{cell}.parquet", lambda path: tables.write(path, records, cell))
        self.drop_units(cell)

    def drop_units(self, cell: str) -> None:
        """Delete what a complete part has made superfluous."""
        for path in self._files("records", f"unit-{cell}-*") + self._files("arrays", f"unit-{cell}-*"):
            path.unlink()

    def _save_arrays(self, name: str, arrays: Mapping[str, Array]) -> None:
        tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_atomically(self.path / "arrays" / f"{name}.safetensors", lambda path: path.write_bytes(save(tensors)))

    def digests(self) -> dict[str, str]:
        """Hash of every records and arrays file, by its path in the folder."""
        files = self._files("records", "*.parquet") + self._files("arrays", "*.safetensors")
        return {path.relative_to(self.path).as_posix(): digest(path) for path in files}


@contextmanager
def locked(path: Path, folders: Sequence[str]) -> Iterator[None]:
    """Keep a second process from writing to a folder that is made where it is not there, and clear up after one that was killed.

    Raises:
        RequestError: one already does, or the folder cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("w")
    except OSError as error:
        raise RequestError(f"{path} cannot be a run folder ({error.strerror}): choose another --out") from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(f"another process is writing to {path}: wait for it, or choose another --out") from None
        for folder in (path, *(path / name for name in folders)):
            for half in folder.glob(".*.tmp"):  # what a kill in the middle of writing left behind
                half.unlink()
        yield


def closest_units(units: Mapping[str, Records]) -> dict[int, str]:
    """For each fooled sample the unit that holds its adversarial input at the smallest eps."""
    best: dict[int, tuple[float, str]] = {}
    for name, records in units.items():
        fooled = records.outcome == Outcome.FOOLED
        for sample, eps in zip(records.sample_id[fooled].tolist(), records.eps[fooled].tolist(), strict=True):
            best[sample] = min(best.get(sample, (eps, name)), (eps, name))
    return {sample: name for sample, (_, name) in best.items()}


def telling_units(units: Mapping[str, Records]) -> dict[int, str]:
    """For each attacked sample the unit whose arrays speak of it: that of its closest input, and where it stood the first one."""
    told: dict[int, str] = {}
    for name in sorted(units):
        records = units[name]
        for sample in np.unique(records.sample_id[records.outcome != Outcome.FAILED]).tolist():
            told.setdefault(int(sample), name)
    return told | closest_units(units)


def _read_arrays(paths: Iterable[Path], ids: Sequence[int]) -> dict[int, Array]:
    return {int(name): array for name, array in _read_named(paths, ids, extras=False).items()}


def _read_named(paths: Iterable[Path], ids: Sequence[int], *, inputs: bool = True, extras: bool = True) -> dict[str, Array]:
    """What files hold of samples by name: `7` is an input, `7/patches` what an attack says of it besides."""
    wanted = {str(int(sample)) for sample in ids}
    found: dict[str, Array] = {}
    for path in paths:
        try:
            with safetensors.safe_open(path, "np") as file:
                names = [(name, *name.partition("/")) for name in file.keys()]
                chosen = [name for name, of, slash, _ in names if of in wanted and (extras if slash else inputs)]
                found |= {name: file.get_tensor(name) for name in chosen}
        except (OSError, safetensors.SafetensorError) as error:
            raise RequestError(f"{path} is damaged or missing ({error}): the run's inputs cannot be read") from None
    return found
