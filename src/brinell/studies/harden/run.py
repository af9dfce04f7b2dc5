"""Runs a hardening: the audit before, the training, the comparison on unseen changes, and the audit after."""

import copy
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.core import bounded
from brinell.core.class_names import option_text, own_order
from brinell.core.errors import RequestError, option
from brinell.core.model import Model, ModelInfo
from brinell.core.streams import seeded
from brinell.engine import provenance
from brinell.engine.answers import with_logits
from brinell.engine.audit import run_audit
from brinell.engine.eps_grid import parse_eps
from brinell.engine.job import Job, manifest_session
from brinell.engine.plan import make_plan as plan_audit
from brinell.engine.plan import model_facts, split_class_names
from brinell.engine.progress import Progress
from brinell.engine.request import IN_MEMORY, Request, count_samples
from brinell.engine.selection import choose_samples
from brinell.engine.spelling import expand_spec
from brinell.models._weights import load_weights_file
from brinell.pages import html
from brinell.store.files import write_atomically
from brinell.store.run import LAYOUT as RUN
from brinell.studies.harden import page
from brinell.studies.harden.analysis import HardenResult, summarise
from brinell.studies.harden.plan import RESUME_SETTINGS, HardenPlan, make_plan
from brinell.studies.harden.records import AFTER, BEFORE, LAYOUT, checkpoint_path, locate_hardened
from brinell.studies.harden.unseen import measure
from brinell.studies.kit import Call
from brinell.training.checkpoint import write
from brinell.training.checks import Checker
from brinell.training.data import Samples
from brinell.training.loop import PGD_STEPS, Loop, Settings, State
from brinell.training.recipe import TrainedNetwork

DEFAULT_BUDGETS = 5
"""Number of audit budgets if the request names none."""


def run_plan(
    plan: HardenPlan, folder: Path, progress: Progress, *, command: str, resume: bool = False, trained: Path | None = None
) -> Path:
    """Run a plan in `folder`, or with `resume` complete an interrupted one. Returns the folder.

    With `trained`, the weights and the history of the training are taken from that folder of an earlier hardening.
    Other args and errors are those of `engine.audit.run`.
    """
    job = Job(
        LAYOUT,
        folder,
        plan.request,
        about=_manifest_facts(plan),
        inputs="the data, the weights of the model",
        device=plan.device,
        command=command,
        ignored=RESUME_SETTINGS,
        accumulated={"training": {}, "answers": {}, "probes": {}},
    )
    _check_folder(plan, folder)
    with manifest_session(job, resume=resume) as manifest:
        _audit(plan, folder / BEFORE, progress, spec=plan.request.model, model=plan.model)
        if "weights" not in manifest["training"]:
            manifest["training"] = (
                _train(plan, folder, manifest, progress) if trained is None else _take_training(plan, folder, manifest, trained)
            )
            LAYOUT.save(folder, manifest)
        if "unseen" not in manifest["training"]:
            manifest["training"]["unseen"] = _measure_unseen(plan, folder, manifest)
            LAYOUT.save(folder, manifest)
        weights, spec = locate_hardened(folder, manifest)
        hardened = None if spec is not None else _load_hardened(plan, weights)
        _audit(plan, folder / AFTER, progress, spec=spec or plan.request.model, model=hardened)
    return folder


def _check_folder(plan: HardenPlan, folder: Path) -> None:
    """Reject a folder whose path cannot be part of a model spec."""
    file = folder / weights_name(plan)
    spec = None if plan.memory_model is not None else with_weights(plan.request.model, file, plan.model.info)
    if spec is not None and plugins.parse(spec).options.get("weights") != str(file):
        raise RequestError(
            f"{option('out')} {folder} contains &, which separates the options of a model spec: choose another {option('out')}"
        )


def weights_name(plan: HardenPlan) -> str:
    """File name of the hardened weights: the model's name, with characters that are special in a path or a spec replaced."""
    plain = re.sub(r"[^\w.+-]", "_", plan.model.name)
    return f"{plain}-hardened.safetensors"


def _manifest_facts(plan: HardenPlan) -> dict[str, Any]:
    n = len(plan.train)
    return {
        "cell": plan.cell,
        "model": {"name": plan.model.name, **model_facts(plan.model)},
        "data": provenance.data_facts(plan.request.data, plan.dataset, plan.dataset.digest(), len(plan.dataset), "all"),
        "train": provenance.data_facts(plan.train_spec, plan.train, plan.train.digest(), n, "all"),
        "trained_on": len(plan.train_positions),
        "validation": len(plan.validation_positions),
        "eps": plan.eps,
        "eps_text": plan.eps_text,
    }


def _audit(plan: HardenPlan, folder: Path, progress: Progress, *, spec: str, model: Model | None) -> None:
    """Run an ordinary audit in `folder`, or resume the one that is there."""
    settings = plan.request
    request = Request(
        data=settings.data,
        model=(spec,) if model is None or plan.memory_model is None else (f"{IN_MEMORY}:{model.name}",),
        norm=settings.norm,
        eps=audit_budgets(plan),
        attack=settings.attack,
        samples=min(settings.samples, len(plan.dataset)),
        seed=settings.seed,
        batch_size=settings.batch_size,
        device=settings.device,
    )
    with seeded(settings.seed):
        audit = plan_audit(request, dataset=plan.dataset, models=() if model is None else (model,))
        run_audit(audit, folder, progress, command=f"brinell harden, the audit {folder.name}", resume=RUN.has(folder))
    html.write(folder)


def audit_budgets(plan: HardenPlan) -> str:
    """The budgets of the audits, which always include the training budget."""
    budgets = plan.request.budgets
    if budgets is None:
        return f"0:{plan.eps_text}:{DEFAULT_BUDGETS}"
    return budgets if plan.eps in parse_eps(budgets).values else f"{budgets},{plan.eps_text}"


def _train(plan: HardenPlan, folder: Path, manifest: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Train the model, or resume the training, and write the weights. Returns the training facts for the manifest."""
    request, device = plan.request, plan.device
    model, hardened = copy.deepcopy(plan.model), f"{plan.model.name}-hardened"
    with model.info.session(device):
        prepared = with_logits(model, plan.train, manifest, device)
        trained = TrainedNetwork.of(prepared)
        train_samples = Samples.of(plan.train, plan.train_positions, device)
        validation_samples = Samples.of(plan.train, plan.validation_positions, device)
        checker = Checker(
            x=validation_samples.load(torch.arange(len(validation_samples), device=device)),
            y=validation_samples.labels,
            distance=plan.distance,
            domain=plan.train.domain,
            strong=plugins.build("defence", "pgd", {"steps": PGD_STEPS}),
            batch_size=request.batch_size,
            seed=request.seed,
        )
        reporter = _ProgressReporter(progress)
        loop = Loop(
            trained,
            train_samples,
            [_defence_samples(plan, index, train_samples, device) for index in range(len(plan.recipe.parts))],
            checker,
            plan.recipe,
            plan.distance,
            _settings(plan),
            file=checkpoint_path(folder),
            report=lambda text: progress.warn(f"{text}"),
            on_check=reporter,
        )
        if loop.resume():
            progress.note(f"resuming the training from step {loop.state.step}")
        stage, passes = f"training by {plan.recipe.text}", loop.passes_left()
        progress.stage(hardened, stage, len(train_samples), passes)
        if passes:
            progress.forecast({stage: passes}, 0)
        reporter.begin(loop.state)
        weights = loop.run()
    file = folder / weights_name(plan)
    write(file, weights, {"recipe": loop.state.recipe, "eps": plan.eps, "norm": request.norm, "steps": loop.state.step})
    state = loop.state
    return {
        "weights": file.name,
        "spec": _hardened_spec(plan, file.name),
        "recipe": state.recipe,
        "step": state.step,
        "best_step": state.best_step,
        "seconds": state.seconds,
        "forwards": state.forwards,
        "backwards": state.backwards,
        "curve": state.curve,
        "events": state.events,
    }


def _take_training(plan: HardenPlan, folder: Path, manifest: dict[str, Any], trained: Path) -> dict[str, Any]:
    """Copy the weights of an earlier hardening, and return its training facts for the manifest."""
    with plan.model.info.session(plan.device):
        with_logits(copy.deepcopy(plan.model), plan.train, manifest, plan.device)
    file = folder / weights_name(plan)
    write_atomically(file, lambda temporary: temporary.write_bytes(bounded.read(trained / file.name, bounded.ON_DISK)))
    facts = {key: value for key, value in LAYOUT.open(trained)["training"].items() if key != "unseen"}
    return facts | {"weights": file.name, "spec": _hardened_spec(plan, file.name)}


def _hardened_spec(plan: HardenPlan, file: str) -> str | None:
    """Spec of the model with the weights in a file of the folder; None for a model that no spec can name."""
    return None if plan.memory_model is not None else with_weights(plan.request.model, Path(file), plan.model.info)


def _measure_unseen(plan: HardenPlan, folder: Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare both models on the audit samples under the changes that the training did not use."""
    request, device = plan.request, plan.device
    ids = choose_samples(
        Request(data=request.data, samples=count_samples(request.samples, len(plan.dataset)), seed=request.seed), plan.dataset
    ).ids
    x, labels = plan.dataset.load(ids.tolist()).to(device), np.asarray(plan.dataset.labels(), dtype=np.int64)[ids]
    with ExitStack() as sessions:
        networks, made_by = [], {name for stored in plan.examples.values() for name in stored.distortions}
        for model in (copy.deepcopy(plan.model), _load_hardened(plan, locate_hardened(folder, manifest)[0])):
            sessions.enter_context(model.info.session(device))
            networks.append(TrainedNetwork.of(with_logits(model, plan.train, manifest, device)))
        before, after = networks
        counts: list[dict[str, Any]] | None = None
        for rows in np.array_split(np.arange(len(ids)), max(1, len(ids) // max(1, request.batch_size))):
            y, part = torch.from_numpy(labels[rows]).to(device), x[torch.from_numpy(rows).to(device)]
            sample_ids = torch.from_numpy(ids[rows]).to(device)
            settings: dict[str, Any] = {"norm": request.norm, "eps": plan.eps, "seed": request.seed}
            part_counts = measure(before, after, part, y, sample_ids, plan.dataset.domain, plan.recipe, made_by, **settings)
            counts = (
                part_counts
                if counts is None
                else [_add_counts(row, addend) for row, addend in zip(counts, part_counts, strict=True)]
            )
    return counts or []


def _add_counts(row: dict[str, Any], addend: dict[str, Any]) -> dict[str, Any]:
    return {key: value if key in ("name", "seen") else value + addend[key] for key, value in row.items()}


def _defence_samples(plan: HardenPlan, index: int, train_samples: Samples, device: torch.device) -> Samples:
    """Training samples of the defence at position `index` in the recipe."""
    stored = plan.examples.get(index)
    return train_samples if stored is None else Samples.of(stored.dataset, stored.rows, device)


def _settings(plan: HardenPlan) -> Settings:
    minutes = plan.request.minutes
    overrides = {"eps": plan.eps, "seconds": None if minutes is None else 60 * minutes}
    return Settings(**plan.request.settings(Settings) | overrides)


class _ProgressReporter:
    """Reports the progress of a training and the passes since the previous check."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.forwards, self.backwards = progress, 0, 0

    def begin(self, state: State) -> None:
        """Start counting at the passes of `state`, which earlier reports include."""
        self.forwards, self.backwards = state.forwards, state.backwards

    def __call__(self, state: State, share: float) -> None:
        last = state.curve[-1]
        self.progress.count_passes(state.forwards - self.forwards, state.backwards - self.backwards)
        self.begin(state)
        self.progress.note(
            f"note: {100 * share:.0f} % of the training, step {last['step']}: of {last['n']} validation samples "
            f"{last['clean']} are right and {last['robust']} robust"
        )


def with_weights(spec: str, file: Path, info: ModelInfo) -> str | None:
    """The spec of the same model with weights from a file; None if its plug-in has no `weights` option.

    The spec names the classes if they are in another order than those of the data, since a classes.json lies by the old weights.
    """
    spec, stated = split_class_names(expand_spec("model", spec))
    stated = own_order(info.class_names, info.class_order) if info.class_order else stated
    if stated and not option_text(stated):
        return None
    name, path, options = plugins.parse(spec)
    fields = getattr(plugins.load("model", name), "__dataclass_fields__", {})
    if "weights" not in fields:
        return None
    pairs = "&".join(
        f"{key}={value}" for key, value in (options | {"weights": str(file), "name": file.stem}).items() if key in fields
    )
    return f"{name}{':' + path if path else ''}?{pairs}" + (f"&{option_text(stated)}" if stated else "")


def _load_hardened(plan: HardenPlan, file: Path) -> Model:
    """The model with the hardened weights, for a model that no spec can name."""
    model = copy.deepcopy(plan.model)
    assert model.info.module is not None, "the plan refuses a model without one"
    load_weights_file(model.info.module, str(file))
    return model


def repeat(call: Call, folder: Path) -> None:
    """Carry a hardening out again with the weights of a folder, which are not trained again: both audits and the comparison."""
    plan = make_plan(call.request, dataset=call.dataset(), train=call.dataset("train"), model=call.model())
    out = call.folder(plan.request.data)
    run_plan(plan, out, call.progress, command=call.command, trained=folder)
    page.write(out)


def carry_out_call(call: Call) -> HardenResult:
    """Run `brinell harden`: the audit before, the training, the audit after, and the page.

    Raises:
        RequestError: the request cannot be carried out.
        StoppedError: the folder cannot be written, or the training diverged.
    """
    plan = make_plan(call.request, dataset=call.dataset(), train=call.dataset("train"), model=call.model())
    folder = call.folder(plan.request.data)
    run_plan(plan, folder, call.progress, command=call.command, resume=call.resume)
    page.write(folder)
    return summarise(folder)
