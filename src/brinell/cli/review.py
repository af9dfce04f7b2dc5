"""`brinell epsilon --review`: a person judges pairs of pictures in a browser."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brinell.cli.options import show, show_json
from brinell.core.errors import RequestError, StoppedError

OPTIONS = ("eps", "change", "trials", "reviewer", "port", "resume")
"""Options of `brinell epsilon` that a review alone has."""


def judge(data: str, norm: Sequence[str] | None, out: Path | None, settings: Mapping[str, Any], *, as_json: bool) -> int:
    """Serve the pairs until all are judged; the exit code."""
    from brinell import api
    from brinell.cli.options import say

    if norm is not None and len(norm) > 1:
        raise RequestError("a review has one norm, linf or l2: give --norm once")
    if settings.get("resume") and out is None:
        raise RequestError("--resume needs --out: the folder of the review to go on with")
    folder = out or api.default_out(data, "review")
    again = f"brinell epsilon {shlex.quote(data)} --review --resume --out {shlex.quote(str(folder))}"
    given: dict[str, Any] = dict(settings) | ({"norm": norm[0]} if norm else {})
    try:
        result = api.review(data, out=folder, tell=say, **given)
    except KeyboardInterrupt:
        say(f"interrupted; the answers are kept: go on with {again} and the same options")
        return 130
    except StoppedError as error:
        say(f"error: {error} ({again})")
        return error.exit_code
    if as_json:
        show_json(result.model_dump(mode="json"))
    else:
        _show(result)
    return 0


def _show(result: Any) -> None:
    from brinell.studies.review.page import interval, threshold

    show(f"{result.answered} of {result.trials} pairs judged, {result.false_alarms} false alarms on {result.catch} equal ones")
    show("  half of the changes are noticed at")
    for one in [result.overall, *result.per_class] if result.overall else ():
        show(f"  {one.name:<16} {threshold(one):>16}   95 % interval: {interval(one)}")
    show(f"page: {Path(result.folder) / 'review.html'}")
