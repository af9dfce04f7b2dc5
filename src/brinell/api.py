"""The Python calls: what the command line does, with models and data that are already in memory."""

import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import torch

from brinell import inputs, results, runs
from brinell.analysis.results import AuditResult, BenchmarkResult
from brinell.analysis.robust_accuracy import summarise
from brinell.core.contracts import Dataset
from brinell.core.errors import BrinellWarning
from brinell.core.model import Model
from brinell.engine.plan import Plan, make_plan, open_data
from brinell.engine.progress import Progress, Silent
from brinell.engine.request import IN_MEMORY, BaseRequest, Request
from brinell.engine.toml import check_known, checked, make_request
from brinell.engine.trust import MARK, refusal, untrusted
from brinell.inputs import Data, call_text, models_of, only, open_dataset, spec_of, texts
from brinell.pages import html
from brinell.runners import local, shards
from brinell.runners.meeting import Shard, chosen
from brinell.store.run import Run
from brinell.store.signature import signers
from brinell.studies.benchmark import run as benchmark_run
from brinell.studies.benchmark.cards import figures
from brinell.studies.benchmark.plan import BenchmarkPlan
from brinell.studies.benchmark.plan import make_plan as make_benchmark_plan
from brinell.studies.benchmark.records import BenchmarkSet
from brinell.studies.benchmark.request import BenchmarkRequest
from brinell.studies.detection import page as detection_page
from brinell.studies.detection.analysis import DetectionResult
from brinell.studies.detection.analysis import summarise as summarise_detection
from brinell.studies.detection.request import DetectRequest
from brinell.studies.detection.run import detect as run_detection
from brinell.studies.epsilon import page as epsilon_page
from brinell.studies.epsilon.analysis import EpsilonResult
from brinell.studies.epsilon.analysis import summarise as summarise_epsilon
from brinell.studies.epsilon.evidence import Threshold
from brinell.studies.epsilon.recommended import resolve
from brinell.studies.epsilon.records import check_free, save_folder
from brinell.studies.epsilon.request import EpsilonRequest
from brinell.studies.epsilon.run import measure
from brinell.studies.export.answer import ExportAnswer
from brinell.studies.export.request import ExportRequest
from brinell.studies.export.run import export as run_export
from brinell.studies.review import page as review_page
from brinell.studies.review.analysis import ReviewResult, thresholds
from brinell.studies.review.analysis import summarise as summarise_review
from brinell.studies.review.records import LAYOUT as REVIEW
from brinell.studies.review.records import Review
from brinell.studies.review.request import ReviewRequest
from brinell.studies.review.run import make_review, resume_review
from brinell.studies.review.server import ReviewServer
from brinell.studies.unrestricted import page as unrestricted_page
from brinell.studies.unrestricted import run as unrestricted_run
from brinell.studies.unrestricted.analysis import UnrestrictedResult
from brinell.studies.unrestricted.analysis import summarise as summarise_unrestricted
from brinell.studies.unrestricted.request import UnrestrictedRequest
from brinell.studies.verification.alone import verify_unrun
from brinell.studies.verification.result import VerifyResult
from brinell.studies.verification.run import verify_run
from brinell.telling import telling
from brinell.wording import worded

Answer = TypeVar("Answer")
Models = Any
"""A model or several: `nn.Module`, function of arrays, scikit-learn classifier, onnxruntime session, pipeline of transformers,
`Model`, or spec; a list or dict of these."""


def default_out(data: str, what: str) -> Path:
    """A fresh folder under runs/, named after the data, what was done (a norm, or a verb) and the time."""
    name = f"{data.partition(':')[0]}-{what.replace(':', '-').replace('/', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    ends = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    return next(path for end in ends if not (path := Path("runs") / f"{name}{end}").exists())


def takes(request: type[BaseRequest]) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Makes the fields of a request keywords of a call: its signature and its docstring name them, and it refuses others."""

    def change(call: Callable[..., Answer]) -> Callable[..., Answer]:
        own = inspect.signature(call).parameters
        fields = {name: field for name, field in request.model_fields.items() if name not in own}
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
            for name, field in fields.items()
        ]
        first = [one for one in own.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]

        @worded
        @functools.wraps(call)
        def checked_call(*given: Any, **keywords: Any) -> Answer:
            check_known([name for name in keywords if name not in own], fields)
            known = {name: value for name, value in keywords.items() if name in own and value is not None}
            settings = texts({name: value for name, value in keywords.items() if name not in own})
            with ExitStack() as stack:
                for device in ("cpu", "cuda"):  # a caller's autocast would change figures
                    stack.enter_context(torch.autocast(device, enabled=False))
                return call(*given, **known, **settings)

        told = "\n".join(f"    {name}: {' '.join(str(field.description).split())}" for name, field in fields.items())
        raised = "Raises:\n    BrinellError: one line that says what is wrong, why, and what to do."
        checked_call.__doc__ = f"{inspect.getdoc(call)}\n\nSettings:\n{told}\n\n{raised}\n"
        checked_call.__signature__ = inspect.Signature([*first, *added])  # type: ignore[attr-defined]
        return checked_call

    return change


@takes(Request)
def audit(
    model: Models,
    data: Data | Any,
    y: Any = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> results.Audit:
    """Audit classifiers: robust accuracy per class over all budgets, records and a report.

    Args:
        model: an `nn.Module` that takes inputs within the bounds of the data and answers logits (evaluation mode is set for the
            time of the audit); a function of numpy or torch arrays that answers scores or labels; a fitted classifier of
            scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as
            `digits-cnn`. Several of these in a list, or in a dict with their names.
        data: `(x, y)`: inputs (n, *shape), channels first or last, bytes or in [0, 1], and labels (n,); a dict of these; a torch
            Dataset or DataLoader; a Hugging Face dataset; a `Dataset`, as `brinell.data` makes one where more must be said; or a
            spec such as `npz:FILE`.
        y: the labels, where `data` are the inputs alone.
        preprocessing: `{"mean": ..., "std": ..., "axis": -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what the model answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for
            two classes one logit or probability; none goes by what the answers to clean samples look like.
        out: the run folder; none makes a fresh one under runs/.
        resume: go on with a folder that holds part of this run.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: whether to tell what goes on, or what is told; none tells at a terminal and in a notebook.
        settings: the other options of `brinell audit`; none stands for the default. `eps` is a number, a list of numbers or a
            text; `norm` also np.inf or 2; `device` also a torch.device.

    Returns:
        The figures: `result.robust(eps)`, `result.to_pandas()`, `result.plot()`, `result.x_adv()`; `result.payload()` is what
        `brinell audit --json` prints, and `result.run` the folder with records, inputs and report.html. Failed checks are
        warnings of Python, too (`BrinellWarning`).
    """
    given = data if y is None else (data, y)
    dataset = open_dataset(given)
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    named = {"data": spec_of(given, dataset)}
    models = models_of(model, dataset, named["data"], **said)
    request = checked(Request, settings | named | {"model": specs_of(model, models)})
    plan = plan_audit(request, dataset=dataset, models=models)
    folder = Path(out or default_out(request.data, request.norm))
    command = call_text("audit", model, given, said | settings)
    with telling(progress) as told:
        result = results.of(carry_out(plan, folder, told, command=command, resume=resume, shard=Shard.asked(shard, out)))
    for line in results.failures(result):
        warnings.warn(line, BrinellWarning, stacklevel=4)
    return result


def specs_of(model: Models, models: tuple[Model, ...]) -> tuple[str, ...]:
    """What a request says of models: their specs, or that they were given in memory and under which names."""
    if models:
        return tuple(f"{IN_MEMORY}:{one.name}" for one in models)
    return tuple(str(one) for one in model) if isinstance(model, list | tuple) else (str(model),)


def carry_out(
    plan: Plan, folder: Path, progress: Progress, *, command: str, resume: bool, shard: Shard | None = None
) -> AuditResult:
    """Run an audit that is planned, and write its report.

    Args:
        plan: what to do.
        folder: the run folder; with `shard` also the address of a store.
        progress: told what goes on.
        command: what the manifest says of how to repeat it.
        resume: whether to go on with a folder that exists.
        shard: where this process begins among those that work on the same run; none works alone.
    """
    for note in [note for source in plan.models for note in source.facts["notes"]]:
        progress.note(f"{note}")
    if (shard := chosen(folder, shard, resume=resume)) is not None:
        return shards.run(plan, folder, shard, progress, command=command, page=html.write, answer=_summary)
    run = local.run(plan, folder, progress, command=command, resume=resume)
    html.write(run.path)
    return _summary(run, str(run.path))


def _summary(run: Run, name: str) -> AuditResult:
    return summarise(run.manifest, run.records_in_place(), name)


def plan_audit(request: Request, *, dataset: Dataset | None = None, models: tuple[Model, ...] = ()) -> Plan:
    """The plan of an audit, budgets resolved that are named and not given as numbers; arguments as of `engine.plan.make_plan`."""
    dataset, recommended = resolve(request, dataset)
    return make_plan(request, dataset=dataset, models=models, recommended=recommended)


@takes(BenchmarkRequest)
def benchmark(
    model: Models,
    data: Data | Any,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> BenchmarkResult:
    """Make the adversarial benchmark set of a classifier, as `brinell benchmark` does; arguments as of `audit`.

    Returns:
        What `brinell benchmark --json` prints; `result.folder` holds the set.
    """
    dataset = open_dataset(data)
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    one = only(models_of(model, dataset, spec_of(data, dataset), **said))
    named = {"data": spec_of(data, dataset), "model": str(model) if one is None else f"{IN_MEMORY}:{one.name}"}
    plan = make_benchmark_plan(checked(BenchmarkRequest, settings | named), dataset=dataset, model=one)
    folder = Path(out or default_out(plan.request.data, "benchmark"))
    command = call_text("benchmark", model, data, said | settings)
    with telling(progress) as told:
        return make_benchmark(plan, folder, told, command=command, resume=resume, shard=Shard.asked(shard, out))


def make_benchmark(
    plan: BenchmarkPlan, folder: Path, progress: Progress, *, command: str, resume: bool, shard: Shard | None = None
) -> BenchmarkResult:
    """Make a benchmark set that is planned; arguments as of `carry_out`."""
    return benchmark_run.work_on(plan, folder, progress, command=command, resume=resume, shard=shard, answer=_figured)


def _figured(made: BenchmarkSet, name: str) -> BenchmarkResult:
    return BenchmarkResult(folder=name, **figures(made))


@takes(UnrestrictedRequest)
def unrestricted(
    *, out: Path | str | None = None, resume: bool = False, progress: Progress | None = None, **settings: Any
) -> UnrestrictedResult:
    """Search for examples made from scratch on which models err, as `brinell unrestricted` does; arguments as of `audit`.

    Returns:
        What `brinell unrestricted --json` prints.
    """
    plan = unrestricted_run.make_plan(checked(UnrestrictedRequest, settings))
    folder = Path(out or default_out(plan.request.data, "unrestricted"))
    command = f"brinell.unrestricted({', '.join(f'{key}={value!r}' for key, value in settings.items())}) in Python"
    with telling(progress) as told:
        return make_unrestricted(plan, folder, told, command=command, resume=resume)


def make_unrestricted(
    plan: unrestricted_run.UnrestrictedPlan, folder: Path, progress: Progress, *, command: str, resume: bool
) -> UnrestrictedResult:
    """Run an unrestricted attack that is planned, and write its report; arguments as of `carry_out`."""
    run = unrestricted_run.make(plan, folder, progress, command=command, resume=resume)
    unrestricted_page.write(run.path)
    return summarise_unrestricted(run.manifest, run.rows(), str(folder))


@takes(DetectRequest)
def detect(
    run: Path | str,
    train: str,
    *,
    out: Path | str | None = None,
    tell: Callable[[str], None] = lambda text: None,
    trust: Path | str | None = None,
    **settings: Any,
) -> DetectionResult:
    """Put detectors in front of the models of a run, and attack with knowledge of them, as `brinell detect` does.

    Args:
        run: a finished run folder.
        train: spec of clean data that the detectors are fitted to.
        out: the folder; none makes a fresh one under runs/.
        tell: told what goes on.
        trust: a folder from elsewhere whose models, data and attacks may be used as it names them.
        settings: the other options of `brinell detect`; none stands for the default.

    Returns:
        What `brinell detect --json` prints; `result.folder` holds a row per input and report.html.
    """
    request = checked(DetectRequest, settings | {"run": str(run), "train": train})
    folder = Path(out or default_out(train, "detect"))
    made = run_detection(request, folder, tell, trust=trust)
    detection_page.write(folder)
    return summarise_detection(made)


@takes(ReviewRequest)
def review(
    data: Data,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    reviewer: str = "",
    port: int = 0,
    tell: Callable[[str], None] = print,
    **settings: Any,
) -> ReviewResult:
    """Have a person judge pairs of clean and changed pictures in a browser on this machine, as `brinell epsilon --review` does.

    Returns when every pair is judged. Answers are on disk one by one; what was judged before an interruption is kept.

    Args:
        data: as for `audit`; pictures.
        out: the folder; none makes a fresh one under runs/.
        resume: go on with a folder that holds this review.
        reviewer: whose answers these are; each person has all pairs to judge.
        port: port on loopback; 0 takes a free one.
        tell: told where the page is.
        settings: the other options of the review; none stands for the default.

    Returns:
        What people noticed, per class; `result.folder` holds answers and report.html.
    """
    given = open_dataset(data)
    request = checked(ReviewRequest, settings | {"data": spec_of(data, given)})
    folder = Path(out or default_out(request.data, "review"))
    held = resume_review(request, folder) if resume else None
    held = held or make_review(request, given or open_data(request.data), folder)
    try:
        ReviewServer(held, review_page.trial_page(held), reviewer, port).serve(tell)
    finally:
        review_page.write(folder)
    return summarise_review(held)


@takes(EpsilonRequest)
def epsilon(
    data: Data | Any,
    *,
    train: Data | Any = None,
    model: Models = None,
    out: Path | str | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> EpsilonResult:
    """Recommend an eps for a data set, each class and each sample, as `brinell epsilon` does.

    Args:
        data: as for `audit`.
        train: training data in which neighbours are looked for, too.
        model: asked about the crafted counter-examples.
        out: the folder; none makes a fresh one under runs/.
        progress: told what goes on.
        settings: the other options of `brinell epsilon`; none stands for the default.

    Returns:
        What `brinell epsilon --json` prints; `result.folder` holds distances and report.html.
    """
    given, known = open_dataset(data), None if train is None else open_dataset(train)
    named = {name: str(one) if isinstance(one, str | Path) else None for name, one in (("train", train), ("model", model))}
    request = checked(EpsilonRequest, settings | named | {"data": spec_of(data, given)})
    folder = Path(out or default_out(request.data, "epsilon"))
    check_free(folder)
    one = None if model is None else only(models_of(model, given, request.data))
    reviews = [folder for folder in request.evidence if REVIEW.has(Path(folder))]
    people = [Threshold(folder=folder, **thresholds(Review.open(folder))._asdict()) for folder in reviews]
    with telling(progress) as told:
        facts, arrays = measure(request, told.note, dataset=given, train=known, model=one, people=people)
    save_folder(folder, facts, arrays)
    epsilon_page.write(folder)
    return summarise_epsilon(folder)


@takes(ExportRequest)
def export(run: Path | str, to: str, *, out: Path | str | None = None, **settings: Any) -> ExportAnswer:
    """Write a run for another tool, as `brinell export` does.

    Args:
        run: the run folder.
        to: csv, tensorboard, mlflow or robustbench.
        out: the folder; none makes a fresh one under runs/, and for mlflow goes by MLFLOW_TRACKING_URI.
        settings: the other options of `brinell export`; none stands for the default.

    Returns:
        What `brinell export --json` prints.
    """
    request = checked(ExportRequest, settings | {"run": str(run), "to": to})
    return run_export(request, None if out is None else Path(out), default_out(Path(run).name, request.to))


@worded
def verify(
    run: Path | str,
    model: Models = None,
    data: Data | Any = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    attack: str | Sequence[str] = (),
    rerun: int | None = None,
    trust: Path | str | None = None,
    signed_by: Path | str | None = None,
) -> VerifyResult:
    """Recompute what a run claims, as `brinell verify` does.

    Args:
        run: the run folder.
        model: the model of a run that was made from one in memory, or all of its models; or specs, in place of the run's own.
        data: its data, likewise.
        preprocessing: as it was given to `audit`.
        mean: likewise.
        std: likewise.
        answers: likewise.
        attack: attacks of a run from elsewhere that are files, named as the run names them: they are allowed to run.
        rerun: robust samples of each model that are attacked again; none for 8 or 2 %, whichever is more.
        trust: a folder from elsewhere whose models, data and attacks may be used; of others nothing is run or opened.
        signed_by: a file of allowed signers or public SSH keys; a run that none of them has signed is refused.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    folder, signed = Run.open(run), signers(run, signed_by)
    values, named = folder.manifest["request"], inputs.named_again(model, data)
    replaced = {key for key, one in (("model", model), ("data", data)) if one is not None}
    given = (attack,) if isinstance(attack, str) else attack
    found = untrusted(values, folder.path, folder.manifest.get(MARK), trust=trust, given=given, replaced=replaced)
    if found:
        return verify_unrun(folder, refusal(folder.path, found), signed)
    request = make_request({**values, **named})
    inputs.check_in_memory(run, request, model, data)
    dataset = None if data is None or "data" in named else open_dataset(data)
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    models = () if model is None else models_of(model, dataset, request.data, **said)
    inputs.check_models(run, models, [one["name"] for one in folder.manifest["models"]])
    return verify_run(folder, plan_audit(request, dataset=dataset, models=models), Silent(), count=rerun, signed=signed)


compare, gate, report = worded(runs.compare), worded(runs.gate), worded(runs.report)
