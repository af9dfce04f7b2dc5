"""Terminal output of a study of dense outputs."""

from collections.abc import Iterator

from brinell.pages.format import percent
from brinell.studies.audit import dry_run
from brinell.studies.audit.dry_run import PlanResult
from brinell.studies.dense import detection_terminal
from brinell.studies.dense.detection_results import DetectionResult
from brinell.studies.dense.results import DenseResult, Figure
from brinell.studies.dense.words import eps_text, reading


def lines(result: DenseResult | DetectionResult | PlanResult) -> Iterator[str]:
    """Yield the lines of the result, or of the plan that a dry run shows."""
    if isinstance(result, PlanResult):
        yield from dry_run.lines(result)
        return
    if isinstance(result, DetectionResult):
        yield from detection_terminal.lines(result)
        return
    yield f"{result.model} on {result.data}: {result.n} pictures, {result.norm}"
    yield f"  {'eps':<10}{'pixel accuracy':<28}{'mean IoU':<28}" + ("certified" if result.certified else "")
    certified = {figure.eps: figure for figure in result.certified}
    for accuracy, miou in zip(result.pixel_accuracy, result.miou, strict=True):
        proof = figure_text(certified[accuracy.eps]) if accuracy.eps in certified else ""
        yield f"  {eps_text(result, accuracy.eps):<10}{figure_text(accuracy):<28}{figure_text(miou):<28}{proof}".rstrip()
    yield from reading(result)
    yield from result.notes
    yield f"page: {result.folder}/report.html"


def figure_text(figure: Figure) -> str:
    """A figure with its interval."""
    if figure.low is None or figure.high is None:
        return percent(figure.value)
    return f"{percent(figure.value)} ({100 * figure.low:.1f} to {100 * figure.high:.1f})"
