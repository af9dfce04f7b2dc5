"""A transfer as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import reading
from brinell.studies.transfer.words import reading as sentences


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    by = f", made by {result.attack}" if result.attack else ""
    yield f"{result.data}: {result.distance} up to {result.eps_text}{by}"
    yield "success in percent among samples that both got right; * white-box"
    width = max(12, *(len(one.model) + 2 for one in result.models))
    yield f"  {'made on':<24}" + "".join(f"{one.model:>{width}}" for one in result.models) + f"{'others':>10}  place"
    cells = {(cell.source, cell.model): cell for cell in result.cells}
    for source in result.sources:
        values = []
        for model in result.models:
            cell = cells[source.name, model.model]
            value = "-" if cell.success.value is None else f"{100 * cell.success.value:.0f}"
            values.append(f"{value + '*' * cell.white_box:>{width}}")
        other = "-" if source.success is None else f"{100 * source.success:.0f}"
        place = f"{source.rank.rank:g} ({source.rank.low:g} to {source.rank.high:g})" if source.rank else "-"
        yield f"  {source.name[:24]:<24}{''.join(values)}{other:>10}  {place}"
    yield from reading(sentences(result), result.notes)
    yield f"page: {result.folder}/report.html"
