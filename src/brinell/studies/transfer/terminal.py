"""The result of a transfer in a terminal."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import reading
from brinell.studies.transfer.words import budget, sentences, terms


def lines(result: Any) -> Iterator[str]:
    """Format the result, line by line."""
    attack = f", made by {result.attack}" if result.attack else ""
    yield f"{result.data}: {budget(result)}{attack}"
    yield f"{terms(result).short}; * white-box"
    width = max(12, *(len(column.model) + 2 for column in result.models))
    yield f"  {'made on':<24}" + "".join(f"{column.model:>{width}}" for column in result.models) + f"{'others':>10}  rank"
    cells = {(cell.source, cell.model): cell for cell in result.cells}
    for source in result.sources:
        values = []
        for model in result.models:
            cell = cells[source.name, model.model]
            value = "-" if cell.success.value is None else f"{100 * cell.success.value:.0f}"
            values.append(f"{value + '*' * cell.white_box:>{width}}")
        mean = "-" if source.success is None else f"{100 * source.success:.0f}"
        rank = f"{source.rank.rank:g} ({source.rank.low:g} to {source.rank.high:g})" if source.rank else "-"
        yield f"  {source.name[:24]:<24}{''.join(values)}{mean:>10}  {rank}"
    yield from reading(sentences(result), result.notes)
    yield f"page: {result.folder}/report.html"
