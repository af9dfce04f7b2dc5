"""Sentences that interpret a transfer between models with dense outputs, each computed from its figures."""

from brinell.core.boxes import FALSE
from brinell.pages.format import norm, percent
from brinell.studies.dense_transfer.results import Cell, DenseTransferResult, Effect

COLUMNS = {
    "segmentation": (("pixel_accuracy", "pixel accuracy"), ("miou", "mean IoU")),
    "detection": (("ap50", "AP50"), ("recall", "recall")),
}
"""Fields of a cell that are shown, with their titles."""
ERROR_TITLES = {"missed": "missed", "false": "false boxes a picture", "mislabelled": "mislabelled", "misplaced": "misplaced"}
"""Titles of the kinds of errors."""


def columns(result: DenseTransferResult, aim: str | None) -> list[tuple[str, str]]:
    """Fields of the cells of an aim that are shown, with their titles."""
    of_aim = [(aim, ERROR_TITLES[aim])] if aim in ERROR_TITLES and result.task == "detection" else []
    return [*COLUMNS[result.task], *of_aim]


def value_text(name: str, value: float | None) -> str:
    """A share, or false boxes per picture."""
    if value is None:
        return "–"
    return f"{value:.1f}" if name == FALSE else percent(value)


def span_text(name: str, low: float | None, high: float | None) -> str:
    """The ends of an interval; empty without one."""
    scale = 1 if name == FALSE else 100
    return "" if low is None or high is None else f"{scale * low:.1f} to {scale * high:.1f}"


def change_text(name: str, value: float | None) -> str:
    """A change with its sign, in points of a share or in boxes."""
    return "" if value is None else f"{value if name == FALSE else 100 * value:+.1f}"


def effect_text(name: str, effect: Effect) -> str:
    """A figure with its interval."""
    interval = span_text(name, effect.low, effect.high)
    return value_text(name, effect.value) + (f" ({interval})" if interval else "")


def aims(result: DenseTransferResult) -> list[str]:
    """Aims of the attacks, in order."""
    return list(dict.fromkeys(cell.aim for cell in result.cells if cell.aim is not None))


def cell_of(result: DenseTransferResult, source: str | None, aim: str | None, model: str) -> Cell | None:
    """The cell of a source, an aim and a model; None if there is none."""
    key = (source, aim, model)
    return next((cell for cell in result.cells if (cell.source, cell.aim, cell.model) == key), None)


def budget(result: DenseTransferResult) -> str:
    """The budget in words."""
    return f"{norm(result.norm)} {result.eps_text}"


def sentences(result: DenseTransferResult) -> list[str]:
    """A sentence for each source and each other model, on the first figure of the task, the largest loss first."""
    name, title = COLUMNS[result.task][0]
    crossing = [cell for cell in result.cells if cell.source is not None and not cell.white_box]

    def loss(cell: Cell) -> float:
        """The change of the figure."""
        effect: Effect = getattr(cell, name)
        return 0.0 if effect.change is None else effect.change

    return [_sentence(result, cell, name, title) for cell in sorted(crossing, key=loss)]


def _sentence(result: DenseTransferResult, cell: Cell, name: str, title: str) -> str:
    """The figure of a model on the inputs of another one, without an attack, and under its own."""
    effect, clean = getattr(cell, name), getattr(cell_of(result, None, None, cell.model), name)
    own_cell = cell_of(result, cell.model, cell.aim, cell.model)
    under_own = "" if own_cell is None else f", {percent(getattr(own_cell, name).value)} under its own attack"
    aimed = f" aimed at {ERROR_TITLES[cell.aim]}" if cell.aim in ERROR_TITLES and result.task == "detection" else ""
    return (
        f"On inputs found on {cell.source}{aimed}, the {title} of {cell.model} is {percent(effect.value)} "
        f"({percent(clean.value)} without an attack{under_own})."
    )
