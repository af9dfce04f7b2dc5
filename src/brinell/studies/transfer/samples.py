"""The samples of a transfer for its page: what each model answers to the examples of
each source.
"""

from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array
from brinell.reports.examples import TEXT, compare_inputs
from brinell.reports.numbers import counted, distance, whole
from brinell.reports.values import Example, Samples
from brinell.store.files import read_arrays
from brinell.store.rows import take
from brinell.studies.result import FolderResult
from brinell.studies.transfer.rows import SLICE, ExampleRows, TransferFacts, example_file

MOST, PICTURED = 20_000, 2000
"""Answers, and examples with pictures, that a page holds."""
ROWS = ("model", "by", "sample", "view", "class", "clean", "state", "size", "attacked", "broken")
"""The columns of an answer: numbers of the model and of the source, the sample with its source, the
key of the pictures, the class of the sample, that predicted for the clean input, whether it is
`right` or `wrong`, the distance of the example, the class predicted for it, and the pair of source
and budget, by their numbers, where it is wrong."""


def samples_block(
    result: FolderResult, norm: str, facts: TransferFacts, answers: ExampleRows
) -> Samples:
    """The answers of a transfer, at most `MOST`: those to examples that fool the most models come
    first.
    """
    sources = [source.name for source in facts.sources]
    by = np.array([sources.index(str(name)) for name in answers.source], dtype=np.int64)
    is_fooled = (answers.pred != answers.label) & (answers.clean_pred == answers.label)
    # An example is a source and a sample: `unique` numbers the pairs, and `bincount` gives each
    # answer the number of models its example fools.
    pairs = np.column_stack([by, answers.sample_id])
    examples, inverse = np.unique(pairs, axis=0, return_inverse=True)
    example = inverse.ravel()
    fooled = np.bincount(example, is_fooled)[example]
    # `lexsort` sorts by its last key first: most models fooled, then answers to one example
    # together.
    order = np.lexsort((example, -fooled))[:MOST].tolist()

    size = answers.l2 if norm == "l2" else answers.linf
    rows = [
        [
            result.names.index(str(answers.model[row])),
            int(by[row]),
            f"{answers.sample_id[row]} made on {answers.source[row]}",
            f"{by[row]}/{answers.sample_id[row]}",
            int(answers.label[row]),
            int(answers.clean_pred[row]),
            "right" if answers.clean_pred[row] == answers.label[row] else "wrong",
            float(f"{size[row]:.3g}"),
            int(answers.pred[row]),
            [(int(by[row]), 0)] if answers.pred[row] != answers.label[row] else [],
        ]
        for row in order
    ]
    shown = (answers.label, answers.clean_pred, answers.pred)
    labels = np.unique(np.concatenate([column[order] for column in shown])).tolist()
    kind = result.manifest["data"]["domain"]["kind"]
    share = f"{whole(len(rows))} of " if len(rows) < len(by) else "All "
    pictured = list(dict.fromkeys(example[order].tolist()))[:PICTURED]
    return Samples(
        title="Sample by sample",
        text=f"{share}{counted(len(by), 'answer')}: examples that fool the most models come "
        f"first. {TEXT[kind]}",
        content={
            "models": result.names,
            "classes": {str(label): class_name(result.classes, label) for label in labels},
            "attacks": [(source, source) for source in sources],
            "source": "source",
            "eps": [facts.eps_text],
            "distance": distance(norm),
            "none": "The folder keeps no input of it.",
            # The picture on a card, by its place: signals have one, others the example as the
            # third.
            "card": 0 if kind == "signal" else 2,
            "columns": ROWS,
            "rows": rows,
        },
        draw=partial(_draw, result, facts, answers, examples[pictured]),
    )


def _draw(
    result: FolderResult, facts: TransferFacts, answers: ExampleRows, examples: Array
) -> dict[str, Example]:
    """Clean input, change and example of pairs (k, 2) of source and sample, by their keys; without
    those whose clean input the folder does not keep.
    """
    sources, manifest, folder = facts.sources, result.manifest, Path(result.folder)
    numbers = [number for number, source in enumerate(sources) if source.folder is None]
    first = sources[numbers[0]].name if numbers else ""
    is_first = (answers.source == first) & (answers.model == result.names[0])
    first_rows = take(answers, is_first)  # in the order of the files
    load = lru_cache(2 + len(numbers))(
        read_arrays
    )  # the most files that one example needs, and more

    drawn = {}
    for by, sample in examples[np.isin(examples[:, 0], numbers)].tolist():
        place = int(np.flatnonzero(first_rows.sample_id == sample)[0])
        start = place - place % SLICE
        clean = load(folder / example_file(numbers[0], start)).get("clean")
        if clean is None:  # a folder that was made before clean inputs were kept
            return {}
        x = load(folder / example_file(by, start))["x"]
        label = class_name(result.classes, int(first_rows.label[place]))
        captions = (f"true class {label}", f"made on {sources[by].name}")
        pictures, legend, caption = compare_inputs(
            manifest, clean[place - start], x[place - start], f"sample {sample}, clean", captions
        )
        drawn[f"{by}/{sample}"] = Example(
            pictures=pictures,
            caption=caption,
            legend=legend,
            wide=manifest["data"]["domain"]["kind"] in ("signal", "video"),
        )
    return drawn
