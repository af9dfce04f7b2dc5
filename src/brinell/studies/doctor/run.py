"""The fit of models and data, and the state of an installation, found without torch unless there is
a GPU to ask it about.
"""

import os
import platform
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from brinell.analysis.folder_result import Result
from brinell.analysis.statements import Statement, Subject, state
from brinell.core.errors import RequestError, option
from brinell.core.version import VERSION
from brinell.engine.request import IN_MEMORY
from brinell.reports.statements import sentence
from brinell.studies.doctor import DoctorRequest
from brinell.studies.kit import Call

if TYPE_CHECKING:
    import torch

    from brinell.core.data import Dataset
    from brinell.core.model import Model
    from brinell.engine.fit import Fit

PURPOSES = {
    "onnx": "networks in ONNX",
    "sklearn": "saved classifiers of scikit-learn",
    "vision": "networks of torchvision and timm",
    "hf": "classifiers of Hugging Face",
    "ecg": "heartbeats in WFDB records",
    "video": "videos in files",
    "http": "models behind a server",
    "pandas": "result.to_pandas()",
    "metric": "brinell train metric",
    "gym": "agents of other libraries",
    "ray": "workers on Ray, --on ray",
}
"""The purpose of each extra; an extra that is missing here is for developers, or a sum of
others."""
REQUIREMENT = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([0-9.]+))?[^;]*(?:;.*extra\s*==\s*['\"]([a-z]+)['\"])?"
)
"""A requirement of the package's metadata: name, oldest version, extra."""
MOST_FORMS = 8
"""Forms that are listed, the best first."""
LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that limit the threads of torch and NumPy."""
DRIVERS = (
    Path("/proc/driver/nvidia/version"),
    Path("/dev/nvidiactl"),
    Path("/dev/kfd"),
    Path("/dev/dxg"),
)
"""Files that exist where the kernel knows a GPU for torch: of NVIDIA, of AMD, of the Windows
host."""


class Package(Result):
    """A package that Brinell needs, or that an extra brings."""

    name: str
    """Its name on the package index."""
    needed: str
    """The oldest version that works; empty for any."""
    version: str | None
    """The installed version; null where there is none."""
    ready: bool
    """True if the installed version is new enough."""
    extra: str | None
    """The extra that brings it; null where Brinell needs it."""


class FormRow(Result):
    """A form of inputs and labels, and how often the model is right in it."""

    form: str
    """The form in words: as given, or what is changed."""
    right: int
    """Number of samples on which the model is right."""
    line: str
    """The line that gives the model this form; empty for the given one."""


class ModelFit(Result):
    """A model with the data in all forms."""

    model: str
    """Name of the model."""
    n: int
    """Number of samples; of pixels or objects in some pictures for data with masks or boxes."""
    passed: bool | None
    """False if another form is better, or the accuracy is not the one stated; null if the samples
    are too few to tell."""
    text: str
    """The answer in one line."""
    statement: Statement | None
    """How often the model is right in the best other form; null if none promises more."""
    as_good: list[str]
    """Forms in which the model is right as often as in the given one, up to 1 % of the samples."""
    forms_tried: int
    """Number of forms tried; most of them on a part of the samples."""
    forms: list[FormRow]
    """The forms that were tried on all samples, those that are right most often first."""


class DoctorResult(Result):
    """What `brinell doctor --json` prints."""

    brinell: str
    """The version of Brinell."""
    python: str
    """The version of Python."""
    platform: str
    """Operating system and processor."""
    packages: list[Package]
    """The packages that Brinell needs, and those of its extras."""
    purposes: dict[str, str]
    """The purpose of each extra."""
    devices: dict[str, str]
    """The devices by what to write after --device, the processor first: model, memory, and
    whether it has TF32."""
    auto: str
    """The device that --device auto takes."""
    processors: int
    """Processors that this process may use."""
    threads: dict[str, str]
    """Variables that limit threads, those that are set."""
    free_bytes: dict[str, int]
    """Free space in the folder of runs and in that of temporary files."""
    fits: list[ModelFit] = []
    """The models with the data; empty if none is named."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 1 if a package that Brinell needs is missing or too old, or
        if a model and the data do not fit.
        """
        is_ready = all(package.ready for package in self.packages if package.extra is None)
        return int(not is_ready or any(fit.passed is False for fit in self.fits))

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The result line by line: of models and data, or of the installation."""
        for fit in self.fits:
            yield from _lines_of(fit)
        if not self.fits:
            yield from self._installation()

    def _installation(self) -> Iterator[str]:
        yield f"Brinell {self.brinell}, Python {self.python}, {self.platform}"
        yield from self._needed_packages()
        for name, text in self.devices.items():
            yield f"device    {name}: {text}"
        yield f"device    --device auto takes {self.auto}"

        limits = ", ".join(f"{name}={value}" for name, value in self.threads.items())
        yield f"threads   {self.processors} processors; {limits or 'no limit is set'}"
        for folder, free in self.free_bytes.items():
            yield f"disk      {folder}: {free / 2**30:.1f} GiB free"
        for extra, purpose in self.purposes.items():
            yield self._extra(extra, purpose)

    def _needed_packages(self) -> Iterator[str]:
        """The packages without which nothing works, and those of them that are missing
        or too old.
        """
        needed = [package for package in self.packages if package.extra is None]
        present = [f"{package.name} {package.version}" for package in needed if package.version]
        yield f"packages  {', '.join(present)}"
        for package in needed:
            if not package.ready:
                yield (
                    f"MISSING   {package.name}>={package.needed}: pip install "
                    f"'{package.name}>={package.needed}'"
                )

    def _extra(self, extra: str, purpose: str) -> str:
        """The state of an extra: its packages, or the line to type."""
        brought = [package for package in self.packages if package.extra == extra]
        ready = bool(brought) and all(package.ready for package in brought)
        versions = ", ".join(f"{package.name} {package.version}" for package in brought)
        advice = versions if ready else f"pip install 'brinell[{extra}]'"
        return f"{'extra' if ready else 'missing':<9} {extra:<7} {purpose} ({advice})"


def _lines_of(fit: ModelFit) -> Iterator[str]:
    """The fit of a model: the answer, then the forms."""
    yield from _wrapped(f"{fit.model}: {fit.text}")
    if fit.statement is not None:
        yield from _wrapped(sentence(fit.statement))
    if fit.as_good:
        forms = " or ".join(fit.as_good)
        yield from _wrapped(f"Right as often, within 1 % of these samples: {forms}.")

    yield ""
    head = f"right of {fit.n}"
    yield f"{head}  form ({fit.forms_tried} tried)"
    for row in fit.forms:
        yield f"{row.right:>{len(head)}}  {row.form}"
    # The form of the first row may not be one that the answer names.
    first = fit.forms[0]
    if first.line and first.line not in fit.text:
        yield from _wrapped(f"{first.form}: {first.line}")
    yield ""


def _wrapped(text: str) -> list[str]:
    """The lines of a text at the width of the terminal, 80 where the output is piped."""
    width = shutil.get_terminal_size((80, 24)).columns
    return textwrap.wrap(text, max(width, 40), break_long_words=False, break_on_hyphens=False)


def carry_out(call: Call) -> DoctorResult:
    """Find out the state of the installation, and how models and data fit."""
    devices = find_devices()
    folders = {
        "runs": Path("runs") if Path("runs").is_dir() else Path(),
        "temporary files": Path(tempfile.gettempdir()),
    }

    return DoctorResult(
        brinell=VERSION,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=find_packages(),
        purposes=PURPOSES,
        devices=devices,
        auto="cuda:0" if "cuda:0" in devices else "cpu",
        processors=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        threads={name: os.environ[name] for name in LIMITS if os.environ.get(name)},
        free_bytes={
            f"{purpose} in {folder.absolute()}": shutil.disk_usage(folder).free
            for purpose, folder in folders.items()
        },
        fits=find_fits(call),
    )


def find_fits(call: Call) -> list[ModelFit]:
    """Try each model of a call with the data in all forms; none without a model."""
    request: DoctorRequest = call.request
    if not request.model and request.data is None:
        return []
    # The state of an installation is found without torch.
    from brinell.engine import fit
    from brinell.engine.plan import choose_device
    from brinell.studies.work import open_plan

    if not request.model:
        raise RequestError(f"no model is named: add {option('model', 'model.py:FACTORY')}")
    plan = open_plan(call, truth=True)
    device = choose_device(request.device)
    if plan.dataset.info.truth is not None:
        return [_fit_of_pictures(plan.dataset, model, device) for model in plan.models.values()]
    fits: list[ModelFit] = []
    for text, model in zip(request.model, plan.models.values(), strict=True):
        spec = "" if text.startswith(f"{IN_MEMORY}:") else text
        shown, finding = fit.fit_data(
            model,
            plan.dataset,
            device,
            spec=spec,
            batch_size=request.batch_size,
            expect=request.expect,
        )
        # Forms that are right on less than half as many as the best say nothing.
        least = max(trial.right for trial in shown.trials) / 2
        # Forms by how often they are right, of equal ones the best first. The form as
        # given is listed however bad it is.
        trials = [*shown.best, *(trial for trial in shown.trials if trial not in shown.best)]
        trials = sorted(trials, key=lambda trial: -trial.right)
        trials = [trial for trial in trials if trial is shown.base or trial.right >= least]
        rows = [
            FormRow(form=trial.title, right=trial.right, line=fit.line_of(trial, model, spec))
            for trial in trials[:MOST_FORMS]
        ]
        fits.append(
            ModelFit(
                model=model.name,
                n=shown.n,
                passed=finding.passed,
                text=finding.text,
                statement=compare_forms(shown),
                as_good=[trial.title for trial in shown.as_good()],
                forms_tried=shown.forms,
                forms=rows,
            )
        )
    return fits


def _fit_of_pictures(dataset: "Dataset", model: "Model", device: "torch.device") -> ModelFit:
    """The fit of a model of masks or boxes, by what it shows on pictures spread over the data.

    Raises:
        RequestError: its answers are none of such data, or corners in another form.
    """
    from brinell.engine.tasks import LOOKED_AT
    from brinell.studies.tasks import open_task

    # Evenly from the first picture to the last; small data have fewer of them.
    last = len(dataset) - 1
    ids = sorted({round(last * place / (LOOKED_AT - 1)) for place in range(LOOKED_AT)})
    task = open_task(dataset, model, criterion=None, first=ids, device=device, use="audit")
    with task.model.info.session(device):
        answers = task.ask(dataset.load(ids).to(device), batch_size=1)
    columns, mistakes = task.columns(answers, ids), task.mistakes(answers, ids)
    n = int(columns["valid"].sum())
    right = n - int(columns["wrong"].sum())
    text = f"right on {right} of {n} {task.unit}s of {len(ids)} pictures"
    return ModelFit(
        model=model.name,
        n=n,
        passed=not mistakes,
        text="; ".join([text, *mistakes]),
        statement=None,
        as_good=[],
        forms_tried=1,
        forms=[FormRow(form="as given", right=right, line="")],
    )


def compare_forms(fit: "Fit") -> Statement | None:
    """The statement on the best other form; None if none promises more right answers."""
    if not fit.best:
        return None
    best, base = [
        Subject(name=trial.title, value=trial.right / fit.n, k=trial.right, n=fit.n)
        for trial in (fit.best[0], fit.base)
    ]
    return state(
        "fits",
        subjects=[best],
        against=[base],
        quantity="clean accuracy",
        eps_text="",
        n=fit.n,
        compared=1,
        difference=best.value - base.value,
        p=fit.p,
        supported=fit.is_better,
        family=fit.forms,
    )


def find_packages() -> list[Package]:
    """The packages in the metadata of Brinell, each with the extra that brings it."""
    texts: list[str] = []
    packages = []
    with suppress(metadata.PackageNotFoundError):  # run from its sources
        texts = metadata.requires("brinell") or []

    for match in filter(None, map(REQUIREMENT.match, texts)):
        name, needed, extra = match.groups()
        if name != "brinell" and (extra is None or extra in PURPOSES):
            version = None
            with suppress(metadata.PackageNotFoundError):
                version = metadata.version(name)
            ready = version is not None and _numbers(version) >= _numbers(needed or "")
            packages.append(
                Package(name=name, needed=needed or "", version=version, ready=ready, extra=extra)
            )
    return packages


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers with which a version begins, for comparison: of 2.1.0rc1 these are 2, 1 and 0."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def find_devices() -> dict[str, str]:
    """The devices of torch, which is imported only where the system knows a GPU."""
    devices = {"cpu": platform.processor() or platform.machine()}
    is_mac = (sys.platform, platform.machine()) == ("darwin", "arm64")
    if not is_mac and sys.platform != "win32" and not any(path.exists() for path in DRIVERS):
        return devices
    import torch

    if torch.backends.mps.is_available():
        return devices | {"mps": "the GPU of this machine, without float64"}
    if not torch.cuda.is_available():
        return {
            "cpu": f"{devices['cpu']}; torch {torch.__version__} cannot use the GPU of this machine"
        }
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        free = ""
        # Another process may hold the GPU, or all of its memory.
        with suppress(RuntimeError):
            free = f", {torch.cuda.mem_get_info(number)[0] / 2**30:.0f} GiB free"
        # TF32 begins at compute capability 8 of NVIDIA; the numbers of AMD mean something else.
        has_tf32 = torch.version.hip is None and gpu.major >= 8
        note = (
            "TF32 is off in runs, --precision tf32 switches it on" if has_tf32 else "it has no TF32"
        )
        devices[f"cuda:{number}"] = f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB{free}; {note}"
    return devices
