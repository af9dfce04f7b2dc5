"""`brinell detect`: detectors in front of a model, and attacks that know them."""

from typing import Any

from brinell.cli.options import percent, show, tell
from brinell.cli.verb import Asked, verb
from brinell.studies.detection.request import DetectRequest


@verb(DetectRequest, argument="run", foreign=True)
def detect(asked: Asked) -> int:
    """Measure how much of a robust accuracy is due to changes that a detector sees, and what adaptive attacks leave of it."""
    from brinell import api
    from brinell.wording import in_options

    request = asked.request(DetectRequest)
    result = in_options(api.detect)(**request.model_dump(exclude_unset=True), out=asked.out, tell=tell, trust=asked.trust)
    return asked.answer(result, lambda: _show(result))


def _show(result: Any) -> None:
    show(f"{'model':16} {'detector':18} {'without':>8} {'static':>8} {'adaptive':>8} {'false alarms':>13}")
    for one in result.detectors:
        adaptive = percent(one.adaptive.value) if one.adaptive else "-"
        rates = (
            f"{percent(one.robust.value):>8} {percent(one.static.value):>8} {adaptive:>8} {percent(one.false_alarms.value):>13}"
        )
        show(f"{one.model[:16]:16} {one.detector[:18]:18} {rates}")
    show("robust accuracy without the detector, with it against static attacks, which do not know it, and against adaptive ones")
    show(f"page: {result.folder}/report.html")
