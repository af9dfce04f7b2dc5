"""Sentences that interpret a study of dense outputs, each computed from its figures."""

from brinell.pages.format import percent, short
from brinell.studies.dense.results import DenseResult


def eps_text(result: DenseResult, eps: float) -> str:
    """A budget as people write it: in Linf as a fraction of 255 where that is short."""
    fraction = f"{255 * eps:.6g}/255"
    return fraction if result.norm == "linf" and eps and len(fraction) < len("0.25/255") else short(eps)


def reading(result: DenseResult) -> list[str]:
    """Sentences on the figures at the largest budget, the worst class, certificates and checks that failed."""
    accuracy, miou = result.pixel_accuracy, result.miou
    sentences = [
        f"At {eps_text(result, accuracy[-1].eps)}, at most {percent(accuracy[-1].value)} of the pixels of {result.n} pictures "
        f"stay right ({percent(accuracy[0].value)} without an attack); the mean IoU is at most {percent(miou[-1].value)} "
        f"({percent(miou[0].value)})."
    ]
    if result.worst_class is not None:
        worst = next(figures for figures in result.per_class if figures.name == result.worst_class)
        sentences.append(
            f"The class {worst.name} has the smallest IoU there, {percent(worst.iou[-1])} "
            f"({percent(worst.iou[0])} without an attack)."
        )
    if result.certified:
        last = result.certified[-1]
        sentences.append(
            f"The Lipschitz constant, by your word, proves {percent(last.value)} of the pixels within "
            f"{eps_text(result, last.eps)}; "
            f"{'no attack contradicts it' if not result.contradictions else f'{result.contradictions} pictures contradict it'}."
        )
    sentences += [check.text for check in result.checks if not check.passed]
    return sentences
