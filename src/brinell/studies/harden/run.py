"""A hardening carried out: the audit before, the training, what carries over, the audit after."""

import copy
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.core.errors import RequestError, option
from brinell.core.model import Model
from brinell.core.streams import seeded
from brinell.engine.answers import settled
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import facts_of
from brinell.engine.plan import make_plan as plan_audit
from brinell.engine.progress import Progress
from brinell.engine.request import IN_MEMORY, Request
from brinell.engine.selection import choose
from brinell.engine.spelling import spelled
from brinell.models._weights import fit_file
from brinell.pages import html
from brinell.runners import local, provenance
from brinell.runners.loop import Job, carry_out
from brinell.store.run import LAYOUT as RUN
from brinell.studies.harden import page
from brinell.studies.harden.analysis import HardenResult, summarise
from brinell.studies.harden.plan import ANYWHERE, HardenPlan, make_plan
from brinell.studies.harden.records import AFTER, BEFORE, LAYOUT, checkpoint, hardened_of
from brinell.studies.harden.unseen import measure
from brinell.studies.kit import Call
from brinell.training.checkpoint import write
from brinell.training.checks import Checker
from brinell.training.data import Samples
from brinell.training.loop import PGD_STEPS, Loop, Settings, State
from brinell.training.recipe import Trained

POINTS = 5
"""Budgets of the audits where nobody names any."""


def make(plan: HardenPlan, out: Path, progress: Progress, *, command: str, resume: bool = False) -> Path:
    """Carry out a plan in the folder `out`, or with `resume` what is missing of it. Returns the folder.

    Args and errors are those of `runners.local.run`.
    """
    job = Job(
        LAYOUT,
        out,
        plan.request,
        about=_about(plan),
        inputs="the data, the weights of the model",
        device=plan.device,
        command=command,
        ignored=ANYWHERE,
        kept={"training": {}, "answers": {}, "probes": {}},
    )
    _check_place(plan, out)
    with carry_out(job, resume=resume) as manifest:
        _audit(plan, out / BEFORE, progress, spec=plan.request.model, model=plan.model)
        if "weights" not in manifest["training"]:
            manifest["training"] = _trained(plan, out, manifest, progress)
            LAYOUT.save(out, manifest)
        if "unseen" not in manifest["training"]:
            manifest["training"]["unseen"] = _unseen(plan, out, manifest)
            LAYOUT.save(out, manifest)
        weights, spec = hardened_of(out, manifest)
        hardened = None if spec is not None else _loaded(plan, weights)
        _audit(plan, out / AFTER, progress, spec=spec or plan.request.model, model=hardened)
    return out


def _check_place(plan: HardenPlan, out: Path) -> None:
    """Refuse a folder that no spec of the hardened model could name."""
    file = out / file_name(plan)
    spec = None if plan.given is not None else with_weights(plan.request.model, file)
    if spec is not None and plugins.parse(spec).options.get("weights") != str(file):
        raise RequestError(
            f"{option('out')} {out} has a & in it, which parts the options of a model spec: choose another {option('out')}"
        )


def file_name(plan: HardenPlan) -> str:
    """What the file of the hardened weights is called: as the model, without what means something in a path or a spec."""
    plain = re.sub(r"[^\w.+-]", "_", plan.model.name)
    return f"{plain}-hardened.safetensors"


def _about(plan: HardenPlan) -> dict[str, Any]:
    n = len(plan.train)
    return {
        "cell": plan.cell,
        "model": {"name": plan.model.name, **facts_of(plan.model)},
        "data": provenance.data(plan.request.data, plan.dataset, plan.dataset.digest(), len(plan.dataset), "all"),
        "train": provenance.data(plan.train_spec, plan.train, plan.train.digest(), n, "all"),
        "trained_on": len(plan.learned),
        "validation": len(plan.held),
        "eps": plan.eps,
        "eps_text": plan.eps_text,
    }


def _audit(plan: HardenPlan, out: Path, progress: Progress, *, spec: str, model: Model | None) -> None:
    """An audit like any other, in a folder of its own; one that is there already is resumed."""
    asked = plan.request
    request = Request(
        data=asked.data,
        model=(spec,) if model is None or plan.given is None else (f"{IN_MEMORY}:{model.name}",),
        norm=asked.norm,
        eps=budgets_of(plan),
        attack=asked.attack,
        samples=min(asked.samples, len(plan.dataset)),
        seed=asked.seed,
        batch_size=asked.batch_size,
        device=asked.device,
    )
    with seeded(asked.seed):
        audit = plan_audit(request, dataset=plan.dataset, models=() if model is None else (model,))
        local.run(audit, out, progress, command=f"brinell harden, the audit {out.name}", resume=RUN.has(out))
    html.write(out)


def budgets_of(plan: HardenPlan) -> str:
    """The budgets of the audits; the one that is trained for is always among them."""
    asked = plan.request.budgets
    if asked is None:
        return f"0:{plan.eps_text}:{POINTS}"
    return asked if plan.eps in parse_eps(asked).values else f"{asked},{plan.eps_text}"


def _trained(plan: HardenPlan, out: Path, manifest: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Train, or go on with it, and write the weights. Returns what the manifest says of it."""
    request, device = plan.request, plan.device
    model, hardened = copy.deepcopy(plan.model), f"{plan.model.name}-hardened"
    with model.info.session(device):
        prepared = settled(model, plan.train, manifest, device)
        trained = Trained.of(prepared)
        own = Samples.of(plan.train, plan.learned, device)
        held = Samples.of(plan.train, plan.held, device)
        checker = Checker(
            x=held.load(torch.arange(len(held))),
            y=held.labels,
            distance=plan.distance,
            domain=plan.train.domain,
            strong=plugins.build("defence", "pgd", {"steps": PGD_STEPS}),
            batch_size=request.batch_size,
            seed=request.seed,
        )
        told = _Told(progress)
        loop = Loop(
            trained,
            own,
            [_samples(plan, at, own, device) for at in range(len(plan.recipe.parts))],
            checker,
            plan.recipe,
            plan.distance,
            _settings(plan),
            file=checkpoint(out),
            tell=lambda text: progress.warn(f"{text}"),
            done=told,
        )
        if loop.resume():
            progress.note(f"going on with the training from step {loop.state.step}")
        stage, passes = f"training by {plan.recipe.text}", loop.passes_left()
        progress.stage(hardened, stage, len(own), passes)
        if passes:
            progress.ahead({stage: passes}, 0)
        told.begins(loop.state)
        kept = loop.run()
    file = out / file_name(plan)
    write(file, kept, {"recipe": loop.state.recipe, "eps": plan.eps, "norm": request.norm, "steps": loop.state.step})
    state = loop.state
    return {
        "weights": file.name,
        "spec": None if plan.given is not None else with_weights(request.model, Path(file.name)),
        "recipe": state.recipe,
        "step": state.step,
        "best_step": state.best_step,
        "seconds": state.seconds,
        "forwards": state.forwards,
        "backwards": state.backwards,
        "curve": state.curve,
        "events": state.events,
    }


def _unseen(plan: HardenPlan, out: Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Both models on inputs that were changed in ways that were not trained on, over the samples of the audits."""
    request, device = plan.request, plan.device
    ids = choose(Request(data=request.data, samples=min(request.samples, len(plan.dataset)), seed=request.seed), plan.dataset).ids
    x, labels = plan.dataset.load(ids.tolist()).to(device), np.asarray(plan.dataset.labels(), dtype=np.int64)[ids]
    with ExitStack() as sessions:
        networks, made_by = [], {name for one in plan.brought.values() for name in one.made_by}
        for model in (copy.deepcopy(plan.model), _loaded(plan, hardened_of(out, manifest)[0])):
            sessions.enter_context(model.info.session(device))
            networks.append(Trained.of(settled(model, plan.train, manifest, device)))
        before, after = networks
        found: list[dict[str, Any]] | None = None
        for rows in np.array_split(np.arange(len(ids)), max(1, len(ids) // max(1, request.batch_size))):
            y, part = torch.from_numpy(labels[rows]).to(device), x[torch.from_numpy(rows).to(device)]
            at = torch.from_numpy(ids[rows]).to(device)
            asked: dict[str, Any] = {"norm": request.norm, "eps": plan.eps, "seed": request.seed}
            told = measure(before, after, part, y, at, plan.dataset.domain, plan.recipe, made_by, **asked)
            found = told if found is None else [_added(one, two) for one, two in zip(found, told, strict=True)]
    return found or []


def _added(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    return {key: value if key in ("name", "seen") else value + two[key] for key, value in one.items()}


def _samples(plan: HardenPlan, at: int, own: Samples, device: torch.device) -> Samples:
    """What the share of a batch is drawn from that the defence at this position learns."""
    found = plan.brought.get(at)
    return own if found is None else Samples.of(found.dataset, found.rows, device)


def _settings(plan: HardenPlan) -> Settings:
    minutes = plan.request.minutes
    own = {"eps": plan.eps, "seconds": None if minutes is None else 60 * minutes}
    return Settings(**plan.request.settings(Settings) | own)


class _Told:
    """Tells at each check how far a training is, and the passes since the one before."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.forwards, self.backwards = progress, 0, 0

    def begins(self, state: State) -> None:
        """A training that was interrupted has told its passes already."""
        self.forwards, self.backwards = state.forwards, state.backwards

    def __call__(self, state: State, share: float) -> None:
        last = state.curve[-1]
        self.progress.passes(state.forwards - self.forwards, state.backwards - self.backwards)
        self.begins(state)
        self.progress.note(
            f"note: {100 * share:.0f} % of the training, step {last['step']}: of {last['n']} validation samples "
            f"{last['clean']} are right and {last['robust']} robust"
        )


def with_weights(spec: str, file: Path) -> str | None:
    """The spec of the same model with weights from a file; None where its plug-in takes none."""
    name, path, options = plugins.parse(spelled("model", spec))
    fields = getattr(plugins.load("model", name), "__dataclass_fields__", {})
    if "weights" not in fields:
        return None
    pairs = "&".join(
        f"{key}={value}" for key, value in (options | {"weights": str(file), "name": file.stem}).items() if key in fields
    )
    return f"{name}{':' + path if path else ''}?{pairs}"


def _loaded(plan: HardenPlan, file: Path) -> Model:
    """The model with the hardened weights, where no spec can name it."""
    model = copy.deepcopy(plan.model)
    assert model.info.module is not None, "the plan refuses a model without one"
    fit_file(model.info.module, str(file))
    return model


def carry_out_call(call: Call) -> HardenResult:
    """Harden the model that a call names: the audit before, the training, the audit after, and the page.

    Raises:
        RequestError: what cannot be carried out.
        StoppedError: the folder cannot be written, or the training diverged.
    """
    plan = make_plan(call.request, dataset=call.dataset(), train=call.dataset("train"), model=call.model())
    folder = call.folder(plan.request.data)
    make(plan, folder, call.progress, command=call.command, resume=call.resume)
    page.write(folder)
    return summarise(folder)
