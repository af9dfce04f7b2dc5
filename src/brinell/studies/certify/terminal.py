"""Terminal output of `brinell certify`."""

from collections.abc import Iterator

from brinell.pages.terminal import percent
from brinell.store.folder import PAGE
from brinell.studies.certify.analysis import CertifyResult, sentence


def lines(result: CertifyResult) -> Iterator[str]:
    """The result as a terminal shows it."""
    yield f"{'eps':>10} {'proven':>8} {'attacked':>9} {'open':>6}   of {result.n} samples"
    for low, high, undecided in zip(result.certified, result.robust, result.open, strict=True):
        yield f"{low.eps:10.4g} {percent(low.value):>8} {percent(high.value):>9} {undecided.k:6d}"
    for tool in result.solvers:
        counts = f"{tool.asked} questions, {tool.proofs} proofs, {tool.counterexamples} counterexamples that the model confirms"
        yield (
            f"{tool.tool}: {counts}"
            if not tool.refused
            else f"{tool.tool}: refused, since a stored counterexample contradicts it"
        )
    yield sentence(result)
    yield f"page: {result.folder}/{PAGE}"
