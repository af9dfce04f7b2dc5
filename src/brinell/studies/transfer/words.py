"""A transfer read in plain words, each sentence made from its figures."""

from brinell.pages.format import percent, samples
from brinell.studies.transfer.results import Cell, SourceResult, TransferResult


def reading(result: TransferResult) -> list[str]:
    """Which source is best, which model withstands most, what is white-box worth, and where nothing transfers."""
    return [
        sentence
        for sentence in (_best(result), _all_round(result), _models(result), _worth(result), _nothing(result))
        if sentence
    ]


def _best(result: TransferResult) -> str:
    placed = [one for one in result.sources if one.rank is not None]
    if not placed:
        return ""
    first = min(placed, key=_place)
    assert first.rank is not None
    others = [one.name for one in placed if one is not first and one.rank is not None and one.rank.low <= first.rank.high]
    said = f"{first.name} is the best source: on models that it was not made on, {percent(first.success)} of its examples succeed"
    if not others:
        return f"{said}, more than of any other in 19 of 20 draws of the samples."
    return f"{said}; {', '.join(others)} may be as good."


def _all_round(result: TransferResult) -> str:
    """The source whose smallest success is the largest, where that is another than the best on average."""
    known = [one for one in result.sources if one.least is not None and one.kind == "made"]
    if len(known) < 2:
        return ""
    best = max(known, key=lambda one: one.least or 0.0)
    if not best.least or (best.rank is not None and best.rank.rank == 1):
        return ""
    return (
        f"{best.name} is the best all-round source: on every other model {percent(best.least)} of its examples or more succeed."
    )


def _place(one: SourceResult) -> float:
    return one.rank.rank if one.rank else 0.0


def _models(result: TransferResult) -> str:
    """The model that loses least to examples of others, and the one that loses most."""
    lost: dict[str, list[float]] = {}
    for cell in result.cells:
        if not cell.white_box and cell.success.value is not None:
            lost.setdefault(cell.model, []).append(cell.success.value)
    if len(lost) < 2:
        return ""
    means = {name: sum(values) / len(values) for name, values in lost.items()}
    least, most = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
    return (
        f"Examples made on others succeed least on {least} ({percent(means[least])} on average) and most on {most} "
        f"({percent(means[most])})."
    )


def _worth(result: TransferResult) -> str:
    own = [cell.success.value for cell in result.cells if cell.white_box and cell.success.value is not None]
    other = [cell.success.value for cell in result.cells if not cell.white_box and cell.success.value is not None]
    if not own or not other:
        return ""
    here, there = percent(sum(own) / len(own)), percent(sum(other) / len(other))
    return f"On the models that they were made on, {here} of the examples succeed, on the others {there}."


def _nothing(result: TransferResult) -> str:
    none = [cell for cell in result.cells if not cell.white_box and cell.p is not None and cell.p >= 0.05]
    of = sum(not cell.white_box for cell in result.cells)
    if not none:
        return ""
    return (
        f"In {len(none)} of the {of} cells off the diagonal the examples cost the model no accuracy that {_size(none)} can show "
        "(McNemar, corrected for the number of cells)."
    )


def _size(cells: list[Cell]) -> str:
    return samples(max(cell.accuracy.n for cell in cells))
