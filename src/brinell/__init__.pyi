"""What `brinell` offers, with the type of every keyword. Written by `make docs`."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack

from brinell import plugins as plugins
from brinell import testing as testing
from brinell.batch_attack import attack as attack
from brinell.core.errors import BrinellError as BrinellError
from brinell.core.errors import BrinellWarning as BrinellWarning
from brinell.inputs import data as data
from brinell.parameters import AnyModel, Data, Device, Eps, File, Folder, Labels, Models, Norm, ProgressOption
from brinell.analysis.gate import GateResult
from brinell.studies.agent.result import AgentResult
from brinell.studies.audit.result import Audit
from brinell.studies.benchmark.result import BenchmarkResult
from brinell.studies.board.result import BoardResult
from brinell.studies.certify.result import CertifyResult
from brinell.studies.claim.result import ClaimResult
from brinell.studies.compare.result import Comparison
from brinell.studies.corruption.result import CorruptResult
from brinell.studies.doctor.run import DoctorResult
from brinell.studies.epsilon.result import EpsilonResult
from brinell.studies.explain.result import ExplainResult
from brinell.studies.export.run import ExportAnswer
from brinell.studies.generator.result import GeneratorResult
from brinell.studies.harden.result import HardenResult
from brinell.studies.metric.result import MetricResult
from brinell.studies.report.run import ReportResult
from brinell.studies.review.result import ReviewResult
from brinell.studies.transfer.result import TransferResult
from brinell.studies.unrestricted.result import UnrestrictedResult
from brinell.studies.verification.result import VerifyResult

__version__: str

def open(folder: Folder) -> Any:
    """The result that a folder holds, from its records alone: what the call that made it returned."""

class _AuditSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None
    trust: File | None
    criterion: str | None
    expect: float | None
    until: str | None
    reject_class: str | None
    batch_size: int
    precision: Literal['float32', 'tf32']
    minutes: float | None
    dry_run: bool
    certify: bool
    detector: str | Sequence[str]
    detector_data: Data | None
    fpr: float
    epsilon: Folder | None

def audit(
    model: Models, data: Data, y: Labels | None = None, *, norm: Norm = 'linf', eps: Eps | None = None,
    attack: str | Sequence[str] = ('fast',), samples: int | str | None = None, targeted: str | None = None,
    queries: int | None = None, seed: int = 0, device: Device = 'auto', surrogate: str | Sequence[str] = (),
    out: File | None = None, progress: ProgressOption | None = None, **settings: Unpack[_AuditSettings],
) -> Audit:
    """Attack the model and write records, tables and a report."""

class _BenchmarkSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None
    seed: int
    batch_size: int
    device: Device
    expect: float | None

def benchmark(
    model: AnyModel, data: Data, y: Labels | None = None, *, distortions: str = 'default', policy: File = 'default',
    patch: int | str = 0, eps: Eps | None = None, steps: int = 1000, refine: int = 200, levels: str = '1,2,4,6,8,10',
    criterion: str | None = None, samples: int | str | None = None, out: File | None = None,
    progress: ProgressOption | None = None, **settings: Unpack[_BenchmarkSettings],
) -> BenchmarkResult:
    """Distort correctly classified inputs until the model misclassifies them, and store them at graded severities as a data set."""

def board(
    folder: Folder | Sequence[Folder], *, out: File | None = None, trust: File | None = None,
    progress: ProgressOption | None = None, level: Literal['replay', 'rows'] = 'replay',
    title: str = 'Robustness board',
) -> BoardResult:
    """Make a static site of any number of runs: a table for each task, and a page for each model."""

class _CertifySettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None
    seed: int
    batch_size: int
    device: Device
    expect: float | None

def certify(
    model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, query: File | None = None, *,
    norm: Literal['linf', 'l2'] = 'linf', eps: Eps | None = None,
    method: str | Sequence[str] = ('crown', 'alpha-crown'), attack: str | Sequence[str] = ('fast',),
    solver: File | Sequence[File] = (), timeout: float = 60.0, network: File | None = None,
    samples: int | str | None = None, out: File | None = None, progress: ProgressOption | None = None,
    **settings: Unpack[_CertifySettings],
) -> CertifyResult:
    """Bound robust accuracy from both sides: proofs from below, attacks from above, class by class over a range of budgets."""

def claim(
    run: Folder, *, out: File | None = None, trust: File | None = None, progress: ProgressOption | None = None,
    eps: Eps | None = None, model: str | None = None, against: Literal['robustbench'] | None = None,
) -> ClaimResult:
    """State what a run shows and what it does not, for a model card, a paper or a technical file."""

class _CompareSettings(TypedDict, total=False):
    resume: bool
    on: str | None
    trust: File | None

def compare(
    run: Folder | Sequence[Folder], data: Data | None = None, y: Labels | None = None, *, at: Eps | None = None,
    norm: Norm = 'linf', eps: Eps | None = None, attack: str | Sequence[str] = ('fast',),
    samples: int | str | None = None, seed: int = 0, device: Device = 'auto', out: File | None = None,
    progress: ProgressOption | None = None, **settings: Unpack[_CompareSettings],
) -> Comparison:
    """Compare models on the same samples: ranks with intervals, paired differences, and robustness class by class."""

class _CorruptSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None

def corrupt(
    model: Models | None = None, data: Data | None = None, y: Labels | None = None, *, kind: str | Sequence[str] = (),
    severity: int | Sequence[int] = (1, 2, 3, 4, 5), reference: str | None = None, samples: int | str | None = None,
    seed: int = 0, batch_size: int = 128, device: Device = 'auto', expect: float | None = None, out: File | None = None,
    progress: ProgressOption | None = None, **settings: Unpack[_CorruptSettings],
) -> CorruptResult:
    """Corrupt inputs with the published corruptions or others at five severities, and count the errors of models."""

def doctor(
    model: Models | None = None, data: Data | None = None, y: Labels | None = None, *, preprocessing: Any = None,
    mean: Any = None, std: Any = None, answers: str | None = None, output: str | int | None = None,
    expect: float | None = None, device: Device = 'auto', batch_size: int = 128,
) -> DoctorResult:
    """Show whether model and data fit together, or versions, devices, threads, disk and extras."""

class _EpsilonSettings(TypedDict, total=False):
    resume: bool
    on: str | None
    trust: File | None

def epsilon(
    data: Data, y: Labels | None = None, *, train: Data | None = None,
    norm: Literal['linf', 'l2', 'l1', 'l0'] | Sequence[Literal['linf', 'l2', 'l1', 'l0']] = ('linf', 'l2'),
    samples: int | str | None = None, eps: Eps | None = None, pairs: int = 100, allow: float = 0.01, ssim: float = 0.9,
    psnr: float = 30.0, evidence: Folder | Sequence[Folder] = (), seed: int = 0, out: File | None = None,
    progress: ProgressOption | None = None, **settings: Unpack[_EpsilonSettings],
) -> EpsilonResult:
    """Measure distances between the samples of each class, and recommend an eps for the data, each class and each sample."""

class _ExplainSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None
    trust: File | None
    expect: float | None

def explain(
    model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, *, run: Folder | None = None,
    method: str | Sequence[str] = (), truth: File | None = None, explain: Literal['prediction', 'label'] = 'prediction',
    samples: int | str | None = None, steps: int = 16, seed: int = 0, batch_size: int = 128, device: Device = 'auto',
    out: File | None = None, progress: ProgressOption | None = None, **settings: Unpack[_ExplainSettings],
) -> ExplainResult:
    """Compute saliency maps of inputs by several methods, and measure how good each method's maps are."""

def export(
    run: Folder, to: Literal['csv', 'robustbench', 'hub'], *, out: File | None = None, trust: File | None = None,
    progress: ProgressOption | None = None, push: str | None = None,
) -> ExportAnswer:
    """Write the figures, rows and tables of a run as CSV files, or what RobustBench and the Hugging Face hub take of it."""

class _GateSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    trust: File | None
    minutes: float | None
    attack: str | Sequence[str]
    baseline: Folder | None
    max_drop: float | None
    allow: str | Sequence[str]
    without_checks: bool
    norm: Norm
    seed: int
    device: Device

def gate(
    run: Folder | None = None, model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, *,
    robust: float | None = None, worst_class: float | None = None, clean: float | None = None,
    certified: float | None = None, unmet: float | None = None, eps: Eps | None = None, until_decided: bool = False,
    samples: int | str | None = None, out: File | None = None, progress: ProgressOption | None = None,
    **settings: Unpack[_GateSettings],
) -> GateResult:
    """Test the lower end of each interval against thresholds, or a run against a baseline."""

class _HardenSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None
    batch_size: int
    augment: Literal['none', 'shift', 'shift-flip']
    average: float
    precision: Literal['float32', 'tf32', 'bf16']
    attack: str | Sequence[str]
    budgets: Eps | None
    samples: int | Literal['all']
    seed: int
    device: Device

def harden(
    model: AnyModel, data: Data, y: Labels | None = None, *, train: Data | None = None, recipe: str = 'pgd',
    norm: Norm = 'linf', eps: Eps | None = None, epochs: float = 30.0, minutes: float | None = None, ramp: float = 0.3,
    optimizer: Literal['adamw', 'sgd'] = 'adamw', rate: float | None = None, out: File | None = None,
    progress: ProgressOption | None = None, **settings: Unpack[_HardenSettings],
) -> HardenResult:
    """Train a model adversarially, and audit it before and after on data that the training never uses."""

def report(
    run: Folder | Sequence[Folder], *, trust: File | None = None,
) -> ReportResult:
    """Write the page and the tables of a run, or of what another command made, again, from the records alone; of several folders of one model, one page of the model."""

def review(
    data: Data, y: Labels | None = None, *, out: File | None = None, resume: bool = False, on: str | None = None,
    trust: File | None = None, progress: ProgressOption | None = None, norm: Literal['linf', 'l2'] = 'linf',
    eps: Eps = '0.01,0.02,0.04,0.08,0.16,0.32', run: Folder | None = None, maps: Folder | None = None,
    trials: int = 120, seed: int = 0, answers: File | Sequence[File] = (),
) -> ReviewResult:
    """Write a page of pairs of clean and changed pictures, and measure from people's answers which changes are noticed; or of pairs of maps, and measure which method's maps people choose."""

class _TrainAgentSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    batch_size: int
    device: Device

def train_agent(
    model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, *, attack: str = 'rlab',
    norm: Norm = 'l2', eps: Eps = '1', criterion: str | None = None, samples: int | str | None = None,
    minutes: float = 3.0, steps: int | None = None, surrogates: int = 3, seed: int = 0, out: File,
    progress: ProgressOption | None = None, **settings: Unpack[_TrainAgentSettings],
) -> AgentResult:
    """Train an agent for the attack rlab and write it as one file."""

def train_generator(
    data: Data | None = None, y: Labels | None = None, *, out: File, progress: ProgressOption | None = None,
    samples: int | str | None = None, minutes: float = 10.0, steps: int | None = None, seed: int = 0,
    device: Device = 'auto',
) -> GeneratorResult:
    """Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its auxiliary classifier."""

def train_metric(
    data: Data | None = None, y: Labels | None = None, *, out: File, progress: ProgressOption | None = None,
    test: Data | None = None, samples: int | Literal['all'] = 20000, steps: int = 1500, seed: int = 0,
) -> MetricResult:
    """Train a triplet network on the data, and measure how well its distances separate classes beside those between pixels."""

class _TransferSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None
    trust: File | None
    expect: float | None

def transfer(
    source: Folder | Sequence[Folder] | None = None, model: Models | None = None, data: Data | None = None,
    y: Labels | None = None, *, norm: Norm = 'linf', eps: Eps | None = None, attack: str | None = None,
    criterion: str | None = None, samples: int | str | None = None, seed: int = 0, batch_size: int = 128,
    device: Device = 'auto', out: File | None = None, progress: ProgressOption | None = None,
    **settings: Unpack[_TransferSettings],
) -> TransferResult:
    """Measure how adversarial examples transfer between models: examples made now, or read from benchmark sets."""

class _UnrestrictedSettings(TypedDict, total=False):
    preprocessing: Any
    mean: Any
    std: Any
    answers: str | None
    output: str | int | None
    resume: bool
    on: str | None
    expect: float | None

def unrestricted(
    model: Models | None = None, data: Data | None = None, y: Labels | None = None, *, judge: Models | None = None,
    generator: File = '', per_class: int = 20, noise: float = 0.1, steps: int = 200, class_probability: float = 0.9,
    seed: int = 0, batch_size: int = 128, device: Device = 'auto', out: File | None = None,
    progress: ProgressOption | None = None, **settings: Unpack[_UnrestrictedSettings],
) -> UnrestrictedResult:
    """Search a generator's latent space for inputs of an intended class that the model misclassifies, without a norm ball."""

def verify(
    run: Folder, model: Models | None = None, data: Data | None = None, y: Labels | None = None, *,
    preprocessing: Any = None, mean: Any = None, std: Any = None, answers: str | None = None,
    output: str | int | None = None, trust: File | None = None, digest: str | Sequence[str] = (),
    replay: int | None = None, signed_by: File | None = None, field: File | None = None,
) -> VerifyResult:
    """Recompute the claims of a run: rows, classes, adversarial inputs, costs, checks, tables, and some of its robust samples."""
