"""Terminal output of a transfer between models with dense outputs."""

from collections.abc import Iterator

from brinell.pages.terminal import reading
from brinell.studies.dense_transfer.results import DenseTransferResult
from brinell.studies.dense_transfer.words import aims, budget, cell_of, columns, effect_text, sentences


def lines(result: DenseTransferResult) -> Iterator[str]:
    """Yield the lines of the result."""
    yield f"{result.data}: {result.n} pictures, {budget(result)}; * found on the model itself"
    width = 2 + max(24, *map(len, result.models))
    for aim in aims(result):
        for name, title in columns(result, aim):
            header = title if title == aim or len(aims(result)) == 1 else f"{title}, {aim}"
            yield f"  {header:<28}" + "".join(f"{model:<{width}}" for model in result.models).rstrip()
            for source in (None, *(entry.source for entry in result.sources)):
                row = ""
                for model in result.models:
                    cell = cell_of(result, source, aim if source else None, model)
                    text = "–" if cell is None else effect_text(name, getattr(cell, name)) + "*" * cell.white_box
                    row += f"{text:<{width}}"
                yield f"    {source or 'without an attack':<26}{row}".rstrip()
    yield from reading(sentences(result), result.notes)
    yield f"page: {result.folder}/report.html"
