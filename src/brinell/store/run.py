"""One run's folder: what was run, row by row, and the adversarial inputs behind the rows (design/0002-run-folder.md)."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError, option
from brinell.core.record import CLEAN, SCHEMA_VERSION, Array, Outcome, Records
from brinell.store import in_place, parquet, rows
from brinell.store.files import digest, names_of_arrays, read_arrays, write_arrays
from brinell.store.folder import Layout
from brinell.store.joining import Block
from brinell.store.row_rules import Violation, find_violations, make_cells, smallest_successes
from brinell.store.run_manifest import RunManifest, cells_of

PART_BYTES = 8 * 2**20
"""About how much one file of arrays holds, so that a stage's inputs never have to be in memory together."""
PART_SAMPLES = 1 << 13
"""Samples that it holds at most: of small inputs, their names take more memory than they."""

LAYOUT = Layout(verb="audit", noun="run", version=SCHEMA_VERSION, manifest=RunManifest, digests_at_open=False)


def threshold_of(manifest: Mapping[str, Any]) -> str | None:
    """The criterion of probability of a run as its user wrote it; None if classes decide."""
    criterion = manifest.get("criterion") or {}
    return str(criterion["text"]) if criterion.get("name") == "probability" else None


def refuse_threshold(manifest: Mapping[str, Any], path: str) -> None:
    """Refuse a run with a criterion of probability where robust accuracy is meant.

    Raises:
        RequestError: the run has such a criterion.
    """
    if (criterion := threshold_of(manifest)) is not None:
        raise RequestError(
            f"{path} states the share of inputs that do not meet {criterion}, which is not robust accuracy: name the run of an "
            f"audit without {option('criterion')}"
        )


class Run:
    """A run folder, finished or not."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest, self._checked = path, manifest, False
        self._rows_of_parts: Records | None = None
        """All rows of a small finished run, once they were read to be checked."""

    @classmethod
    def open(cls, path: Path | str, *, thresholds: bool = False) -> "Run":
        """The run in a folder.

        Args:
            path: the folder.
            thresholds: whether a run with a criterion of probability will do, whose figures are no robust accuracy.

        Raises:
            RequestError: no run there, a damaged manifest, a run of another version, or one with a criterion of probability.
        """
        run = cls(Path(path), LAYOUT.open(Path(path)))
        if not thresholds:
            refuse_threshold(run.manifest, str(path))
        return run

    @classmethod
    def open_finished(cls, path: Path | str) -> "Run":
        """The run in a folder, whose files and rows are checked; an unfinished one has no inventory by which they could be.

        Raises:
            RequestError: as for `open`, or the run is not finished.
        """
        run = cls.open(path)
        if run.manifest["state"] != "finished":
            command = f"{LAYOUT.command} {option('resume')} {option('out', str(path))}"
            raise RequestError(f"{path} is not finished: go on with {command} first")
        return run

    def save_manifest(self) -> None:
        """Write the manifest as it is now."""
        LAYOUT.save(self.path, self.manifest)

    # Reading

    def records(self) -> Records:
        """All rows there are, in the order of the manifest: finished stages, and the shards of unfinished ones.

        Raises:
            RequestError: a file is damaged, missing or foreign, or rows of a finished run break a rule (`store.row_rules`).
        """
        self.check_rows()
        return parquet.read(self._rows(), self._expected) if self._rows_of_parts is None else self._rows_of_parts

    def records_in_place(self) -> Records:
        """The same rows, which stay in their files: a column is read when it is looked at, as long as the run is not changed."""
        self.check_rows()
        return in_place.records(self._rows(), self._expected) if self._rows_of_parts is None else self._rows_of_parts

    def check_rows(self) -> None:
        """Refuse a finished run whose rows break a rule; the rows are read once.

        Raises:
            RequestError: the first rule that is broken, with the samples.
        """
        if self.manifest["state"] != "finished" or self._checked:
            return
        for location, violation in self.violations():
            ids = ", ".join(map(str, violation.samples[:5].tolist()))
            samples = f" (samples {ids}{' ...' if len(violation.samples) > 5 else ''})" if len(violation.samples) else ""
            raise RequestError(f"{self.path} was forged or damaged: {location}: {violation.description}{samples}: make it again")
        self._checked = True

    def violations(self) -> Iterator[tuple[str, Violation]]:
        """The rules that rows break, each with the model and the stage."""
        clean, parts, count = None, list[Records](), 0
        broken: dict[int, float] = {}
        for cell, facts in make_cells(self.manifest):
            part = self.part(cell)
            clean, broken = (None, {}) if facts.stage == CLEAN else (clean, broken)
            for violation in find_violations(facts, part, clean, broken):
                yield facts.location, violation
            clean = part if facts.stage == CLEAN else clean
            for sample, eps in smallest_successes(part).items():
                broken[sample] = min(eps, broken.get(sample, eps))
            count += len(part)
            parts = [*parts, part] if count <= in_place.SMALL else []
        self._rows_of_parts = rows.concatenate(parts) if parts and count <= in_place.SMALL else None

    def _rows(self) -> list[Path]:
        """The files of all rows, in order: the parts of the cells in the manifest, and the shards of those without a part."""
        files: list[Path] = []
        for cell in self.cells():
            part = self.path / "records" / f"part-{cell}.parquet"
            files += [part] if part.exists() else self.shard_files(cell)
        return files

    def cells(self) -> list[str]:
        """The cells of the run, model by model, stage by stage."""
        return cells_of(self.manifest)

    def _expected(self, path: Path) -> str | None:
        """The hash of a file as the manifest of a finished run has it."""
        if self.manifest["state"] != "finished":
            return None
        digest = (self.manifest.get("files") or {}).get(path.relative_to(self.path).as_posix())
        if digest is None:
            raise RequestError(f"{path} was not there when the run ended: take it away")
        return str(digest)

    def has_part(self, cell: str) -> bool:
        """True if the stage with this cell is complete."""
        return (self.path / "records" / f"part-{cell}.parquet").exists()

    def part(self, cell: str) -> Records:
        """All rows of the complete stage whose key in the manifest is `cell`. The hash is checked if the run is finished."""
        return parquet.read([self.path / "records" / f"part-{cell}.parquet"], self._expected)

    def part_in_place(self, cell: str) -> Records:
        """The same rows as `part`, read as `records_in_place` does."""
        return in_place.records([self.path / "records" / f"part-{cell}.parquet"], self._expected)

    def part_in_groups(self, cell: str) -> Iterator[Records]:
        """The same rows, some ten thousand at a time, of which only the columns are read that are looked at."""
        path = self.path / "records" / f"part-{cell}.parquet"
        return in_place.groups(path, self._expected(path))

    def shards(self, cell: str) -> dict[str, Records]:
        """The rows computed so far for an unfinished stage, by shard."""
        return {path.stem: parquet.read([path]) for path in self.shard_files(cell)}

    def shard_files(self, cell: str) -> list[Path]:
        """The files of these rows."""
        return self._files("records", f"shard-{cell}-*")

    def shard(self, cell: str, key: str) -> Records:
        """The rows of one shard of an unfinished stage."""
        return parquet.read([self.path / "records" / f"shard-{cell}-{key}.parquet"])

    def adversarial(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, Array]:
        """The closest adversarial input of a stage, for those of `ids` that have one: float32, shape of the domain."""
        inputs: dict[int, Array] = {}
        for path, samples in self._holding(model, attack, ids, closest_shards):
            inputs |= self._read_arrays([path], samples)
        return inputs

    def stored(self, model: str, attack: str) -> set[int]:
        """The samples of which a finished stage keeps an adversarial input."""
        return {int(name) for name in self._array_names(model, attack) if "/" not in name}

    def stored_extras(self, model: str, attack: str) -> set[int]:
        """The samples of which a finished stage keeps other arrays."""
        return {int(name.partition("/")[0]) for name in self._array_names(model, attack) if "/" in name}

    def _array_names(self, model: str, attack: str) -> set[str]:
        cells = [stage["cells"].get(model) for stage in self.manifest["stages"] if stage["name"] == attack]
        paths = [path for cell in cells for path in self._files("arrays", f"part-{cell}-*")]
        return {name for path in paths for name in names_of_arrays(path, self._expected(path))}

    def extras(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, dict[str, Array]]:
        """Arrays that an attack stored for each of `ids`, by name; only samples that the stage attacked, if it stored any.

        For a sample with an adversarial example they belong to the input that `adversarial` returns. `legend` explains them.
        """
        extras: dict[int, dict[str, Array]] = {}
        if self.legend(model, attack):
            for path, samples in self._holding(model, attack, ids, telling_shards):
                for name, array in self._read_named([path], samples, inputs=False).items():
                    sample, _, key = name.partition("/")
                    extras.setdefault(int(sample), {})[key] = array
        return extras

    def legend(self, model: str, attack: str) -> dict[str, Any]:
        """Meaning of the numbers in the extras of a stage; empty if it has no extras."""
        return dict(self.manifest.get("extras", {}).get(model, {}).get(attack, {}))

    def _holding(
        self, model: str, attack: str, ids: Sequence[int], of_shards: Callable[[Mapping[str, Records]], dict[int, str]]
    ) -> Iterator[tuple[Path, list[int]]]:
        """The files of a stage, each with those of `ids` that may be in it; of an unfinished one as `of_shards` says."""
        cells = [stage["cells"].get(model) for stage in self.manifest["stages"] if stage["name"] == attack]
        if not cells or cells[0] is None:
            return
        samples = [int(sample) for sample in ids]
        parts = self._files("arrays", f"part-{cells[0]}-*")
        for path in parts:
            yield path, samples
        holder = {} if parts else of_shards(self.shards(cells[0]))
        for shard in sorted({holder[sample] for sample in samples if sample in holder}):
            path = self.path / "arrays" / f"{shard}.safetensors"
            yield path, [sample for sample in samples if holder.get(sample) == shard]

    def clean(self, cell: str = "*") -> dict[int, Array]:
        """The clean inputs that the run keeps for its gallery, by sample; of one model, if its clean `cell` is given."""
        files = self._files("arrays", f"clean-{cell}.safetensors")
        return {int(name): array for path in files for name, array in read_arrays(path, expected=self._expected(path)).items()}

    def _read_arrays(self, paths: Iterable[Path], ids: Sequence[int]) -> dict[int, Array]:
        """Inputs by sample."""
        return {int(name): array for name, array in self._read_named(paths, ids, extras=False).items()}

    def _read_named(
        self, paths: Iterable[Path], ids: Sequence[int], *, inputs: bool = True, extras: bool = True
    ) -> dict[str, Array]:
        """Arrays of samples in files by name: `7` is an input, `7/patches` an extra array of the attack."""
        samples = {str(int(sample)) for sample in ids}

        def is_wanted(name: str) -> bool:
            """True if an array is to be read."""
            sample, slash, _ = name.partition("/")
            return sample in samples and (extras if slash else inputs)

        return {name: array for path in paths for name, array in read_arrays(path, is_wanted, self._expected(path)).items()}

    def _files(self, folder: str, pattern: str) -> list[Path]:
        return sorted((self.path / folder).glob(pattern))

    # Writing

    def save_shard(
        self,
        cell: str,
        key: str,
        records: Records,
        arrays: Mapping[int, Array],
        extras: Mapping[int, Mapping[str, Array]] | None = None,
    ) -> str:
        """Write one shard of a cell, arrays first, so that rows never point at an input that is not there. Returns its name.

        The `key` is what it is known by within the cell; `arrays` are adversarial inputs by sample, and `extras` what the attack
        says of samples besides, by sample and name.
        """
        name = f"shard-{cell}-{key}"
        besides = {
            f"{sample}/{name_of_extra}": array
            for sample, arrays_of in (extras or {}).items()
            for name_of_extra, array in arrays_of.items()
        }
        if arrays or besides:
            self._save_arrays(name, {str(sample): array for sample, array in arrays.items()} | besides)
        parquet.write(self.path / "records" / f"{name}.parquet", records, cell)
        return name

    def save_clean(self, cell: str, arrays: Mapping[int, Array]) -> None:
        """Keep some clean inputs for the gallery."""
        self._save_arrays(f"clean-{cell}", {str(sample): array for sample, array in arrays.items()})

    def save_part(self, cell: str, blocks: Iterable[Block]) -> None:
        """Complete a stage: all its rows, samples ascending, in one file, what its arrays say of them, and no shards any more."""
        parquet.write_parts(self.path / "records" / f"part-{cell}.parquet", self._keeping(cell, blocks), cell)
        self.drop_shards(cell)

    def _keeping(self, cell: str, blocks: Iterable[Block]) -> Iterator[Records]:
        """The rows of the blocks, while the arrays that they speak of are put into files of the part."""
        size = 4 * math.prod(self.manifest["data"]["domain"]["shape"])
        per_part = max(1, min(PART_SAMPLES, PART_BYTES // size))
        pending: list[tuple[int, str]] = []
        number = 0
        for block in blocks:
            pending += sorted(block.holders.items())
            full = len(pending) // per_part
            for start in range(0, full * per_part, per_part):
                self._join_arrays(f"part-{cell}-{number:04d}", dict(pending[start : start + per_part]))
                number += 1
            pending = pending[full * per_part :]
            yield block.records
        if pending:
            self._join_arrays(f"part-{cell}-{number:04d}", dict(pending))

    def _join_arrays(self, name: str, holders: Mapping[int, str]) -> None:
        """Put the arrays of samples, each in the shard that holds it, into one file."""
        arrays: dict[str, Array] = {}
        for shard in sorted(set(holders.values())):
            samples = [sample for sample, holder in holders.items() if holder == shard]
            arrays |= self._read_named([self.path / "arrays" / f"{shard}.safetensors"], samples)
        self._save_arrays(name, arrays)

    def drop_shards(self, cell: str) -> None:
        """Delete what a complete part has made superfluous."""
        for path in self._files("records", f"shard-{cell}-*") + self._files("arrays", f"shard-{cell}-*"):
            path.unlink()

    def _save_arrays(self, name: str, arrays: Mapping[str, Array]) -> None:
        write_arrays(self.path / "arrays" / f"{name}.safetensors", arrays)

    def digests(self) -> dict[str, str]:
        """Hash of every records and arrays file, by its path in the folder."""
        files = self._files("records", "*.parquet") + self._files("arrays", "*.safetensors")
        return {path.relative_to(self.path).as_posix(): digest(path) for path in files}


def closest_shards(shards: Mapping[str, Records]) -> dict[int, str]:
    """For each fooled sample the shard that holds its adversarial input at the smallest eps."""
    best: dict[int, tuple[float, str]] = {}
    for name, records in shards.items():
        fooled = records.outcome == Outcome.FOOLED
        for sample, eps in zip(records.sample_id[fooled].tolist(), records.eps[fooled].tolist(), strict=True):
            best[sample] = min(best.get(sample, (eps, name)), (eps, name))
    return {sample: name for sample, (_, name) in best.items()}


def telling_shards(shards: Mapping[str, Records]) -> dict[int, str]:
    """For each attacked sample the shard whose arrays speak of it: that of its closest input, otherwise the first one."""
    holders: dict[int, str] = {}
    for name in sorted(shards):
        records = shards[name]
        for sample in np.unique(records.sample_id[records.outcome != Outcome.FAILED]).tolist():
            holders.setdefault(int(sample), name)
    return holders | closest_shards(shards)
