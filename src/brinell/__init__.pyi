"""What `brinell` offers, with the type of every keyword. Written by `make docs`; do not edit by hand."""

# ruff: noqa: D, E501
from collections.abc import Sequence
from typing import Any, Literal

from brinell.batch_attack import attack as attack
from brinell.core.errors import BrinellError as BrinellError
from brinell.core.errors import BrinellWarning as BrinellWarning
from brinell.inputs import data as data
from brinell.types import AnyModel, Data, Device, Eps, File, Folder, Labels, Models, Norm, ProgressOption
from brinell.analysis.gate import GateResult
from brinell.analysis.results import CompareResult
from brinell.studies.agent.run import AgentResult
from brinell.studies.audit.result import Audit
from brinell.studies.benchmark.cards import BenchmarkResult
from brinell.studies.board.analysis import BoardResult
from brinell.studies.certify.analysis import CertifyResult
from brinell.studies.claim.analysis import ClaimResult
from brinell.studies.corruption.result import CorruptResult
from brinell.studies.dense.results import DenseResult
from brinell.studies.dense_transfer.results import DenseTransferResult
from brinell.studies.detection.analysis import DetectionResult
from brinell.studies.doctor.result import DoctorResult
from brinell.studies.epsilon.analysis import EpsilonResult
from brinell.studies.explain.result import ExplainResult
from brinell.studies.export.run import ExportAnswer
from brinell.studies.falsify.result import FalsifyResult
from brinell.studies.generator.result import GeneratorResult
from brinell.studies.harden.analysis import HardenResult
from brinell.studies.metric.run import MetricResult
from brinell.studies.per_class.results import StudyResult
from brinell.studies.report.run import ReportResult
from brinell.studies.review.result import ReviewResult
from brinell.studies.smooth.result import SmoothResult
from brinell.studies.transfer.result import TransferResult
from brinell.studies.unrestricted.result import UnrestrictedResult
from brinell.studies.verification.result import VerifyResult

__version__: str

def open(folder: Folder) -> Any:
    """The result that a folder holds, from its records alone: what the call that made it returned."""

def audit(
    model: Models, data: Data, y: Labels | None = None, *, preprocessing: Any = None, mean: Any = None, std: Any = None,
    answers: str | None = None, output: str | int | None = None, out: File | None = None, resume: bool = False,
    on: str | None = None, progress: ProgressOption | None = None, surrogate: str | Sequence[str] = (),
    norm: Norm = 'linf', eps: Eps | None = None, attack: str | Sequence[str] = ('fast',), targeted: str | None = None,
    reject_class: str | None = None, criterion: str | None = None, samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None, seed: int = 0, batch_size: int = 128,
    queries: int | None = None, precision: Literal['float32', 'tf32'] = 'float32', device: Device = 'auto',
    dry_run: bool = False, calibrate: float | None = None, certify: bool = False, gate: str | Sequence[str] = (),
) -> Audit:
    """Attack the model and write records, tables and a report."""

def benchmark(
    model: AnyModel, data: Data, y: Labels | None = None, *, preprocessing: Any = None, mean: Any = None,
    std: Any = None, answers: str | None = None, output: str | int | None = None, out: File | None = None,
    resume: bool = False, progress: ProgressOption | None = None, distortions: str = 'gaussian-noise',
    policy: File = 'default', patch: int | str = 0, stride: int | str = 0, eps: Eps | None = None, steps: int = 1000,
    refine: int = 200, levels: str = '1,2,4,6,8,10', criterion: str | None = None,
    samples: int | Literal['all'] | None = None, select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0, batch_size: int = 128, device: Device = 'auto', licence: str = 'unknown',
) -> BenchmarkResult:
    """Distort correctly classified inputs until the model misclassifies them, and store them at graded severities as a data set."""

def board(
    folder: Folder | Sequence[Folder], *, out: File | None = None, trust: File | None = None,
    progress: ProgressOption | None = None, level: Literal['rows', 'replay'] = 'rows', title: str | None = None,
    workers: int | None = None,
) -> BoardResult:
    """Make a static site of any number of runs: a table for each task, and a page for each model and each pair of models."""

def certify(
    model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, *, preprocessing: Any = None,
    mean: Any = None, std: Any = None, answers: str | None = None, output: str | int | None = None,
    out: File | None = None, resume: bool = False, on: str | None = None, progress: ProgressOption | None = None,
    norm: Literal['linf', 'l2'] = 'linf', eps: Eps | None = None,
    method: str | Sequence[str] = ('crown', 'alpha-crown'), attack: str | Sequence[str] = ('fast',),
    solver: File | Sequence[File] = (), solver_timeout: float = 60.0, samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None, seed: int = 0, batch_size: int = 128,
    device: Device = 'auto', export: Folder | None = None,
) -> CertifyResult:
    """Bound robust accuracy from both sides: proofs from below, attacks from above, class by class over a range of budgets."""

def claim(
    run: Folder, model: str | None = None, *, preprocessing: Any = None, mean: Any = None, std: Any = None,
    answers: str | None = None, output: str | int | None = None, out: File | None = None, trust: File | None = None,
    progress: ProgressOption | None = None, eps: Eps | None = None, proofs: Folder | None = None,
    against: Literal['robustbench'] | None = None, level: Literal['rows', 'replay'] = 'replay',
) -> ClaimResult:
    """State what a run shows and what it does not, for a model card, a paper or a technical file, and where its figure stands."""

def compare(
    a: Folder, b: Folder | None = None, *, model_a: str | None = None, model_b: str | None = None,
) -> CompareResult:
    """Compare two models sample by sample: differences with intervals, and McNemar's exact test."""

def corrupt(
    model: Models | None = None, data: Data | None = None, y: Labels | None = None, *, preprocessing: Any = None,
    mean: Any = None, std: Any = None, answers: str | None = None, output: str | int | None = None,
    out: File | None = None, resume: bool = False, on: str | None = None, progress: ProgressOption | None = None,
    kind: str | Sequence[str] = (),
    suite: Literal['calibrated', 'published', 'synthetic'] | Sequence[Literal['calibrated', 'published', 'synthetic']] = (),
    severity: int | Sequence[int] = (1, 2, 3, 4, 5), reference: str | None = None, keep: bool = False,
    samples: int | Literal['all'] | None = None, select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0, batch_size: int = 128, device: Device = 'auto',
) -> CorruptResult:
    """Corrupt inputs with the published corruptions or others at five severities, and count the errors of models."""

def dense(
    model: AnyModel, data: Data, y: Labels | None = None, *, preprocessing: Any = None, mean: Any = None,
    std: Any = None, answers: str | None = None, output: str | int | None = None, out: File | None = None,
    resume: bool = False, on: str | None = None, progress: ProgressOption | None = None,
    norm: Literal['linf', 'l2'] = 'linf', eps: Eps | None = None, attack: str | Sequence[str] = (),
    criterion: str | None = None, least_score: float = 0.4, lipschitz: float | None = None,
    enlarge: Literal['bilinear', 'bilinear-aligned', 'nearest'] = 'bilinear', queries: int | None = None,
    samples: int | Literal['all'] | None = None, select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0, batch_size: int = 4, device: Device = 'auto', dry_run: bool = False, calibrate: float | None = None,
) -> DenseResult:
    """Attack a model that answers more than a class: the class of each pixel, by masks, or the boxes of objects."""

def dense_transfer(
    model: Models, data: Data, y: Labels | None = None, *, preprocessing: Any = None, mean: Any = None, std: Any = None,
    answers: str | None = None, output: str | int | None = None, out: File | None = None, resume: bool = False,
    on: str | None = None, progress: ProgressOption | None = None, source: str | Sequence[str] = (),
    norm: Literal['linf', 'l2'] = 'linf', eps: Eps | None = None, attack: str | Sequence[str] = (),
    criterion: str | None = None, least_score: float = 0.4,
    enlarge: Literal['bilinear', 'bilinear-aligned', 'nearest'] = 'bilinear', queries: int | None = None,
    samples: int | Literal['all'] | None = None, select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0, batch_size: int = 4, device: Device = 'auto',
) -> DenseTransferResult:
    """Show the strongest inputs of one segmentation network or detector to others, and compare with an attack on each."""

def detect(
    run: Folder, train: Data, *, out: File | None = None, trust: File | None = None,
    progress: ProgressOption | None = None,
    detector: str | Sequence[str] = ('background', 'feature-squeezing', 'mahalanobis'), fpr: float = 0.05,
    fit: int = 2000, samples: int | Literal['all'] = 200, eps: Eps | None = None, steps: int = 100, seed: int = 0,
) -> DetectionResult:
    """Measure how much of a robust accuracy comes from changes that a detector sees, and how much adaptive attacks leave of it."""

def doctor(

) -> DoctorResult:
    """Show versions, devices, threads and disk, and which extra is missing for which kind of model and data."""

def epsilon(
    data: Data, y: Labels | None = None, *, model: AnyModel | None = None, preprocessing: Any = None, mean: Any = None,
    std: Any = None, answers: str | None = None, output: str | int | None = None, out: File | None = None,
    progress: ProgressOption | None = None, train: Data | None = None,
    norm: Literal['linf', 'l2', 'l1', 'l0'] | Sequence[Literal['linf', 'l2', 'l1', 'l0']] = (),
    samples: int | Literal['all'] | None = None, pairs: int = 100, fraction: float = 0.5, allow: float = 0.01,
    conditions: Literal['label', 'interpolation', 'perception'] | Sequence[Literal['label', 'interpolation', 'perception']] = ('label', 'interpolation', 'perception'),
    ssim: float = 0.9, psnr: float = 30.0, evidence: Folder | Sequence[Folder] = (), seed: int = 0,
) -> EpsilonResult:
    """Measure distances between the samples of each class, and recommend an eps for the data, each class and each sample."""

def explain(
    model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, *, preprocessing: Any = None,
    mean: Any = None, std: Any = None, answers: str | None = None, output: str | int | None = None,
    out: File | None = None, resume: bool = False, on: str | None = None, trust: File | None = None,
    progress: ProgressOption | None = None, run: Folder | None = None, method: str | Sequence[str] = (),
    truth: File | None = None, region: str | None = None, explain: Literal['prediction', 'label'] = 'prediction',
    only: Literal['all', 'right', 'wrong'] = 'all', samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None, steps: int = 16, copies: int = 1,
    randomise: bool = False, cascade: int = 0, noise: float = 0.02, seed: int = 0, batch_size: int = 128,
    device: Device = 'auto',
) -> ExplainResult:
    """Compute saliency maps of inputs by several methods, and measure how good each method's maps are."""

def export(
    run: Folder, to: Literal['csv', 'robustbench', 'huggingface'], *, out: File | None = None,
    progress: ProgressOption | None = None, eps: Eps | None = None, about: str | Sequence[str] = (),
) -> ExportAnswer:
    """Write the figures, rows and tables of a run as CSV files, or as entries of RobustBench and the Hugging Face hub."""

def falsify(
    query: File, network: File, *, timeout: float = 60.0,
    attack: str | Sequence[str] = ('apgd?loss=margin&steps=30', 'apgd?loss=margin&steps=100', 'square?steps=300&loss=margin'),
    starts: int = 16, bound: str = 'crown', answer: File = '', seed: int = 0,
) -> FalsifyResult:
    """Look for an input that satisfies a query in VNN-LIB on a network in ONNX, by attacks; or prove that there is none."""

def gate(
    run: Folder, model: str | None = None, *, preprocessing: Any = None, mean: Any = None, std: Any = None,
    answers: str | None = None, output: str | int | None = None, robust: float | None = None,
    worst_class: float | None = None, clean: float | None = None, certified: float | None = None,
    unmet: float | None = None, eps: Eps | None = None, baseline: Folder | None = None, max_drop: float | None = None,
    allow: str | Sequence[str] = (), without_checks: bool = False, junit: File | None = None, sarif: File | None = None,
) -> GateResult:
    """Test the lower end of each interval against thresholds, or a run against a baseline."""

def harden(
    model: AnyModel, data: Data, y: Labels | None = None, *, preprocessing: Any = None, mean: Any = None,
    std: Any = None, answers: str | None = None, output: str | int | None = None, out: File | None = None,
    resume: bool = False, progress: ProgressOption | None = None, train: Data | None = None, recipe: str = 'pgd',
    norm: Norm = 'linf', eps: Eps | None = None, epochs: float = 30.0, minutes: float | None = None, ramp: float = 0.3,
    optimizer: Literal['adamw', 'sgd'] = 'adamw', rate: float | None = None, weight_decay: float = 0.0005,
    batch_size: int = 64, augment: Literal['none', 'shift', 'shift-flip'] = 'none', clip: float = 1.0,
    average: float = 0.999, validation: int = 500, patience: int | None = None,
    precision: Literal['float32', 'tf32', 'bf16'] = 'float32', attack: str | Sequence[str] = ('fast',),
    budgets: Eps | None = None, samples: int | Literal['all'] = 200, seed: int = 0, device: Device = 'auto',
) -> HardenResult:
    """Train a model adversarially, and audit it before and after on data that the training never uses."""

def report(
    run: Folder,
) -> ReportResult:
    """Write the page and the tables of a run, or of what another command made, again, from the records alone."""

def review(
    data: Data, y: Labels | None = None, *, out: File | None = None, resume: bool = False,
    progress: ProgressOption | None = None, norm: Literal['linf', 'l2'] = 'linf',
    eps: Eps = '0.01,0.02,0.04,0.08,0.16,0.32', change: Folder = 'crafted', trials: int = 120, catch: float = 0.2,
    seed: int = 0, answers: File | Sequence[File] = (),
) -> ReviewResult:
    """Write a page of pairs of clean and changed pictures, and measure from people's answers which changes are noticed."""

def smooth(
    model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, *, preprocessing: Any = None,
    mean: Any = None, std: Any = None, answers: str | None = None, output: str | int | None = None,
    out: File | None = None, resume: bool = False, on: str | None = None, progress: ProgressOption | None = None,
    sigma: float = 0.25, draws: int = 10000, first: int = 100, alpha: float = 0.001, eps: Eps | None = None,
    samples: int | None = None, select: Literal['first', 'stratified', 'random'] | None = None, seed: int = 0,
    batch_size: int = 1000, device: Device = 'auto',
) -> SmoothResult:
    """Prove robustness in L2 of the smoothed model, which answers the class that is most frequent under Gaussian noise."""

def study(
    run: Folder | Sequence[Folder] | None = None, model: Models | None = None, data: Data | None = None,
    y: Labels | None = None, *, preprocessing: Any = None, mean: Any = None, std: Any = None,
    answers: str | None = None, output: str | int | None = None, out: File | None = None, resume: bool = False,
    progress: ProgressOption | None = None, surrogate: str | Sequence[str] = (), norm: Norm = 'linf',
    eps: Eps | None = None, attack: str | Sequence[str] = ('fast',), targeted: str | None = None,
    reject_class: str | None = None, criterion: str | None = None, samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None, seed: int = 0, batch_size: int = 128,
    queries: int | None = None, precision: Literal['float32', 'tf32'] = 'float32', device: Device = 'auto',
    at: Eps | None = None, published: Folder | None = None, draws: int = 2000,
) -> StudyResult:
    """Compare any number of models class by class: stages, drops, places with intervals, and what goes with robustness."""

def train_agent(
    model: AnyModel | None = None, data: Data | None = None, y: Labels | None = None, *, preprocessing: Any = None,
    mean: Any = None, std: Any = None, answers: str | None = None, output: str | int | None = None, out: File,
    resume: bool = False, progress: ProgressOption | None = None, attack: str = 'rlab', norm: Norm = 'l2',
    eps: Eps = '1', criterion: str | None = None, samples: int | Literal['all'] = 1000,
    algorithm: Literal['dqn', 'none'] = 'dqn', reward: Literal['margin', 'dilution', 'projected'] = 'margin',
    minutes: float = 10.0, steps: int | None = None, episode_steps: int = 300, probes: int = 16, fits: int = 800,
    surrogates: int = 3, surrogate_steps: int = 400, slots: int = 64, seed: int = 0, batch_size: int = 128,
    device: Device = 'auto',
) -> AgentResult:
    """Train an agent for the attack rlab and write it as one file."""

def train_generator(
    data: Data | None = None, y: Labels | None = None, *, out: File, progress: ProgressOption | None = None,
    samples: int | Literal['all'] | None = None, minutes: float = 10.0, steps: int | None = None, latent: int = 32,
    width: int = 32, rate: float = 0.001, seed: int = 0, device: Device = 'auto',
) -> GeneratorResult:
    """Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its auxiliary classifier."""

def train_metric(
    data: Data | None = None, y: Labels | None = None, *, out: File, progress: ProgressOption | None = None,
    test: Data | None = None, samples: int | Literal['all'] = 20000, margin: float = 0.2, steps: int = 1500,
    batch_size: int = 128, rate: float = 0.002, neighbours: int = 5, seed: int = 0,
) -> MetricResult:
    """Train a triplet network on the data, and measure how well its distances separate classes beside those between pixels."""

def transfer(
    source: Folder | Sequence[Folder] | None = None, model: Models | None = None, data: Data | None = None,
    y: Labels | None = None, *, preprocessing: Any = None, mean: Any = None, std: Any = None,
    answers: str | None = None, output: str | int | None = None, out: File | None = None, resume: bool = False,
    on: str | None = None, progress: ProgressOption | None = None, norm: Norm = 'linf', eps: Eps | None = None,
    attack: str = 'mi-fgsm', criterion: str | None = None, samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None, seed: int = 0, batch_size: int = 128,
    device: Device = 'auto',
) -> TransferResult:
    """Measure how adversarial examples transfer between models: examples made now, or read from runs or benchmark sets."""

def unrestricted(
    model: Models | None = None, data: Data | None = None, y: Labels | None = None, *, preprocessing: Any = None,
    mean: Any = None, std: Any = None, answers: str | None = None, output: str | int | None = None,
    out: File | None = None, resume: bool = False, progress: ProgressOption | None = None, judge: Models | None = None,
    generator: File = '', per_class: int = 20, noise: float = 0.1, towards: str | None = None, steps: int = 200,
    rate: float = 0.05, radius: float = 0.1, penalty: float = 1.0, class_weight: float = 1.0,
    class_probability: float = 0.9, seed: int = 0, batch_size: int = 128, device: Device = 'auto',
) -> UnrestrictedResult:
    """Search a generator's latent space for inputs of an intended class that the model misclassifies, without a norm ball."""

def verify(
    run: Folder, model: Models | None = None, data: Data | None = None, y: Labels | None = None, *,
    preprocessing: Any = None, mean: Any = None, std: Any = None, answers: str | None = None,
    output: str | int | None = None, trust: File | None = None, digest: str | Sequence[str] = (),
    replay: int | None = None, signed_by: File | None = None,
) -> VerifyResult:
    """Recompute the claims of a run: rows, classes, adversarial inputs, costs, checks, tables, and some of its robust samples."""
