"""The Python call that explains: what in an input matters to a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from brinell.api import Models, default_out, takes
from brinell.engine.request import IN_MEMORY
from brinell.engine.toml import checked
from brinell.inputs import Data, call_text, models_of, only, open_dataset, spec_of
from brinell.pages import html
from brinell.runners.meeting import Shard
from brinell.store.table import Folder
from brinell.studies.explain import page
from brinell.studies.explain.analysis import ExplainResult, summarise
from brinell.studies.explain.records import Rows
from brinell.studies.explain.request import ExplainRequest
from brinell.studies.explain.run import explain as explain_run


@takes(ExplainRequest)
def explain(
    model: Models = "digits-cnn",
    data: Data | Any = "digits",
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    shard: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
    trust: Path | str | None = None,
    **settings: Any,
) -> ExplainResult:
    """Show which places of inputs matter to a classifier, and judge the maps, as `brinell explain` does.

    Args:
        model: as for `audit`, one alone.
        data: as for `audit`.
        preprocessing: as for `audit`.
        mean: as for `audit`.
        std: as for `audit`.
        answers: as for `audit`.
        out: the folder; none makes a fresh one under runs/, and of a run `explain` within its folder.
        resume: go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        tell: told what goes on.
        trust: a folder from elsewhere whose run names models and data that may be used.
        settings: the other options of `brinell explain`; none stands for the default.

    Returns:
        What `brinell explain --json` prints; `result.folder` holds rows, maps and report.html.
    """
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    command, part = call_text("explain", model, data, said | settings), Shard.asked(shard, out)
    given: dict[str, Any] = {"command": command, "resume": resume, "shard": part}
    if settings.get("run") is not None:
        request = checked(ExplainRequest, settings)
        run = Path(str(request.run))

        def pages(folder: Path) -> None:
            page.write(folder)
            html.write(run)  # its gallery shows the way here

        return explain_run(
            request, Path(out or default_folder(request)), tell, answer=_summary, page=pages, trusted=trust, **given
        )
    dataset = open_dataset(data)
    one = only(models_of(model, dataset, spec_of(data, dataset), **said))
    named = {"data": spec_of(data, dataset), "model": str(model) if one is None else f"{IN_MEMORY}:{one.name}"}
    request = checked(ExplainRequest, settings | named)
    folder = Path(out or default_folder(request))
    return explain_run(request, folder, tell, answer=_summary, page=page.write, dataset=dataset, model=one, **given)


def default_folder(request: ExplainRequest) -> Path:
    """A fresh folder under runs/; of a run `explain` within its folder."""
    return default_out(request.data, "explain") if request.run is None else Path(request.run) / "explain"


def _summary(made: Folder[Rows], name: str) -> ExplainResult:
    return summarise(made).model_copy(update={"folder": name})
