"""One run's folder: what was run, row by row, and the adversarial inputs behind the rows
(design/0002-run-folder.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError, option
from brinell.core.record import CLEAN, SCHEMA_VERSION, Array, Outcome, Records
from brinell.store import parquet, rows
from brinell.store.files import names_of_arrays, read_arrays, write_arrays
from brinell.store.folder import MANIFEST, Layout, fitting, read_json
from brinell.store.row_rules import find_violations
from brinell.store.run_manifest import RunManifest, stage_files, stages_of

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

LAYOUT = Layout(verb="audit", noun="run", version=SCHEMA_VERSION, manifest=RunManifest)


def threshold_of(manifest: Mapping[str, Any]) -> str | None:
    """The criterion of a run as its user wrote it; None if the predicted class decides."""
    text = (manifest.get("criterion") or {}).get("text")
    return None if text is None else str(text)


def refuse_threshold(manifest: Mapping[str, Any], path: str) -> None:
    """Refuse a run with a criterion of probability where robust accuracy is meant."""
    if (criterion := threshold_of(manifest)) is not None:
        raise RequestError(
            f"{path} states the share of inputs that do not meet {criterion}, "
            "which is not robust accuracy: name the run of an "
            f"audit without {option('criterion')}"
        )


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
        digests = {entry["digest"] for entry in inner["models"]}
        models = {entry["digest"] for entry in outer["models"]}
        norm = inner.get("facts", {}).get("distance") or inner["request"].get("norm")
        norms = norm if isinstance(norm, list) else [norm]
        is_of_data = inner["data"]["digest"] == outer["data"]["digest"]
        if not is_of_data or not digests <= models or outer["distance"] not in norms:
            raise RequestError(
                f"{folder} is of other data, models or distances than {run}, in "
                "which it lies: take it away"
            )
    return folder


class Run:
    """A run folder.

    A stage that attacked a sample has one file of rows, `records/STAGE.parquet`, and the closest
    adversarial inputs in `arrays/STAGE-NNNN.safetensors`; a stage with nothing to do has none.
    While the run goes on, there is no manifest yet (`store.parts`).
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self._files = stage_files(manifest)
        self._records: Records | None = None
        """The rows, once they are read."""

    @classmethod
    def open(cls, path: Path | str, *, thresholds: bool = False) -> "Run":
        """The run in a folder.

        Args:
            path: the folder.
            thresholds: whether a run with a criterion of probability will do, whose figures are no
                robust accuracy.
        """
        run = cls(Path(path), LAYOUT.open(Path(path)))
        if not thresholds:
            refuse_threshold(run.manifest, str(path))
        return run

    # Reading

    def records(self) -> Records:
        """All rows, in the order of the manifest, which are read and checked once."""
        if self._records is not None:
            return self._records

        parts = self.parts()
        for location, description, samples in find_violations(self.manifest, parts):
            ids = ", ".join(map(str, samples[:5].tolist()))
            listing = (
                f" (samples {ids}{' ...' if len(samples) > 5 else ''})" if len(samples) else ""
            )
            raise RequestError(
                f"{self.path} was forged or damaged: {location}: "
                f"{description}{listing}: make it again"
            )
        self._records = rows.concatenate([NO_ROWS, *parts])
        return self._records

    def parts(self) -> list[Records]:
        """The rows of each model and stage, in the order of the manifest."""
        return [self.part(model, stage) for model, stage in stages_of(self.manifest)]

    def has_part(self, model: str, stage: str) -> bool:
        """True if a stage, or the first check `CLEAN`, is complete and has rows."""
        return self._records_file(model, stage).exists()

    def part(self, model: str, stage: str) -> Records:
        """The rows of a stage; none where it attacked nothing."""
        path = self._records_file(model, stage)
        is_listed = path.relative_to(self.path).as_posix() in (self.manifest.get("files") or {})
        return parquet.read(path) if is_listed or path.exists() else NO_ROWS

    def adversarial(self, model: str, attack: str, ids: Sequence[int]) -> dict[int, Array]:
        """The closest adversarial input of a stage, for those of `ids` that have one: float32,
        shape of the domain.
        """
        arrays = self._read_arrays(model, attack, ids, inputs=True)
        return {int(name): array for name, array in arrays.items()}

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
        if not self.legend(model, attack):
            return {}

        extras: dict[int, dict[str, Array]] = {}
        for name, array in self._read_arrays(model, attack, ids, inputs=False).items():
            sample, _, key = name.partition("/")
            extras.setdefault(int(sample), {})[key] = array
        return extras

    def legend(self, model: str, attack: str) -> dict[str, Any]:
        """Meaning of the numbers in the extras of a stage; empty if it has no extras."""
        return dict(self.manifest.get("extras", {}).get(model, {}).get(attack, {}))

    def clean(self) -> dict[int, Array]:
        """The clean inputs that the run keeps for its gallery, by sample."""
        files = sorted((self.path / "arrays").glob("*-clean-inputs.safetensors"))
        return {int(name): array for path in files for name, array in read_arrays(path).items()}

    def _read_arrays(
        self, model: str, attack: str, ids: Sequence[int], *, inputs: bool
    ) -> dict[str, Array]:
        """Arrays of samples by name: `7` is an input, `7/patches` an extra array of the attack."""
        samples = {str(int(sample)) for sample in ids}

        def is_wanted(name: str) -> bool:
            sample, slash, _ = name.partition("/")
            return sample in samples and bool(slash) != inputs

        files = self.array_files(model, attack)
        return {
            name: array for path in files for name, array in read_arrays(path, is_wanted).items()
        }

    def _records_file(self, model: str, stage: str) -> Path:
        return self.path / "records" / f"{self._files[model, stage]}.parquet"

    def stage_files(self, model: str, stage: str) -> list[Path]:
        """The files of the rows, inputs and extras of a stage; none where it attacked nothing."""
        return [
            *filter(Path.exists, [self._records_file(model, stage)]),
            *self.array_files(model, stage),
        ]

    def array_files(self, model: str, stage: str) -> list[Path]:
        """The files of the inputs and extras of a stage."""
        name = self._files.get((model, stage))
        if name is None:
            return []
        return sorted((self.path / "arrays").glob(f"{name}-[0-9]*.safetensors"))

    def name_of(self, model: str, stage: str) -> str:
        """The name of the files of a stage, such as 1-02-apgd-ce."""
        return self._files[model, stage]

    # Writing

    def save_clean(self, model: str, arrays: Mapping[int, Array]) -> None:
        """Keep some clean inputs for the gallery."""
        entries = {str(sample): array for sample, array in arrays.items()}
        write_arrays(
            self.path / "arrays" / f"{self._files[model, CLEAN]}-inputs.safetensors", entries
        )

    def save_arrays(
        self, model: str, stage: str, groups: Mapping[str, Records], files: Mapping[str, Path]
    ) -> None:
        """Write the inputs and extras of a stage from those of its groups.

        Args:
            model: the model.
            stage: the stage.
            groups: the rows of each group, by key.
            files: the file of the arrays of each group, which exists if it has any.
        """
        holders = holders_of(groups)
        present = {key for key, file in files.items() if file.exists()}
        samples = [sample for sample in sorted(holders) if holders[sample] in present]
        size = 4 * math.prod(self.manifest["data"]["domain"]["shape"])
        per_part = max(1, min(PART_SAMPLES, PART_BYTES // size))
        for number, start in enumerate(range(0, len(samples), per_part)):
            arrays: dict[str, Array] = {}
            members = samples[start : start + per_part]
            for key in sorted({holders[sample] for sample in members}):
                names = {str(sample) for sample in members if holders[sample] == key}

                def is_wanted(name: str, names: set[str] = names) -> bool:
                    return name.partition("/")[0] in names

                arrays |= read_arrays(files[key], is_wanted)
            if arrays:
                name = f"{self._files[model, stage]}-{number:04d}.safetensors"
                write_arrays(self.path / "arrays" / name, arrays)

    def save_rows(self, model: str, stage: str, records: Records) -> None:
        """Write the rows of a stage, which is complete with them."""
        if len(records):
            parquet.write(self._records_file(model, stage), records)


def merge_attacks(attacks: Sequence[Records]) -> Records:
    """The row of each sample from the rows of all attacks of a stage on it, which descend through
    the budgets.

    Sizes and classes are those of the closest adversarial input, the margin is that of the last
    attack, the queries until success are those of the first, and costs add up.
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
    closest = order[np.maximum(ends - np.ma.getmaskarray(records.broken)[last], starts)]
    merged = rows.take(records, closest)
    outcome = merged.outcome.copy()
    outcome[records.outcome[last] == Outcome.FAILED] = str(Outcome.FAILED)
    sums = {}
    for name in SUMS:
        column = getattr(records, name)
        sums[name] = np.bincount(inverse, column, len(ids)).astype(column.dtype)
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
    holders: dict[int, str] = {}
    lowest: dict[int, float] = {}
    for name, records in groups.items():
        broken = np.ma.filled(records.broken, np.inf)
        for sample, eps in zip(records.sample_id.tolist(), broken.tolist(), strict=True):
            if sample not in lowest or eps < lowest[sample]:
                holders[sample] = name
                lowest[sample] = eps
    return holders
