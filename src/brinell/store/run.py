"""The folder of an audit (design/0002-run-folder.md): its rows in `rows.parquet`, and in `arrays`
the adversarial inputs behind them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError, option
from brinell.core.record import SCHEMA_VERSION, Array, Outcome, Records
from brinell.store import rows
from brinell.store.files import names_of_arrays, read_arrays, write_arrays
from brinell.store.folder import MANIFEST, Layout, fitting, read_json
from brinell.store.row_rules import find_violations
from brinell.store.run_manifest import RunManifest, stage_files
from brinell.store.table import Folder, FolderTable

PART_BYTES = 8 * 2**20
"""About how much one file of arrays holds, so that a stage's inputs never have to be in memory
together."""
PART_SAMPLES = 1 << 13
"""Samples that it holds at most: of small inputs, their names take more memory than they."""
NO_ROWS = rows.build(
    Records,
    0,
    **{
        name: []
        for name in ("model", "sample_id", "label", "clean_pred", "clean_confidence", "attack")
    },
    distance=[],
    unit=[],
    outcome=[],
)

SUMS = ("forwards", "backwards", "judge_forwards", "surrogate_passes", "seconds")
"""Columns that add up over the attacks of a stage on a sample."""
ACCUMULATED = ("answers", "checks", "probes", "remarks", "extras", "failed", "traffic", "seconds")
"""Keys of the manifest, by model, that are filled while a run goes on."""


def threshold_of(manifest: Mapping[str, Any]) -> str | None:
    """The criterion of a run as its user wrote it; None if the predicted class decides."""
    text = (manifest.get("criterion") or {}).get("text")
    return None if text is None else str(text)


def inner_folder(run: Path, name: str) -> Path | None:
    """The folder `name` that another command keeps in a run; None without one.

    It is of the run's data, models and distance.
    """
    folder = run / name
    if not (folder / MANIFEST).is_file():
        return None

    outer = read_json(run / MANIFEST)
    inner = read_json(folder / MANIFEST)
    with fitting(folder):
        # An inner folder may be of fewer models than the run, and of no other one.
        # Some commands keep the distance with their facts, others one or several in the request.
        models = [{entry["digest"] for entry in side["models"]} for side in (inner, outer)]
        norm = inner.get("facts", {}).get("distance") or inner["request"].get("norm")
        is_of_norm = outer["distance"] in np.atleast_1d(norm)
        is_of_data = inner["data"]["digest"] == outer["data"]["digest"]
        if not is_of_data or not is_of_norm or not models[0] <= models[1]:
            raise RequestError(
                f"{folder} is of other data, models or distances than {run}, in "
                "which it lies: take it away"
            )
    return folder


@dataclass(frozen=True, kw_only=True)
class Run(Folder[Records]):
    """The content of the folder of an audit: its manifest, its rows in the order of models and
    stages, and what is read when it is asked for, such as adversarial inputs.
    """

    @classmethod
    def open(cls, path: Path | str, *, thresholds: bool = False) -> "Run":
        """The run in a folder.

        Args:
            path: the folder.
            thresholds: whether a run with a criterion of probability will do, whose figures are no
                robust accuracy.
        """
        run = cls(**vars(TABLE.read(path)))
        if not thresholds and (criterion := threshold_of(run.manifest)) is not None:
            raise RequestError(
                f"{path} states the share of inputs that do not meet {criterion}, "
                "which is not robust accuracy: name the run of an "
                f"audit without {option('criterion')}"
            )
        return run

    def of_stage(self, model: str, stage: str) -> Records:
        """The rows of a stage, or of the first check; none where it attacked nothing."""
        return rows.take(self.rows, (self.rows.model == model) & (self.rows.attack == stage))

    def adversarial(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, Array]:
        """The closest adversarial input of a stage, for those of `ids` that have one: float32,
        shape of the domain.
        """
        return read_inputs(self.array_files(model, attack), ids)

    def closest(self, model: str, *, limit: float = math.inf, attack: str | None = None) -> Records:
        """The row of each sample that attacks broke, ascending: that of its smallest budget, of
        several stages that of the first.

        Args:
            model: name of the model.
            limit: the largest budget that counts.
            attack: the only stage that counts; by default all.
        """
        table = self.rows
        # A sample that is not broken has no budget: NaN is at most nothing.
        counts = (table.model == model) & (np.ma.filled(table.broken, np.nan) <= limit)
        counts &= (table.attack == attack) | (attack is None)

        # Rows stand in the order of stages, which sorting keeps.
        index = np.flatnonzero(counts)
        order = index[np.argsort(np.ma.getdata(table.broken)[index], kind="stable")]
        first = np.unique(table.sample_id[order], return_index=True)[1]
        return rows.take(table, order[first])

    def inputs_of(self, records: Records) -> dict[int, Array]:
        """The adversarial inputs of rows of one model, each of another sample, as far as they are
        stored.
        """
        inputs: dict[int, Array] = {}
        for attack in dict.fromkeys(records.attack.tolist()):
            of_stage = rows.take(records, records.attack == attack)
            inputs |= self.adversarial(of_stage.model[0], attack, of_stage.sample_id.tolist())
        return inputs

    def stored(self, model: str, attack: str) -> set[int]:
        """The samples of which a stage keeps an adversarial input."""
        names = [name for path in self.array_files(model, attack) for name in names_of_arrays(path)]
        return {int(name) for name in names if "/" not in name}

    def extras(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, dict[str, Array]]:
        """Arrays that an attack stored for each of `ids`, by name; only samples that the stage
        attacked, if it stored any.

        For a sample with an adversarial example they belong to the input that `adversarial`
        returns. `legend` explains them.
        """
        files = self.array_files(model, attack) if self.legend(model, attack) else []
        return read_extras(files, ids)

    def legend(self, model: str, attack: str) -> dict[str, Any]:
        """Meaning of the numbers in the extras of a stage; empty if it has no extras."""
        return dict(self.manifest.get("extras", {}).get(model, {}).get(attack, {}))

    def clean(self) -> dict[int, Array]:
        """The clean inputs that the run keeps for its gallery, by sample."""
        files = sorted((self.path / "arrays").glob("*-clean-inputs.safetensors"))
        return {int(name): array for path in files for name, array in read_arrays(path).items()}

    def array_files(self, model: str, stage: str) -> list[Path]:
        """The files of the inputs and extras of a stage."""
        name = stage_files(self.manifest).get((model, stage))
        return [] if name is None else array_files(self.path, name)


LAYOUT = Layout(verb="audit", noun="run", version=SCHEMA_VERSION, manifest=RunManifest)
TABLE = FolderTable(LAYOUT, Records, find_violations)


# The arrays of a stage, by the name of its files


def array_files(folder: Path, name: str) -> list[Path]:
    """The files of the inputs and extras of the stage whose files have this name."""
    return sorted((folder / "arrays").glob(f"{name}-[0-9]*.safetensors"))


def read_inputs(files: Sequence[Path], ids: Sequence[int]) -> dict[int, Array]:
    """The adversarial inputs of a stage, for those of `ids` that have one."""
    return {int(name): array for name, array in _read(files, ids) if "/" not in name}


def read_extras(files: Sequence[Path], ids: Sequence[int]) -> dict[int, dict[str, Array]]:
    """The arrays that an attack stored besides, by sample and name: `7/patches` is of sample 7."""
    extras: dict[int, dict[str, Array]] = {}
    for name, array in _read(files, ids):
        sample, slash, key = name.partition("/")
        if slash:
            extras.setdefault(int(sample), {})[key] = array
    return extras


def _read(files: Sequence[Path], ids: Sequence[int]) -> Iterator[tuple[str, Array]]:
    """The arrays of some samples by name, a file at a time."""
    samples = {str(int(sample)) for sample in ids}
    for path in files:
        yield from read_arrays(path, lambda name: name.partition("/")[0] in samples).items()


def save_clean(folder: Path, name: str, arrays: Mapping[int, Array]) -> None:
    """Keep some clean inputs for the gallery, under the name of the files of the first check."""
    file = folder / "arrays" / f"{name}-inputs.safetensors"
    write_arrays(file, {str(sample): array for sample, array in arrays.items()})


def save_arrays(
    folder: Path, name: str, groups: Mapping[str, Records], files: Mapping[str, Path], size: int
) -> None:
    """Write the inputs and extras of a stage from those of its groups.

    Args:
        folder: the folder of the audit.
        name: the name of the files of the stage.
        groups: the rows of each group, by key.
        files: the file of the arrays of each group, which exists if it has any.
        size: the bytes of an input.
    """
    for file in array_files(folder, name):
        file.unlink()  # of a run that was stopped
    # A sample may be in several groups; one of them has the arrays that count.
    holders = holders_of(groups)
    present = {key for key, file in files.items() if file.exists()}
    samples = [sample for sample in sorted(holders) if holders[sample] in present]
    per_part = max(1, min(PART_SAMPLES, PART_BYTES // size))
    for number, start in enumerate(range(0, len(samples), per_part)):
        arrays: dict[str, Array] = {}
        members = samples[start : start + per_part]
        for key in sorted({holders[sample] for sample in members}):
            own = [sample for sample in members if holders[sample] == key]
            arrays |= _read([files[key]], own)
        if arrays:
            write_arrays(folder / "arrays" / f"{name}-{number:04d}.safetensors", arrays)


def merge_attacks(attacks: Sequence[Records]) -> Records:
    """The row of each sample from the rows of all attacks of a stage on it, which descend through
    the budgets.

    Sizes and classes are those of the closest adversarial input, the margin is that of the last
    attack, the queries until success and the budget under `attacked` are those of the first, and
    costs add up. A sample whose last attack failed counts as failed.
    """
    records = rows.concatenate([NO_ROWS, *attacks])
    if not len(records):
        return records

    # The attacks on each sample, one after another, each at a smaller budget.
    ids, inverse = np.unique(records.sample_id, return_inverse=True)
    order = np.lexsort((-np.ma.getdata(records.attacked), records.sample_id))
    starts = np.searchsorted(records.sample_id[order], ids)
    ends = np.append(starts[1:], len(order)) - 1
    first = order[starts]
    last = order[ends]

    # The last attack found the closest input, unless it found none: then the one before did.
    is_unbroken = np.ma.getmaskarray(records.broken)[last]
    closest = order[np.maximum(ends - is_unbroken, starts)]
    merged = rows.take(records, closest)
    outcome = merged.outcome.copy()
    outcome[records.outcome[last] == Outcome.FAILED] = str(Outcome.FAILED)
    columns = {name: getattr(records, name) for name in SUMS}
    sums = {
        name: np.bincount(inverse, values, len(ids)).astype(values.dtype)
        for name, values in columns.items()
    }
    return replace(
        merged,
        attacked=records.attacked[first],
        outcome=outcome,
        margin=records.margin[last],
        queries_to_success=records.queries_to_success[first],
        **sums,
    )


def holders_of(groups: Mapping[str, Records]) -> dict[int, str]:
    """For each sample the group whose arrays speak of it: that of its closest input, or of its only
    attack.
    """
    ids = np.concatenate([NO_ROWS.sample_id, *(part.sample_id for part in groups.values())])
    broken = [np.ma.filled(part.broken, np.inf) for part in groups.values()]
    names = [name for name, part in groups.items() for _ in range(len(part))]
    # The smallest budget of each sample first; the empty list is for a stage without groups.
    order = np.lexsort((np.concatenate([*broken, []]), ids))
    samples, first = np.unique(ids[order], return_index=True)
    return {sample: names[row] for sample, row in zip(samples.tolist(), order[first], strict=True)}
