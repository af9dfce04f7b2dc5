"""One run's folder: what was run, row by row, and the adversarial inputs behind the rows (design/0002-run-folder.md)."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError, option
from brinell.core.record import SCHEMA_VERSION, Array, Outcome, Records, has_broken
from brinell.store import parquet, rows
from brinell.store.files import names_of_arrays, read_arrays, write_arrays
from brinell.store.folder import Layout
from brinell.store.row_rules import Violation, find_violations, make_cells
from brinell.store.run_manifest import RunManifest, cells_of

PART_BYTES = 8 * 2**20
"""About how much one file of arrays holds, so that a stage's inputs never have to be in memory together."""
PART_SAMPLES = 1 << 13
"""Samples that it holds at most: of small inputs, their names take more memory than they."""
NO_ROWS = rows.build(
    Records, 0, **{name: [] for name in ("model", "sample_id", "label", "clean_pred", "clean_confidence", "attack")},
    distance=[], unit=[], outcome=[],
)  # fmt: skip

SUMS = ("forwards", "backwards", "judge_forwards", "surrogate_passes", "seconds")
"""Columns that add up over the attacks of a stage on a sample."""

LAYOUT = Layout(verb="audit", noun="run", version=SCHEMA_VERSION, manifest=RunManifest)


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
    """A run folder, finished or not.

    A stage that attacked a sample has one file of rows, `records/part-CELL.parquet`, and the closest adversarial inputs in
    `arrays/part-CELL-NNNN.safetensors`; a stage with nothing to do has none. While a stage is under way, each group of samples
    that was attacked has a `group-CELL-KEY` of both.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest, self._checked = path, manifest, False

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
        """All rows there are, in the order of the manifest: finished stages, and the groups of an unfinished one.

        Raises:
            RequestError: a file is damaged, missing or foreign, or rows of a finished run break a rule (`store.row_rules`).
        """
        parts = self._parts()
        if self.manifest["state"] == "finished" and not self._checked:
            for location, violation in self._violations(parts):
                ids = ", ".join(map(str, violation.samples[:5].tolist()))
                samples = f" (samples {ids}{' ...' if len(violation.samples) > 5 else ''})" if len(violation.samples) else ""
                problem = f"{location}: {violation.description}{samples}"
                raise RequestError(f"{self.path} was forged or damaged: {problem}: make it again")
            self._checked = True
        return rows.concatenate([NO_ROWS, *parts])

    def violations(self) -> Iterator[tuple[str, Violation]]:
        """The rules that rows break, each with the model and the stage."""
        return self._violations(self._parts())

    def _parts(self) -> list[Records]:
        return [self.part(cell) for cell in cells_of(self.manifest)]

    def _violations(self, parts: Sequence[Records]) -> Iterator[tuple[str, Violation]]:
        clean, broken = None, dict[int, float]()
        for (_, facts), part in zip(make_cells(self.manifest), parts, strict=True):
            clean, broken = (None, {}) if facts.is_clean else (clean, broken)
            for violation in find_violations(facts, part, clean, broken):
                yield facts.location, violation
            clean = part if facts.is_clean else clean
            index = np.flatnonzero(has_broken(part))
            for sample, eps in zip(part.sample_id[index].tolist(), part.broken[index].tolist(), strict=True):
                broken[sample] = min(eps, broken.get(sample, eps))

    def has_part(self, cell: str) -> bool:
        """True if the stage with this cell is complete and attacked a sample."""
        return (self.path / "records" / f"part-{cell}.parquet").exists()

    def part(self, cell: str) -> Records:
        """The rows of the stage whose key in the manifest is `cell`; of an unfinished stage those of its groups."""
        path = self.path / "records" / f"part-{cell}.parquet"
        if path.exists() or path.relative_to(self.path).as_posix() in (self.manifest.get("files") or {}):
            return parquet.read(path)
        return rows.concatenate([NO_ROWS, *(records for _, records in self.groups(cell))])

    def groups(self, cell: str) -> Iterator[tuple[str, Records]]:
        """The groups of an unfinished stage that were attacked, by name, with their rows; damaged ones are attacked again."""
        for path in self._files("records", f"group-{cell}-*.parquet"):
            try:
                yield path.stem, parquet.read(path)
            except RequestError:
                path.unlink()

    def adversarial(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, Array]:
        """The closest adversarial input of a stage, for those of `ids` that have one: float32, shape of the domain."""
        inputs: dict[int, Array] = {}
        for path, samples in self._holding(model, attack, ids):
            inputs |= {int(name): array for name, array in self._read_named(path, samples, extras=False).items()}
        return inputs

    def stored(self, model: str, attack: str) -> set[int]:
        """The samples of which a finished stage keeps an adversarial input."""
        return {int(name) for name in self._array_names(model, attack) if "/" not in name}

    def _array_names(self, model: str, attack: str) -> set[str]:
        cells = [stage["cells"].get(model) for stage in self.manifest["stages"] if stage["name"] == attack]
        paths = [path for cell in cells for path in self._files("arrays", f"part-{cell}-*")]
        return {name for path in paths for name in names_of_arrays(path)}

    def extras(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, dict[str, Array]]:
        """Arrays that an attack stored for each of `ids`, by name; only samples that the stage attacked, if it stored any.

        For a sample with an adversarial example they belong to the input that `adversarial` returns. `legend` explains them.
        """
        extras: dict[int, dict[str, Array]] = {}
        if self.legend(model, attack):
            for path, samples in self._holding(model, attack, ids):
                for name, array in self._read_named(path, samples, inputs=False).items():
                    sample, _, key = name.partition("/")
                    extras.setdefault(int(sample), {})[key] = array
        return extras

    def legend(self, model: str, attack: str) -> dict[str, Any]:
        """Meaning of the numbers in the extras of a stage; empty if it has no extras."""
        return dict(self.manifest.get("extras", {}).get(model, {}).get(attack, {}))

    def _holding(self, model: str, attack: str, ids: Sequence[int]) -> Iterator[tuple[Path, list[int]]]:
        """The files of a stage, each with those of `ids` that may be in it."""
        cells = [stage["cells"].get(model) for stage in self.manifest["stages"] if stage["name"] == attack]
        if not cells or cells[0] is None:
            return
        samples = [int(sample) for sample in ids]
        parts = self._files("arrays", f"part-{cells[0]}-*")
        for path in parts:
            yield path, samples
        if not parts:
            holders = holders_of({name: records for name, records in self.groups(cells[0])})
            for name in sorted({holders[sample] for sample in samples if sample in holders}):
                path = self.path / "arrays" / f"{name}.safetensors"
                yield path, [sample for sample in samples if holders.get(sample) == name]

    def clean(self, cell: str = "*") -> dict[int, Array]:
        """The clean inputs that the run keeps for its gallery, by sample; of one model, if its clean `cell` is given."""
        files = self._files("arrays", f"clean-{cell}.safetensors")
        return {int(name): array for path in files for name, array in read_arrays(path).items()}

    def _read_named(self, path: Path, ids: Iterable[int], *, inputs: bool = True, extras: bool = True) -> dict[str, Array]:
        """Arrays of samples in a file by name: `7` is an input, `7/patches` an extra array of the attack."""
        samples = {str(int(sample)) for sample in ids}

        def is_wanted(name: str) -> bool:
            sample, slash, _ = name.partition("/")
            return sample in samples and (extras if slash else inputs)

        return read_arrays(path, is_wanted) if path.exists() else {}

    def _files(self, folder: str, pattern: str) -> list[Path]:
        return sorted((self.path / folder).glob(pattern))

    # Writing

    def save_group(
        self,
        cell: str,
        key: str,
        records: Records,
        arrays: Mapping[int, Array],
        extras: Mapping[int, Mapping[str, Array]],
    ) -> None:
        """Keep a group of samples that was attacked, arrays first, so that rows never point at an input that is not there.

        A kill of the process loses none of it; it is not flushed to the disk, because the stage that it is part of will be.

        Args:
            cell: the cell of the stage.
            key: what the group is known by within the stage.
            records: its rows.
            arrays: adversarial inputs by sample.
            extras: what the attack says of samples besides, by sample and name.
        """
        besides = {f"{sample}/{name}": array for sample, entries in extras.items() for name, array in entries.items()}
        name, inputs = f"group-{cell}-{key}", {str(sample): array for sample, array in arrays.items()}
        if arrays or besides:
            write_arrays(self.path / "arrays" / f"{name}.safetensors", inputs | besides, durable=False)
        parquet.write(self.path / "records" / f"{name}.parquet", records, durable=False)

    def save_clean(self, cell: str, arrays: Mapping[int, Array]) -> None:
        """Keep some clean inputs for the gallery."""
        entries = {str(sample): array for sample, array in arrays.items()}
        write_arrays(self.path / "arrays" / f"clean-{cell}.safetensors", entries)

    def save_part(self, cell: str, records: Records) -> None:
        """Complete a stage: all its rows, samples ascending, the arrays of its groups that count, and no groups any more."""
        holders = holders_of(dict(self.groups(cell)))
        names = {path.stem for path in self._files("arrays", f"group-{cell}-*")}
        samples = [sample for sample in sorted(holders) if holders[sample] in names]
        size = 4 * math.prod(self.manifest["data"]["domain"]["shape"])
        per_part = max(1, min(PART_SAMPLES, PART_BYTES // size))
        for number, start in enumerate(range(0, len(samples), per_part)):
            arrays: dict[str, Array] = {}
            members = samples[start : start + per_part]
            for name in sorted({holders[sample] for sample in members}):
                held = [sample for sample in members if holders[sample] == name]
                arrays |= self._read_named(self.path / "arrays" / f"{name}.safetensors", held)
            if arrays:
                write_arrays(self.path / "arrays" / f"part-{cell}-{number:04d}.safetensors", arrays)
        if len(records):
            parquet.write(self.path / "records" / f"part-{cell}.parquet", records)
        self.drop_groups(cell)

    def drop_groups(self, cell: str, keys: Iterable[str] = ("*",)) -> None:
        """Delete groups that a complete stage, or another batch size, has made superfluous; all unless keys are given."""
        for key in keys:
            for path in self._files("records", f"group-{cell}-{key}.*") + self._files("arrays", f"group-{cell}-{key}.*"):
                path.unlink()


def merge_attacks(attacks: Sequence[Records]) -> Records:
    """The row of each sample from the rows of all attacks of a stage on it, which descend through the budgets.

    Sizes and classes are those of the closest adversarial input, the margin is that of the last attack, the queries until success
    are those of the first, and costs add up.
    """
    records = rows.concatenate([NO_ROWS, *attacks])
    if not len(records):
        return records
    ids, inverse = np.unique(records.sample_id, return_inverse=True)
    order = np.lexsort((-np.ma.getdata(records.attacked), records.sample_id))
    starts = np.searchsorted(records.sample_id[order], ids)
    ends = np.append(starts[1:], len(order)) - 1
    first, last = order[starts], order[ends]
    closest = order[np.maximum(ends - np.ma.getmaskarray(records.broken)[last], starts)]
    merged = rows.take(records, closest)
    columns = {name: np.bincount(inverse, getattr(records, name), len(ids)) for name in SUMS}
    failed = np.flatnonzero(records.outcome[last] == Outcome.FAILED)
    outcome = merged.outcome.copy()
    outcome[failed] = str(Outcome.FAILED)
    return replace(
        merged,
        attacked=records.attacked[first],
        outcome=outcome,
        margin=records.margin[last],
        queries_to_success=records.queries_to_success[first],
        **{name: values.astype(getattr(records, name).dtype) for name, values in columns.items()},
    )


def holders_of(groups: Mapping[str, Records]) -> dict[int, str]:
    """For each sample the group whose arrays speak of it: that of its closest input, or of its only attack."""
    holders: dict[int, str] = {}
    lowest: dict[int, float] = {}
    for name, records in groups.items():
        broken = np.ma.filled(records.broken, np.inf)
        for sample, eps in zip(records.sample_id.tolist(), broken.tolist(), strict=True):
            if sample not in lowest or eps < lowest[sample]:
                holders[sample], lowest[sample] = name, eps
    return holders
