"""`brinell explain`: what in an input matters to a model, by several methods, and what their maps are worth."""

from typing import Any

from brinell.cli.options import ShardText, flags_of, show, tell
from brinell.cli.verb import Asked, verb
from brinell.studies.explain.request import ExplainRequest


@verb(ExplainRequest, foreign=True, kept="run.toml", resume="Go on with the explanations in --out.")
def explain(asked: Asked, shard: ShardText = None) -> int:
    """Show which places of an input matter to a model, by several methods, and judge each method's maps.

    With ground truth it is told how well maps lie on the objects; without, how well the model follows them.
    """
    from brinell import explaining
    from brinell.wording import in_options

    request = asked.request(ExplainRequest)
    out = asked.out or (None if shard else explaining.default_folder(request))
    if out is not None:
        asked.begin(request, out, *flags_of(shard))
    given = request.model_dump(exclude_unset=True) | {"out": out, "resume": asked.resume, "shard": shard}
    result = in_options(explaining.explain)(**given, tell=tell, trust=asked.trust)
    return asked.answer(result, lambda: _show(result))


def _show(result: Any) -> None:
    from brinell.studies.explain.analysis import in_words

    left = ", ".join(f"{one.count} {one.reason}" for one in result.left_out)
    show(f"{result.model} on {result.data}: {result.n} samples{f'; left out: {left}' if left else ''}")
    show(f"{'method':32} {'queries':>8} {'Dice':>6} {'IoU':>6} {'deletion':>9} {'insertion':>10} {'faithful':>9}")
    for one in result.methods:
        cells = [_mean(one.dice, 6), _mean(one.iou, 6), _mean(one.deletion, 9), _mean(one.insertion, 10)]
        faithful = "" if one.faithful is None else "yes" if one.faithful else "no"
        show(f"{one.name[:32]:32} {one.queries:>8.0f} {' '.join(cells)} {faithful:>9}")
    for sentence in in_words(result):
        show(sentence)
    show(f"page: {result.folder}/report.html")


def _mean(measure: Any, width: int) -> str:
    return f"{'-' if measure is None else format(measure.value, '.3f'):>{width}}"
