"""Pictures of a benchmark set: samples clean, changed and distorted, and one sample at
every level.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.robust_accuracy import class_name, class_names
from brinell.core.record import Array
from brinell.reports.examples import OF_LARGE, PER_MODEL, TEXT, compare_inputs
from brinell.reports.numbers import NBSP, capital, counted, percent, short
from brinell.reports.values import Block, Example, Gallery, Picture
from brinell.reports.way import way_blocks
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.studies.benchmark.rows import BenchmarkRows

COLUMNS = (
    *("sample_id", "level", "reached", "label", "prediction", "confidence", "true_probability"),
    *("valid", "wrong", "l2", "linf", "patches"),
)
MOST_LEVELS = 12
"""Levels that the page shows of a sample."""

Levels = dict[float, dict[str, Any]]
"""The rows of a sample by level, those without an input left out."""


def galleries(
    folder: Path, manifest: Mapping[str, Any], samples: BenchmarkRows, noun: str
) -> Iterator[Block]:
    """The galleries of a set, and the agent's way to the first example; none without an example.

    Args:
        folder: the set.
        manifest: of the set.
        samples: its rows.
        noun: what is right or wrong in an input, such as pixels.
    """
    rows = _rows(folder)
    shape = manifest["data"]["domain"]["shape"]
    is_large = len(shape) > 2 and shape[-2] * shape[-1] > 64 * 64
    # Of large pictures a page shows fewer.
    chosen = choose(rows, OF_LARGE if is_large else PER_MODEL)
    if not chosen:
        return

    # The sample that has the most levels.
    graded = max(chosen, key=lambda sample: len(rows[sample]))
    arrays = _arrays(folder, {*chosen, graded})
    queries = dict(
        zip(samples.sample_id.tolist(), samples.queries_to_success.tolist(), strict=True)
    )
    pictures = _Pictures(manifest, arrays, noun)
    text = "By turns of every class, in the order of the data. "
    yield Gallery(
        title="Clean, changed and distorted",
        examples=[pictures.example(sample, rows[sample], queries[sample]) for sample in chosen],
        text=text + TEXT[manifest["data"]["domain"]["kind"]],
    )
    yield Gallery(
        title="One sample at every level", examples=[pictures.graded(graded, rows[graded])]
    )
    # Masks and boxes have no probability of a true class, and no way is stored of them.
    if (way := arrays.get(f"{chosen[0]}/way")) is not None:
        yield from way_blocks(way, pictures.title(chosen[0], rows[chosen[0]][1.0]))


def choose(rows: Mapping[int, Levels], most: int) -> list[int]:
    """Samples with an adversarial example: by turns the next of every class, in the order of the
    data.
    """
    by_class: dict[Any, list[int]] = {}
    # Level 1 is the adversarial example.
    for sample, levels in rows.items():
        if 1.0 in levels:
            by_class.setdefault(levels[1.0]["label"], []).append(sample)
    turns = zip_longest(*by_class.values())
    return [sample for turn in turns for sample in turn if sample is not None][:most]


def _rows(folder: Path) -> dict[int, Levels]:
    """The rows of data/ that have an input, by sample and level."""
    rows: dict[int, Levels] = {}
    for file in sorted((folder / "data").glob("*.parquet")):
        for row in parquet.read_table(file, list(COLUMNS)).to_pylist():
            if row["reached"]:
                rows.setdefault(row["sample_id"], {})[row["level"]] = row
    return rows


def _arrays(folder: Path, samples: set[int]) -> dict[str, Array]:
    """The inputs and the ways of some samples, by their names in arrays/."""
    arrays: dict[str, Array] = {}
    for file in sorted((folder / "arrays").glob("*.safetensors")):
        arrays |= read_arrays(
            file,
            lambda name: (
                name.endswith(("/input", "/way")) and int(name.partition("/")[0]) in samples
            ),
        )
    return arrays


class _Pictures:
    """Draws samples of a set, whose arrays are known by name."""

    def __init__(self, manifest: Mapping[str, Any], arrays: Mapping[str, Array], noun: str) -> None:
        self._manifest = manifest
        self._arrays = arrays
        self._noun = noun
        self._kind = str(manifest["data"]["domain"]["kind"])
        self._classes = class_names(manifest)

    def example(self, sample: int, levels: Levels, queries: int | None) -> Example:
        """A sample clean, changed and distorted, with both answers and what it cost."""
        row = levels[1.0]
        pictures, legend, further = self._compare(sample, levels, 1.0)
        names = Counter(patch["distortion"] for patch in row["patches"]).most_common()
        placed = ", ".join(f"{name} on {count}" for name, count in names)

        parts = [
            f"{capital(self.title(sample, row))}: L2 {short(row['l2'])}, Linf {short(row['linf'])}",
            f"{counted(len(row['patches']), 'patch', 'patches')}: {placed}",
            f"{counted(queries, 'query', 'queries')} to the first success" if queries else "",
            further,
        ]

        return Example(
            pictures=pictures,
            caption="; ".join(filter(None, parts)),
            legend=legend,
            wide=self._kind in ("signal", "video"),
        )

    def graded(self, sample: int, levels: Levels) -> Example:
        """A sample at its levels, evenly chosen where there are many."""
        numbers = sorted(levels)
        count = min(len(numbers), MOST_LEVELS)
        numbers = [
            numbers[index] for index in np.linspace(0, len(numbers) - 1, count).round().astype(int)
        ]
        # The adversarial signal is drawn over the clean one, which needs no picture of its own.
        drawn_levels = numbers[1:] if self._kind == "signal" else numbers

        pictures = [
            Picture(self._view(sample, levels, number), self._level_text(levels[number]))
            for number in drawn_levels
        ]
        missing = f" of {len(levels)}, evenly chosen" if count < len(levels) else ""

        return Example(
            pictures=pictures,
            caption=f"{capital(self.title(sample, levels[1.0]))} at {counted(len(drawn_levels), 'level')}{missing}",
            wide=self._kind in ("signal", "video"),
        )

    def title(self, sample: int, row: Mapping[str, Any]) -> str:
        """The name of a sample, with its true class."""
        if row["label"] is None:
            return f"sample {sample}"
        return f"sample {sample}, true class {class_name(self._classes, row['label'])}"

    def _compare(
        self, sample: int, levels: Levels, level: float
    ) -> tuple[list[Picture], list[tuple[str, str]], str]:
        """The clean input beside one level: pictures, their legend, and what else is to be said."""
        captions = self._answer(levels[0.0]), self._answer(levels[level])
        clean = self._arrays[f"{sample}/0/input"]
        x = self._arrays[f"{sample}/{level:g}/input"]
        title = f"{self.title(sample, levels[level])}, level {level:g}"
        return compare_inputs(self._manifest, clean, x, title, captions)

    def _view(self, sample: int, levels: Levels, level: float) -> Any:
        """The view of one level."""
        # The first picture of a signal shows both inputs; of others the last one is of the level.
        pictures, _, _ = self._compare(sample, levels, level)
        return pictures[0 if self._kind == "signal" else -1].image

    def _level_text(self, row: Mapping[str, Any]) -> str:
        if row["level"] == 0:
            return f"clean: {self._answer(row)}"
        return f"×{NBSP}{row['level']:g}, L2 {short(row['l2'])}: {self._answer(row)}"

    def _answer(self, row: Mapping[str, Any]) -> str:
        """The answer of the model with its probability, and that of the true class; or how much is
        wrong.
        """
        if row["label"] is None:
            return f"{row['wrong']} of {row['valid']} {self._noun} wrong"
        answer = f"{class_name(self._classes, row['prediction'])}, {percent(row['confidence'], 0)}"
        if row["prediction"] == row["label"]:
            return answer
        true = class_name(self._classes, row["label"])
        return f"{answer}; {true}, {percent(row['true_probability'], 0)}"
