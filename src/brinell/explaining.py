"""The Python call that explains: what in an input matters to a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from brinell.api import Models, default_out, takes
from brinell.engine.request import IN_MEMORY
from brinell.engine.toml import checked
from brinell.inputs import Data, call_text, models_of, only, open_dataset, spec_of
from brinell.report import html
from brinell.studies.explain import page
from brinell.studies.explain.analysis import ExplainResult, summarise
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
        tell: told what goes on.
        trust: a folder from elsewhere whose run names models and data that may be used.
        settings: the other options of `brinell explain`; none stands for the default.

    Returns:
        What `brinell explain --json` prints; `result.folder` holds rows, maps and explain.html.
    """
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    command = call_text("explain", model, data, said | settings)
    if settings.get("run") is not None:
        request = checked(ExplainRequest, settings)
        folder = Path(out or Path(str(request.run)) / "explain")
        made = explain_run(request, folder, tell, command=command, trust=trust)
        page.write(folder)
        html.write(Path(str(request.run)))  # its gallery shows the way here
        return summarise(made)
    dataset = open_dataset(data)
    one = only(models_of(model, dataset, spec_of(data, dataset), **said))
    named = {"data": spec_of(data, dataset), "model": str(model) if one is None else f"{IN_MEMORY}:{one.name}"}
    request = checked(ExplainRequest, settings | named)
    folder = Path(out or default_out(request.data, "explain"))
    made = explain_run(request, folder, tell, dataset=dataset, model=one, command=command)
    page.write(folder)
    return summarise(made)
