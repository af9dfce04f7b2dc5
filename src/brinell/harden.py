"""`brinell.harden(...)` hardens a model; `brinell.harden.AdversarialBatch` and the losses are for a training loop of your own.

The module can be called: what is called is `harden`, below.
"""

import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from brinell.api import Models, default_out, takes
from brinell.engine.progress import Progress
from brinell.engine.request import IN_MEMORY
from brinell.engine.toml import checked
from brinell.inputs import Data, call_text, models_of, only, open_dataset, spec_of
from brinell.studies.harden import page
from brinell.studies.harden import run as harden_run
from brinell.studies.harden.analysis import HardenResult, summarise
from brinell.studies.harden.request import HardenRequest
from brinell.telling import telling

__all__ = ["harden"]


@takes(HardenRequest)
def harden(
    model: Models,
    data: Data | Any,
    *,
    train: Data | Any = None,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> HardenResult:
    """Train a model adversarially and audit it before and after, as `brinell harden` does; arguments as of `audit`.

    A module that is given stays as it is: its copy is trained. `load_state_dict(safetensors.torch.load_file(result.weights))`
    puts the hardened weights into it.

    Args:
        model: one model, a torch module or a spec.
        data: what the model is audited on, and never trained on.
        train: what it is trained on; none takes the train split of data that have one.
        preprocessing: as for `audit`.
        mean: likewise.
        std: likewise.
        answers: likewise.
        out: the folder; none makes a fresh one under runs/.
        resume: go on with a folder that holds part of this hardening.
        progress: as for `audit`.
        settings: the other options of `brinell harden`; none stands for the default.

    Returns:
        What `brinell harden --json` prints; `result.run` is the folder with weights, audits and report.html.
    """
    dataset, learned = open_dataset(data), None if train is None else open_dataset(train)
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    one = only(models_of(model, dataset, spec_of(data, dataset), **said))
    named = {"data": spec_of(data, dataset), "model": str(model) if one is None else f"{IN_MEMORY}:{one.name}"}
    named |= {} if train is None else {"train": spec_of(train, learned)}
    plan = harden_run.make_plan(checked(HardenRequest, settings | named), dataset=dataset, train=learned, model=one)
    folder = Path(out or default_out(plan.request.data, "harden"))
    command = call_text("harden", model, data, said | settings)
    with telling(progress) as told:
        return make_harden(plan, folder, told, command=command, resume=resume)


def make_harden(
    plan: harden_run.HardenPlan, folder: Path, progress: Progress, *, command: str, resume: bool = False
) -> HardenResult:
    """Carry out a hardening that is planned, and write its page; arguments as of `brinell.api.carry_out`."""
    harden_run.make(plan, folder, progress, command=command, resume=resume)
    page.write(folder)
    return summarise(folder)


class Harden(ModuleType):
    """This module, which can be called."""

    def __call__(self, *given: Any, **keywords: Any) -> HardenResult:
        """Harden a model: see `brinell.harden.harden`."""
        return harden(*given, **keywords)


module = cast(Harden, sys.modules[__name__])
module.__class__ = Harden
module.__doc__ = harden.__doc__
vars(module).update(__signature__=inspect.signature(harden), __wrapped__=inspect.unwrap(harden))
