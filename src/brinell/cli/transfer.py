"""`brinell transfer`: what the adversarial examples of one model do to others."""

from typing import Any

from brinell.cli.options import ShardText, flags_of, show, show_reading
from brinell.cli.verb import Asked, verb
from brinell.studies.transfer.request import TransferRequest


@verb(TransferRequest, argument="source", kept="run.toml", resume="Go on with the transfer in --out.")
def transfer(asked: Asked, shard: ShardText = None) -> int:
    """Show models the adversarial examples of others: made here, of runs, or of benchmark sets.

    Without options: a network for digits, the same retrained, a narrower and a wider one.
    """
    from brinell.across import make_transfer, plan_transfer
    from brinell.api import default_out
    from brinell.runners.meeting import Shard

    part = Shard.asked(shard, asked.out)
    plan = plan_transfer(asked.request(TransferRequest))
    folder = asked.out or default_out(plan.data, "transfer")
    asked.begin(plan.request, folder, *flags_of(shard))
    command = asked.command(plan.request)
    with asked.progress() as progress:
        result = make_transfer(plan, folder, progress, command=command, resume=asked.resume, shard=part)
    return asked.answer(result, lambda: _show(result))


def _show(result: Any) -> None:
    from brinell.studies.transfer.words import reading

    by = f", made by {result.attack}" if result.attack else ""
    show(f"{result.data}: {result.distance} up to {result.eps_text}{by}")
    show("success in percent among samples that both got right; * white-box")
    width = max(12, *(len(one.model) + 2 for one in result.models))
    show(f"  {'made on':<24}" + "".join(f"{one.model:>{width}}" for one in result.models) + f"{'others':>10}  place")
    cells = {(cell.source, cell.model): cell for cell in result.cells}
    for source in result.sources:
        values = []
        for model in result.models:
            cell = cells[source.name, model.model]
            value = "-" if cell.success.value is None else f"{100 * cell.success.value:.0f}"
            values.append(f"{value + '*' * cell.white_box:>{width}}")
        other = "-" if source.success is None else f"{100 * source.success:.0f}"
        place = f"{source.rank.rank:g} ({source.rank.low:g} to {source.rank.high:g})" if source.rank else "-"
        show(f"  {source.name[:24]:<24}{''.join(values)}{other:>10}  {place}")
    show_reading(reading(result), result.notes)
    show(f"page: {result.folder}/report.html")
