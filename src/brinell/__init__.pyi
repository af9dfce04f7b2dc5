"""What `brinell` offers, with the type of every keyword. Written by `make docs`; do not edit by hand."""

# ruff: noqa: D, E501
from collections.abc import Sequence
from typing import Any, Literal

from brinell.batch_attack import attack as attack
from brinell.core.errors import BrinellError as BrinellError
from brinell.core.errors import BrinellWarning as BrinellWarning
from brinell.inputs import data as data
from brinell.types import AnyModel, Data, Device, Eps, File, Folder, Labels, Models, Norm, Told
from brinell.analysis.gate import GateResult
from brinell.analysis.results import CompareResult
from brinell.studies.agent.run import AgentResult
from brinell.studies.audit.result import Audit
from brinell.studies.benchmark.cards import BenchmarkResult
from brinell.studies.corruption.results import CorruptResult
from brinell.studies.detection.analysis import DetectionResult
from brinell.studies.epsilon.analysis import EpsilonResult
from brinell.studies.explain.analysis import ExplainResult
from brinell.studies.export.run import ExportAnswer
from brinell.studies.generator.run import GeneratorResult
from brinell.studies.harden.analysis import HardenResult
from brinell.studies.metric.run import MetricResult
from brinell.studies.per_class.results import StudyResult
from brinell.studies.progress.result import RunProgress
from brinell.studies.report.run import ReportResult
from brinell.studies.review.analysis import ReviewResult
from brinell.studies.signature.run import SignResult
from brinell.studies.transfer.results import TransferResult
from brinell.studies.unrestricted.analysis import UnrestrictedResult
from brinell.studies.verification.result import VerifyResult

__version__: str

def open(folder: Folder) -> Any:
    """The result that a folder holds, from its records alone: what the call that made it returned.

    Args:
        folder: the folder of an audit or of any other study, as a path or a result.

    Returns:
        An `Audit`, or the result of the study that made the folder.

    Raises:
        BrinellError: no folder of ours, or damaged files.
    """

def audit(
    model: Models,
    data: Data,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: Told | None = None,
    surrogate: str | None = None,
    norm: Norm = 'linf',
    eps: Eps | None = None,
    attack: str | Sequence[str] = ('fast',),
    targeted: str | None = None,
    reject_class: str | None = None,
    samples: int | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    queries: int | None = None,
    precision: Literal['float32', 'bf16'] = 'float32',
    device: Device = 'auto',
    isolate: bool = False,
    dry_run: bool = False,
    calibrate: float | None = None,
    metrics: File | None = None,
) -> Audit:
    """Attack the model and write records, tables and a report.

    Without options: real handwritten digits and a small network, trained on first use; nothing is downloaded.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        surrogate: A model whose gradients the attacks of fast follow as well, named like --model: the same network without its defence, say. It has the same classes.
        norm: The distance in which eps is measured: linf, l2, l1, l0, or embedding:FILE.
        eps: The budgets: 8/255, a list 1/255,2/255, or from:to:points as in 0:8/255:9; recommended, or recommended:FOLDER of brinell epsilon, gives each sample its own. Default: the field's usual budgets for images.
        attack: A cascade, fast, standard (also autoattack), slides, plus, rand or black-box; or an attack, such as apgd-ce or pgd?steps=50&restarts=3. They run in the order given, each on the samples that are still robust.
        targeted: The class that the attacks aim at: a class by name or number, least-likely, or random. Samples of that class are left out. Default: untargeted, any wrong class counts.
        reject_class: The class by which the model rejects inputs, by name or number, or last. An input that is rejected is no adversarial example; a clean one that is rejected is not correct. Default: none, every class beside the true one counts.
        samples: The number of samples. Default: 1000, or all where there are fewer.
        select: Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test sets (mnist, cifar10, bench, digits), and stratified of all else.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        queries: The forward evaluations that each attack may spend on a sample at each eps. Default: no limit.
        precision: The precision of the gradients: float32 or bf16, which is cheaper for large networks on some processors. Every success is judged in float32.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        isolate: Run attacks that are files in processes of their own: with the samples and the oracle, without the model and the ledger.
        dry_run: Show the plan, its passes and, from a short calibration, its time and memory, with shard 1/N those of N processes; keep nothing.
        calibrate: The seconds that the calibration of a dry run may take; 0 makes none. Default: 20.
        metrics: Keep the progress of this process in a file that Prometheus' node exporter reads, such as FILE.prom.

    Returns:
        Audit: what `brinell audit --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def benchmark(
    model: AnyModel,
    data: Data,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: Told | None = None,
    distortions: str = 'gaussian-noise',
    policy: File = 'default',
    patch: int | str = 0,
    stride: int | str = 0,
    eps: Eps | None = None,
    steps: int = 1000,
    refine: int = 200,
    levels: str = '1,2,4,6,8,10',
    true_below: float | None = None,
    wrong_class: str | None = None,
    wrong_above: float | None = None,
    samples: int | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
    licence: str = 'unknown',
) -> BenchmarkResult:
    """Distort what the model classifies correctly until it errs, at graded severities, and store it as a data set.

    The folder loads with the datasets library; --data bench:FOLDER scores other models on it.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        distortions: What may be placed: names joined by +, or file.py:Class for one of your own.
        policy: Who places it: default (prior for images, greedy for other data), prior, greedy, random-placement, random-search, or a file of brinell train-agent.
        patch: The side of a patch in values, or one for each axis (4x16x16). 0 lets the size of the input decide: 8 to 64 patches along an axis.
        stride: The distance from one patch to the next, written like patch. 0 is the side of a patch.
        eps: The largest L2 distance of an adversarial example. Default: no limit.
        steps: The queries after which a sample is given up.
        refine: The queries after the first adversarial example that look for one at a smaller distance.
        levels: Multiples of the L2 distance of the adversarial example, which is always among them.
        true_below: The criterion: the probability of the true class falls below this value.
        wrong_class: The criterion: this class, by name or number, is predicted where it is not the true one.
        wrong_above: The criterion: the wrong class has more than this probability.
        samples: The number of samples. Default: 1000, or all where there are fewer.
        select: Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test sets, and stratified of all else.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        licence: The licence that the data card names, in the words of the Hugging Face hub. That of the source data counts.

    Returns:
        BenchmarkResult: what `brinell benchmark --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def compare(
    a: Folder,
    b: Folder | None = None,
    *,
    model_a: str | None = None,
    model_b: str | None = None,
) -> CompareResult:
    """Compare two models sample by sample: differences with intervals, and McNemar's exact test.

    Args:
        a: The first run.
        b: The second run. Default: none, two models of the first are compared.
        model_a: The model of the first run, where it has several.
        model_b: The model of the second run, where it has several.

    Returns:
        CompareResult: what `brinell compare --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def corrupt(
    model: Models | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: Told | None = None,
    kind: str | Sequence[str] = (),
    severity: int | Sequence[int] = (1, 2, 3, 4, 5),
    reference: str | None = None,
    placed: int = 0,
    steps: int = 200,
    keep: bool = False,
    samples: int | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
    draws: int = 2000,
) -> CorruptResult:
    """Corrupt inputs in the published ways, at five severities, and count what models get wrong.

    With --reference, the mean corruption error; with --placed, what RLAB makes of the same corruption on patches.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        kind: A distortion of brinell plugins distortion: a published one, such as published-fog, or a calibrated one, such as fog. Default: all nineteen published ones for images of 1 or 3 channels, all calibrated ones that fit for other data.
        severity: A severity, 1 to 5.
        reference: The model by whose errors the mean corruption error is divided, one of --model by its name. Default: none, no such mean.
        placed: The samples on which RLAB places each corruption on patches, at most as far from the clean input as the corruption of the whole input is. 0 leaves it out.
        steps: The queries of RLAB on each of these samples.
        keep: Whether the corrupted inputs are kept: FOLDER/set/KIND/SEVERITY.npz, in 8 bits for images, which --data npz: reads.
        samples: The number of samples. Default: 1000, or all where there are fewer.
        select: Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test sets, and stratified of all else.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        draws: The resamplings behind the intervals of mean corruption errors.

    Returns:
        CorruptResult: what `brinell corrupt --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def detect(
    run: Folder,
    train: Data,
    *,
    out: File | None = None,
    trust: File | None = None,
    progress: Told | None = None,
    detector: str | Sequence[str] = ('background', 'feature-squeezing', 'mahalanobis'),
    fpr: float = 0.05,
    fit: int = 2000,
    samples: int = 200,
    eps: Eps | None = None,
    steps: int = 100,
    seed: int = 0,
) -> DetectionResult:
    """Measure how much of a robust accuracy is due to changes that a detector sees, and what adaptive attacks leave of it.

    Args:
        run: A finished run folder, made by brinell audit.
        train: Clean data that the detectors are fitted to; none of the run's samples may be among them.
        out: where the results go. Default: a fresh folder under runs/.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        detector: A detector: background, feature-squeezing, mahalanobis, or file.py:Class.
        fpr: The false-alarm rate on clean inputs at which the threshold is set.
        fit: The clean inputs that detectors are fitted to. As many others set the threshold.
        samples: The number of samples of the run, counted from the first.
        eps: The budget of the adaptive attack. Default: the run's largest.
        steps: The gradient steps of the adaptive attack. 0 leaves it out.
        seed: The seed of every random number.

    Returns:
        DetectionResult: what `brinell detect --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def epsilon(
    data: Data,
    y: Labels | None = None,
    *,
    model: AnyModel | None = None,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    progress: Told | None = None,
    train: Data | None = None,
    norm: Literal['linf', 'l2', 'l1', 'l0'] | Sequence[Literal['linf', 'l2', 'l1', 'l0']] = (),
    samples: int | None = None,
    pairs: int = 100,
    fraction: float = 0.5,
    allow: float = 0.01,
    conditions: Literal['label', 'interpolation', 'perception'] | Sequence[Literal['label', 'interpolation', 'perception']] = ('label', 'interpolation', 'perception'),
    ssim: float = 0.9,
    psnr: float = 30.0,
    evidence: Folder | Sequence[Folder] = (),
    seed: int = 0,
) -> EpsilonResult:
    """Measure how far the samples of each class are apart, and recommend an eps for the data, each class and each sample.

    brinell audit --eps recommended:FOLDER attacks each sample within its own. brinell review asks people which changes they notice.

    Args:
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        train: The training data of the model, among which neighbours are looked for, too.
        norm: A norm that an eps is recommended for: linf, l2, l1, l0. Default: linf and l2, and the others where they take no longer than seconds.
        samples: The number of samples, counted from the first. Default: all.
        pairs: The samples of each class for mean distances in Linf, L1 and L0 and for perceptibility. 0 means all.
        fraction: Label constancy: eps is at most this fraction of the distance to the nearest sample of another class.
        allow: The share of samples on which one eps for a class or a set may break a condition.
        conditions: A condition that the recommended eps keeps: label, interpolation or perception.
        ssim: The least structural similarity (SSIM) that counts as unnoticed.
        psnr: The least peak signal-to-noise ratio in dB that counts as unnoticed.
        evidence: A folder that shows which changes are noticed, in place of random ones: of a review by people, or of an audit of the same data with its stored adversarial examples.
        seed: The seed of the random changes and of the draw of samples.

    Returns:
        EpsilonResult: what `brinell epsilon --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def explain(
    model: AnyModel | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    trust: File | None = None,
    progress: Told | None = None,
    run: Folder | None = None,
    method: str | Sequence[str] = (),
    truth: File | None = None,
    explain: Literal['prediction', 'label'] = 'prediction',
    only: Literal['all', 'right', 'wrong'] = 'all',
    samples: int | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    steps: int = 16,
    copies: int = 1,
    randomise: bool = False,
    cascade: int = 0,
    noise: float = 0.02,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
) -> ExplainResult:
    """Show which places of an input matter to a model, by several methods, and judge each method's maps.

    With ground truth it is told how well maps lie on the objects; without, how well the model follows them.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        run: A finished run folder, made by brinell audit, in place of data and model: its adversarial examples are explained.
        method: A method, such as rlab or grad-cam?layer=NAME. Default: all that the model gives enough for.
        truth: Where the objects are: masks:DIR, npz:FILE, coco:FILE, voc:DIR, spans:FILE or beat.
        explain: The class that is explained: the one that the model predicts, or the true one.
        only: The samples: all, or those that the model gets right or wrong.
        samples: The number of samples. Default: 16, or all where there are fewer.
        select: How samples are chosen: first, stratified or random. Default: the first of published test sets, else stratified.
        steps: The steps in which places are shown and hidden to judge a map. 0 leaves these measures out.
        copies: The copies of each input with a little noise, on which every method is tried again. 0 leaves stability out.
        randomise: Try every method on the model with shuffled weights too: a map that stays the same shows the input alone.
        cascade: The stages in which weights are shuffled, from the last layers to the first, with every method tried at each; the last stage is that of `randomise`. 0 leaves the cascade out.
        noise: The standard deviation of that noise, in shares of the width of the bounds.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        ExplainResult: what `brinell explain --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def export(
    run: Folder,
    to: Literal['csv', 'tensorboard', 'mlflow', 'robustbench', 'huggingface', 'every-eval-ever'],
    *,
    out: File | None = None,
    progress: Told | None = None,
    eps: Eps | None = None,
    about: str | Sequence[str] = (),
) -> ExportAnswer:
    """Write metrics, tables and the report of a run for TensorBoard, MLflow or a spreadsheet, or as RobustBench entries.

    Args:
        run: A run folder, made by brinell audit.
        to: csv: metrics, rows and tables as CSV, and the report. tensorboard: event files. mlflow: a run for each model, at MLFLOW_TRACKING_URI or in --out. robustbench: a model_info file for each model. huggingface: a file for .eval_results of its repository on the hub. every-eval-ever: a record with a line for each sample and budget.
        out: where the results go. Default: a fresh folder under runs/.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        eps: The budget of the RobustBench entry, one of the run's. Default: its largest.
        about: What an entry says and a run cannot know, as KEY=VALUE. robustbench: name, authors, venue and link of the paper, architecture, additional_data, reported, footnote. huggingface: dataset (which must be given), revision, task, url, source, user. every-eval-ever: organization, relationship, developer, id, availability.

    Returns:
        ExportAnswer: what `brinell export --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def gate(
    run: Folder,
    model: str | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    robust: float | None = None,
    worst_class: float | None = None,
    clean: float | None = None,
    eps: Eps | None = None,
    baseline: Folder | None = None,
    max_drop: float | None = None,
    allow: str | Sequence[str] = (),
    without_checks: bool = False,
    junit: File | None = None,
    sarif: File | None = None,
) -> GateResult:
    """Test the lower end of each interval against thresholds, or a run against a baseline.

    A missing figure fails, and so does a check that was not made.

    Args:
        run: The run folder, made by brinell audit.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        robust: Least robust accuracy, 0 to 1, for the lower end of its interval.
        worst_class: The same for the weakest class.
        clean: The same for clean accuracy.
        eps: The budget of these thresholds, one of the run's. Default: its largest.
        baseline: A run that this one must not be worse than.
        max_drop: The most that a rate may fall below the baseline's, chance or not.
        allow: The code of a warning that does not fail the gate.
        without_checks: Pass too where checks that count were not made.
        junit: Write the checks to this file as JUnit XML.
        sarif: Write the failed checks to this file as SARIF 2.1.0.

    Returns:
        GateResult: what `brinell gate --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def harden(
    model: AnyModel,
    data: Data,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    progress: Told | None = None,
    train: Data | None = None,
    recipe: str = 'pgd',
    norm: Norm = 'linf',
    eps: Eps | None = None,
    epochs: float = 30.0,
    minutes: float | None = None,
    ramp: float = 0.3,
    optimizer: Literal['adamw', 'sgd'] = 'adamw',
    rate: float | None = None,
    weight_decay: float = 0.0005,
    batch_size: int = 64,
    augment: Literal['none', 'shift', 'shift-flip'] = 'none',
    clip: float = 1.0,
    average: float = 0.999,
    validation: int = 500,
    patience: int | None = None,
    precision: Literal['float32', 'bf16'] = 'float32',
    attack: str | Sequence[str] = ('fast',),
    budgets: Eps | None = None,
    samples: int = 200,
    seed: int = 0,
    device: Device = 'auto',
) -> HardenResult:
    """Train a model adversarially, and audit it before and after on data that it never saw.

    Without options: the built-in network on real handwritten digits.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        train: The training data. Default: the same data with split=train, where they have such a split.
        recipe: How to train: pgd, n-fgsm and what `brinell plugins defence` lists; several share each batch as pgd+distortions, settings stand in brackets as pgd(steps=5).
        norm: The distance of eps: linf or l2.
        eps: The budget that is trained for, such as 8/255. Default: the largest of the field's usual ones for images.
        epochs: How often each training sample is seen.
        minutes: The time of the training in place of epochs: processor time on a CPU, wall time on a GPU.
        ramp: The share of the training in which eps rises from 0.
        optimizer: The optimiser.
        rate: The largest learning rate. Default: 0.005 for adamw and 0.02 for sgd; large networks that were trained before want less, and with sgd those with batch norm more.
        weight_decay: The weight decay.
        batch_size: The samples of a step, and the most inputs shown to the model at once.
        augment: What is done to training images: shifted by up to an eighth of their side, with the edge mirrored outwards, or that and half of them mirrored.
        clip: The length to which longer gradients are scaled, which sets the pace of most steps; 0 leaves gradients as they are.
        average: What the average of the weights, which is kept, remembers at each step; 0 keeps the last weights.
        validation: The most training samples that are set aside, and by which the best weights are chosen; never more than a tenth.
        patience: The checks without a better robust accuracy after which the training stops. Default: it goes on to its end.
        precision: The precision of the training: float32, or bf16 where the processor computes it faster. Audits are in float32.
        attack: The attacks of the audits, named as for brinell audit.
        budgets: The budgets of the audits, such as 0:8/255:9. Default: five from 0 to eps.
        samples: The most samples of the audits; more make intervals narrower, and take their time twice.
        seed: The seed of every random number.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        HardenResult: what `brinell harden --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def progress(
    run: Folder,
) -> RunProgress:
    """Show how far a run is that goes on elsewhere: what is done, who works on it, and the time left. It changes nothing.

    Args:
        run: A run folder, or an address such as s3://BUCKET/RUN.

    Returns:
        RunProgress: what `brinell progress --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def report(
    run: Folder,
) -> ReportResult:
    """Write the page and the tables of a run, or of what another command made, again, from the records alone.

    Args:
        run: The folder of an audit, or of any study that has a page.

    Returns:
        ReportResult: what `brinell report --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def review(
    data: Data,
    y: Labels | None = None,
    *,
    out: File | None = None,
    resume: bool = False,
    progress: Told | None = None,
    norm: Literal['linf', 'l2'] = 'linf',
    eps: Eps = '0.01,0.02,0.04,0.08,0.16,0.32',
    change: Folder = 'crafted',
    trials: int = 120,
    catch: float = 0.2,
    seed: int = 0,
    reviewer: str = '',
    port: int = 0,
) -> ReviewResult:
    """Have a person judge in a browser on this machine which changes of a picture show.

    Pairs of clean and changed pictures are shown until all are judged. Answers are on disk one by one.

    Args:
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        norm: The norm in which the changes are measured: linf or l2.
        eps: The sizes of the changes, in the units of the data's bounds.
        change: The kind of change: crafted (towards another class), noise, or run:FOLDER of an audit.
        trials: The number of pairs.
        catch: The share of pairs in which nothing changes.
        seed: The seed of every random number.
        reviewer: Whose answers these are; each person has all pairs to judge.
        port: The port on loopback. 0 takes a free one.

    Returns:
        ReviewResult: what `brinell review --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def sign(
    run: Folder,
    key: File,
) -> SignResult:
    """Sign a finished run with an SSH key, so that `brinell verify --signed-by` can tell who answers for it.

    The manifest is signed, which holds the hashes of records and arrays. ssh-keygen of OpenSSH does it.

    Args:
        run: A finished run folder.
        key: The file of an SSH private key, or the public key of one that ssh-agent holds.

    Returns:
        SignResult: what `brinell sign --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def study(
    run: Folder | Sequence[Folder] | None = None,
    model: Models | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    progress: Told | None = None,
    surrogate: str | None = None,
    norm: Norm = 'linf',
    eps: Eps | None = None,
    attack: str | Sequence[str] = ('fast',),
    targeted: str | None = None,
    reject_class: str | None = None,
    samples: int | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    queries: int | None = None,
    precision: Literal['float32', 'bf16'] = 'float32',
    device: Device = 'auto',
    isolate: bool = False,
    at: Eps | None = None,
    published: Folder | None = None,
    draws: int = 2000,
) -> StudyResult:
    """Compare any number of models class by class: stages, drops, places with intervals, and what goes with robustness.

    The models are those of runs that are there, or are audited first. Without options: four networks for digits.

    Args:
        run: Run folders, made by brinell audit on the same data; every model in them takes part. Default: none, the models are audited.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        surrogate: A model whose gradients the attacks of fast follow as well, named like --model: the same network without its defence, say. It has the same classes.
        norm: The distance in which eps is measured: linf, l2, l1, l0, or embedding:FILE.
        eps: The budgets: 8/255, a list 1/255,2/255, or from:to:points as in 0:8/255:9; recommended, or recommended:FOLDER of brinell epsilon, gives each sample its own. Default: the field's usual budgets for images.
        attack: A cascade, fast, standard (also autoattack), slides, plus, rand or black-box; or an attack, such as apgd-ce or pgd?steps=50&restarts=3. They run in the order given, each on the samples that are still robust.
        targeted: The class that the attacks aim at: a class by name or number, least-likely, or random. Samples of that class are left out. Default: untargeted, any wrong class counts.
        reject_class: The class by which the model rejects inputs, by name or number, or last. An input that is rejected is no adversarial example; a clean one that is rejected is not correct. Default: none, every class beside the true one counts.
        samples: The number of samples. Default: 1000, or all where there are fewer.
        select: Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test sets (mnist, cifar10, bench, digits), and stratified of all else.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        queries: The forward evaluations that each attack may spend on a sample at each eps. Default: no limit.
        precision: The precision of the gradients: float32 or bf16, which is cheaper for large networks on some processors. Every success is judged in float32.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        isolate: Run attacks that are files in processes of their own: with the samples and the oracle, without the model and the ledger.
        at: The budget at which models and classes are compared, one that all runs have. Default: the largest.
        published: A folder of RobustBench's model_info files, such as model_info/cifar10/Linf: entries with the study's budget are drawn as reference marks.
        draws: The resamplings behind the intervals of ranks and of their agreement.

    Returns:
        StudyResult: what `brinell study --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def train_agent(
    model: AnyModel | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File,
    resume: bool = False,
    progress: Told | None = None,
    attack: str = 'rlab',
    norm: Norm = 'l2',
    eps: Eps = '1',
    samples: int = 1000,
    algorithm: Literal['dqn', 'none'] = 'dqn',
    reward: Literal['margin', 'dilution', 'projected'] = 'margin',
    minutes: float = 10.0,
    steps: int | None = None,
    episode_steps: int = 300,
    probes: int = 16,
    fits: int = 800,
    slots: int = 64,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
) -> AgentResult:
    """Train an agent for the attack rlab and write it as one file.

    A prior on which patches of an input are sensitive is fitted to random distortions, then the agent is trained on episodes. The
    file is written at every report, so that an interruption loses little: with --resume the same command goes on. A fifth of the
    inputs is held out: at the end up to 100 of them are attacked by the agent, by greedy and by the default, and the answer says
    which needs fewer queries. Every query is counted.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        attack: The attack that the agent is for, with its distortions and patches: rlab?distortions=gaussian-noise+fog&patch=4.
        norm: The distance in which eps is measured: l2 or linf.
        eps: The budget of the episodes, such as 1 or 8/255.
        samples: The most inputs, counted from the first; those that the model gets wrong are left out.
        algorithm: The learning algorithm: dqn, a dueling double DQN; none fits the prior alone.
        reward: What a step is rewarded for: margin, dilution or projected.
        minutes: The wall time of the training, after the probes.
        steps: The steps of the training, in place of minutes: such a training is repeatable.
        episode_steps: The queries after which an episode is given up.
        probes: The random distortions of each input to which the prior is fitted; 0 leaves the prior as it is.
        fits: The gradient steps on the prior.
        slots: The episodes that run at once, or as many as there are inputs.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        AgentResult: what `brinell train-agent --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def train_generator(
    data: Data | None = None,
    y: Labels | None = None,
    *,
    out: File,
    progress: Told | None = None,
    samples: int | None = None,
    minutes: float = 10.0,
    steps: int | None = None,
    latent: int = 32,
    width: int = 32,
    rate: float = 0.001,
    seed: int = 0,
    device: Device = 'auto',
) -> GeneratorResult:
    """Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its auxiliary classifier.

    The sides of the images must be multiples of 4.

    Args:
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        out: where the results go. Default: a fresh folder under runs/.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        samples: The most inputs, counted from the first. Default: all.
        minutes: The wall time of the training. One minute is enough for the digits, ten for MNIST.
        steps: The updates of both networks, in place of minutes: such a training is repeatable.
        latent: The length of the latent vector.
        width: The channels of the thinner layers: 16 for 8 x 8 pixels, 32 for 28 x 28.
        rate: The learning rate of the critic; the generator's is half of it.
        seed: The seed of every random number.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        GeneratorResult: what `brinell train-generator --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def train_metric(
    data: Data | None = None,
    y: Labels | None = None,
    *,
    out: File,
    progress: Told | None = None,
    test: Data | None = None,
    samples: int = 20000,
    margin: float = 0.2,
    steps: int = 1500,
    batch_size: int = 128,
    rate: float = 0.002,
    neighbours: int = 5,
    seed: int = 0,
) -> MetricResult:
    """Train a triplet network on the data, and measure how well its distances separate classes beside those between pixels.

    Args:
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        out: where the results go. Default: a fresh folder under runs/.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        test: The data to judge by. Default: a fifth of each class of the training data, kept aside.
        samples: The most samples of each data set, counted from the first.
        margin: The margin (alpha) of the triplet loss: by how much farther, in squared distance, another class is to be. On the unit sphere that is 4 at most.
        steps: The number of batches.
        batch_size: The samples of a batch, of up to 16 classes.
        rate: The largest learning rate.
        neighbours: How many neighbours vote.
        seed: The seed of weights, batches and intervals.

    Returns:
        MetricResult: what `brinell train-metric --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def transfer(
    source: Folder | Sequence[Folder] | None = None,
    model: Models | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: Told | None = None,
    norm: Norm = 'linf',
    eps: Eps | None = None,
    attack: str = 'mi-fgsm',
    samples: int | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
    draws: int = 2000,
) -> TransferResult:
    """Show models the adversarial examples of others: made here, of runs, or of benchmark sets.

    Without options: a network for digits, the same retrained, a narrower and a wider one.

    Args:
        source: Where adversarial examples come from: the folder of a benchmark set, the folder of a run, or the name of a model among those of --model, on which they are made; names joined by + are attacked as one model, by the mean of their logits. Default: each model.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        norm: The distance in which eps is measured: linf, l2, l1 or l0.
        eps: The budget of the examples that are made, and of those that are taken from runs. Default: the largest of the field's usual ones.
        attack: The attack that makes examples, such as mi-fgsm?diverse=0.5&kernel=3 or apgd-ce; it spends all its steps on each sample.
        samples: The number of samples. Default: 1000, or all where there are fewer.
        select: Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test sets, and stratified of all else.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        draws: The resamplings behind the intervals of the sources' places.

    Returns:
        TransferResult: what `brinell transfer --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def unrestricted(
    model: Models | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    out: File | None = None,
    resume: bool = False,
    progress: Told | None = None,
    judge: Models | None = None,
    generator: File = '',
    per_class: int = 20,
    noise: float = 0.1,
    towards: str | None = None,
    steps: int = 200,
    rate: float = 0.05,
    radius: float = 0.1,
    hold: float = 1.0,
    keep: float = 1.0,
    sure: float = 0.9,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
) -> UnrestrictedResult:
    """Search a generator's latent space for inputs of an intended class on which the models err, within no norm ball.

    The records say who still sees the intended class, and how far each input is from the training data.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.
        judge: A further model that says which class it sees and is never attacked.
        generator: A file of brinell train-generator.
        per_class: The attempts for each intended class.
        noise: The largest change of a value in the variant with small noise, in the units of the data. 0 leaves that variant out.
        towards: The class, by name or number, that the models are to predict. Default: any wrong one.
        steps: The most gradient steps of a search.
        rate: The size of a step, in standard deviations of the latent.
        radius: How far each value of the latent may go freely.
        hold: The weight of the loss that keeps each value of the latent within the radius.
        keep: The weight of the auxiliary classifier's loss.
        sure: The least probability of the intended class that the auxiliary classifier must give.
        seed: The seed of every random number.
        batch_size: The most inputs shown to a model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        UnrestrictedResult: what `brinell unrestricted --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def verify(
    run: Folder,
    model: Models | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    trust: File | None = None,
    attack: str | Sequence[str] = (),
    rerun: int | None = None,
    signed_by: File | None = None,
) -> VerifyResult:
    """Recompute what a run claims: rows, classes, adversarial inputs, costs, checks, tables, and a part of its robust samples.

    Of a run that was made elsewhere nothing is run or opened, unless it is named again or trusted; its files alone are checked.

    Args:
        run: A run folder, made by brinell audit.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        attack: An attack of RUN that is a file, as RUN names it: it may run.
        rerun: Robust samples of each model to attack again. Default: 8, or 2 % where that is more.
        signed_by: A file of allowed signers, or of public SSH keys: a run that none of them has signed is refused.

    Returns:
        VerifyResult: what `brinell verify --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
