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
from brinell.studies.corruption.results import CorruptResult
from brinell.studies.dense.results import DenseResult
from brinell.studies.dense_transfer.results import DenseTransferResult
from brinell.studies.detection.analysis import DetectionResult
from brinell.studies.doctor.result import DoctorResult
from brinell.studies.epsilon.analysis import EpsilonResult
from brinell.studies.explain.analysis import ExplainResult
from brinell.studies.export.run import ExportAnswer
from brinell.studies.falsify.result import FalsifyResult
from brinell.studies.generator.run import GeneratorResult
from brinell.studies.harden.analysis import HardenResult
from brinell.studies.metric.run import MetricResult
from brinell.studies.per_class.results import StudyResult
from brinell.studies.progress.result import RunProgress
from brinell.studies.report.run import ReportResult
from brinell.studies.review.analysis import ReviewResult
from brinell.studies.signature.run import SignResult
from brinell.studies.smooth.analysis import SmoothResult
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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    surrogate: str | Sequence[str] = (),
    norm: Norm = 'linf',
    eps: Eps | None = None,
    attack: str | Sequence[str] = ('fast',),
    targeted: str | None = None,
    reject_class: str | None = None,
    criterion: str | None = None,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    queries: int | None = None,
    precision: Literal['float32', 'tf32'] = 'float32',
    fresh: int | None = None,
    device: Device = 'auto',
    dry_run: bool = False,
    calibrate: float | None = None,
    certify: bool = False,
    gate: str | Sequence[str] = (),
    metrics: File | None = None,
) -> Audit:
    """Attack the model and write records, tables and a report.

    Without options: real handwritten digits and a small network, trained on first use; nothing is downloaded.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        surrogate: A network of the same task, named like --model, whose gradients attacks follow: rlab, which learns from the answers of the model how far to trust it, and those of fast as well. It has the same classes. Several are named by repeating it.
        norm: The distance in which eps is measured: linf, l2, l1, l0, or embedding:FILE.
        eps: The budgets: 8/255, a list 1/255,2/255, or from:to:points as in 0:8/255:9; recommended, or recommended:FOLDER of brinell epsilon, gives each sample its own. Default: the field's usual budgets for images.
        attack: A cascade, fast, standard (also autoattack), slides, plus, rand or black-box; or an attack, such as apgd-ce or pgd?steps=50&restarts=3. They run in the order given, each on the samples that are still robust.
        targeted: The class that the attacks aim at: a class by name or number, least-likely, or random. Samples of that class are left out. Default: untargeted, any wrong class counts.
        reject_class: The class by which the model rejects inputs: a name, a number, or last. A rejected input is not an adversarial example, and a rejected clean input is not correct. Default: no reject class, so every class except the true one counts.
        criterion: A threshold on a probability in place of misclassification: "true<0.1" (the class is wrong, and the true one has less than 0.1) or "class=cat>0.9" (inputs of other classes with more than 0.9 for cat). The run then states the share of inputs that do not meet it, which is not robust accuracy. Default: misclassification.
        samples: The number of samples, or all. Default: 1000, or all where there are fewer.
        select: The selection of samples: first, stratified (drawn by class) or random. Default: first for published test sets (mnist, cifar10, bench, digits), stratified for all other data.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        queries: The forward evaluations that each attack may spend on a sample at each eps. Default: no limit.
        precision: The precision of the gradients: float32, or tf32, several times faster on GPUs. Every success is judged in float32.
        fresh: For a model that counts, remembers or adapts: every question is answered by a copy of the model that has answered no other, and N inputs that the attacks reached are judged once more, each by a copy of its own. Default: one model answers all.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        dry_run: Show the plan, its passes and, from a short calibration, its time and memory, with shard 1/N those of N processes; keep nothing.
        calibrate: The seconds that the calibration of a dry run may take; 0 makes none. Default: 20.
        certify: Also prove robustness of what the attacks leave, by CROWN and alpha-CROWN, into the folder certify of the run. Page and JSON show both bounds.
        gate: A condition of brinell gate on the run, such as robust=0.4, worst-class=0.2, clean=0.9 or certified=0.2, at its largest budget. The command ends with exit code 1 where one does not hold.
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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    distortions: str = 'gaussian-noise',
    policy: File = 'default',
    patch: int | str = 0,
    stride: int | str = 0,
    eps: Eps | None = None,
    steps: int = 1000,
    refine: int = 200,
    levels: str = '1,2,4,6,8,10',
    criterion: str | None = None,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
    licence: str = 'unknown',
) -> BenchmarkResult:
    """Distort correctly classified inputs until the model misclassifies them, and store them at graded severities as a data set.

    The datasets library loads the folder. Evaluate other models on it with --data bench:FOLDER.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        distortions: The distortions to place: names joined by +, or file.py:Class for a custom one.
        policy: The policy that places them: default (prior for images, greedy for other data), prior, greedy, random-placement, random-search, or a file of brinell train-agent.
        patch: The side of a patch in values, or a side for each axis (4x16x16). 0 adapts it to the input, with 8 to 64 patches along an axis.
        stride: The distance from one patch to the next, written like patch. 0 is the side of a patch.
        eps: The largest L2 distance of an adversarial example. Default: no limit.
        steps: The largest number of queries for a sample.
        refine: The number of queries after the first adversarial example that search for a closer one.
        levels: Multiples of the L2 distance of the adversarial example. 1 is always among them.
        criterion: The criterion of success. For classes a threshold on a probability, as for brinell audit: "true<0.1" or "class=cat>0.9". For masks and boxes as for brinell dense, such as pixels:0.5, iou:0.3, gone:CLASS or missed:0.5. Default: misclassification, half of the pixels are wrong, or half of the objects are missed.
        samples: The number of samples, or all. Default: 1000, or all if there are fewer.
        select: The selection of samples: the first, or a draw with the seed, stratified by class or random. Default: the first for published test sets, stratified for other data.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        licence: The licence on the data card, as the Hugging Face hub names it. The licence of the source data applies.

    Returns:
        BenchmarkResult: what `brinell benchmark --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def board(
    folder: Folder | Sequence[Folder],
    *,
    out: File | None = None,
    trust: File | None = None,
    progress: ProgressOption | None = None,
    level: Literal['rows', 'replay'] = 'rows',
    title: str | None = None,
    workers: int | None = None,
) -> BoardResult:
    """Make a static site of any number of runs: a table for each task, and a page for each model and each pair of models.

    Nothing is taken over that verification refuses; the reason stands on a page of refusals. Made again, it changes only what is new.

    Args:
        folder: Runs, certificates and claims, or folders that hold some at any depth.
        out: where the results go. Default: a fresh folder under runs/.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        level: How far each is verified: files, digests, rows and labels, or also by a replay with its model and data.
        title: The title of the site. Default: Robustness board.
        workers: Processes that verify side by side. Default: one a core.

    Returns:
        BoardResult: what `brinell board --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def certify(
    model: AnyModel | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    norm: Literal['linf', 'l2'] = 'linf',
    eps: Eps | None = None,
    method: str | Sequence[str] = ('crown', 'alpha-crown'),
    attack: str | Sequence[str] = ('fast',),
    solver: File | Sequence[File] = (),
    solver_timeout: float = 60.0,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
    export: Folder | None = None,
) -> CertifyResult:
    """Bound robust accuracy from both sides: proofs from below, attacks from above, class by class over a range of budgets.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        norm: The distance in which eps is measured.
        eps: Budgets, such as 0:8/255:9. Default: 0:0.04:5.
        method: A method of proof: interval, crown-ibp, crown, alpha-crown or beta-crown?parts=200. They run in the order given, each on the samples that are still open.
        attack: The attacks, as for brinell audit.
        solver: The command of an outside verifier of VNN-LIB 2.0, which is asked about what the methods leave open in linf, as TOOL verify QUERY.vnnlib --network N=MODEL.onnx --timeout S. Its proofs carry its name; its counterexamples are checked by the model.
        solver_timeout: The seconds that an outside verifier may take for one question.
        samples: The number of samples, or all. Default: 100, or all where there are fewer.
        select: How samples are selected: first, stratified or random.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        export: Write a query in VNN-LIB for each sample and budget that stays open, in versions 1.0 and 2.0, and the network in ONNX into this folder.

    Returns:
        CertifyResult: what `brinell certify --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def claim(
    run: Folder,
    model: str | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    output: str | int | None = None,
    out: File | None = None,
    trust: File | None = None,
    progress: ProgressOption | None = None,
    eps: Eps | None = None,
    proofs: Folder | None = None,
    against: Literal['robustbench'] | None = None,
    level: Literal['rows', 'replay'] = 'replay',
) -> ClaimResult:
    """State what a run shows and what it does not, for a model card, a paper or a technical file, and where its figure stands.

    A claim is a page, a card in Markdown, a badge, OSCAL assessment results and one JSON, all made from a row for each sample.

    Args:
        run: The run, made by brinell audit.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        eps: The one budget of the claim, one of the run's. Default: that of the published entries with --against, else the largest.
        proofs: A folder of brinell certify for the same model and data: its proofs bound the figure from below. Default: those of an audit with --certify, if there are any.
        against: Published entries among which the figure is ranked, if the protocols agree.
        level: How far the run is verified first: its files and rows alone, or also a replay with its model and data.

    Returns:
        ClaimResult: what `brinell claim --json` prints, as `payload()`.

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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    kind: str | Sequence[str] = (),
    suite: Literal['calibrated', 'published', 'synthetic'] | Sequence[Literal['calibrated', 'published', 'synthetic']] = (),
    severity: int | Sequence[int] = (1, 2, 3, 4, 5),
    reference: str | None = None,
    placed: int = 0,
    steps: int = 200,
    keep: bool = False,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
) -> CorruptResult:
    """Corrupt inputs with the published corruptions or others at five severities, and count the errors of models.

    With --reference it computes the mean corruption error; with --placed, RLAB places the corruptions on patches.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        kind: A distortion of brinell plugins distortion: a published one, such as published-fog, a synthetic one, such as synthetic-mosaic, or a calibrated one, such as fog. Default: all of --suite.
        suite: All distortions of a suite that fit the data: published (ImageNet-C's nineteen, for images of 1 or 3 channels), synthetic (six after LAION-C, for images) or calibrated. Default without --kind: published where it fits, else calibrated.
        severity: A severity, 1 to 5.
        reference: The model whose errors divide the mean corruption error: the name of one of --model. Default: none, and no such mean.
        placed: Number of samples on which RLAB places each corruption on patches, within the L2 distance of the corruption of the whole input. 0 leaves it out.
        steps: Queries of RLAB for each sample.
        keep: Store the corrupted inputs in FOLDER/set/KIND/SEVERITY.npz, with 8 bits for images: --data npz:FILE reads them.
        samples: The number of samples, or all. Default: 1000, or all if there are fewer.
        select: Selection of the samples: the first, or drawn with the seed, stratified by class or at random. Default: the first for published test sets, else stratified.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        CorruptResult: what `brinell corrupt --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def dense(
    model: AnyModel,
    data: Data,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    norm: Literal['linf', 'l2'] = 'linf',
    eps: Eps | None = None,
    attack: str | Sequence[str] = (),
    criterion: str | None = None,
    least_score: float = 0.4,
    lipschitz: float | None = None,
    enlarge: Literal['bilinear', 'bilinear-aligned', 'nearest'] = 'bilinear',
    queries: int | None = None,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 4,
    device: Device = 'auto',
    dry_run: bool = False,
    calibrate: float | None = None,
) -> DenseResult:
    """Attack a model that answers more than a class: the class of each pixel, by masks, or the boxes of objects.

    `brinell audit` hands data with masks or boxes over to it.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        norm: The distance in which eps is measured: linf or l2.
        eps: The budgets, as for brinell audit. Default: 1/255, 2/255, 4/255 and 8/255 in linf; 0.25, 0.5 and 1 in l2.
        attack: An attack: sea, which is apgd-map with each of its four losses, or one of brinell plugins attack, such as pgd, square, rlab or apgd-map?loss=masked-ce&steps=20. They run one after another, each from the strongest input so far where it can. Default: sea.
        criterion: The criterion of success, which ends the attacks on a picture: pixels (all of its pixels are wrong), pixels:0.5 (half of them), iou:0.3 (its mean IoU falls below 0.3), gone:CLASS (no pixel of the class keeps it) or target:CLASS (all pixels have the class); for boxes missed, false, mislabelled or misplaced (all of the objects, or 100 false boxes), with a number such as missed:0.5 (half of the objects) or false:20, several joined by +. Default: pixels, or all four kinds of errors of boxes.
        least_score: For boxes: the score above which they are shown. Recall and errors count shown boxes alone; AP takes scores over 0.001.
        lipschitz: The Lipschitz constant of the model, by your word: all logits of a picture together change by at most this times the change of the picture (Euclidean norms). Pixels are then certified in L2. Default: none are.
        enlarge: How maps that are smaller than the picture are enlarged; bilinear-aligned lays the outer pixels of both upon each other.
        queries: The forward evaluations that each attack may spend on a picture at each eps. Default: no limit.
        samples: The number of pictures, or all. Default: 50, or all where there are fewer.
        select: The selection of pictures: the first, or drawn with the seed. Default: drawn.
        seed: The seed of every random number.
        batch_size: The most pictures shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        dry_run: Show the plan, its passes and, from a short calibration, its time and memory, with shard 1/N those of N processes; keep nothing.
        calibrate: The seconds that the calibration of a dry run may take; 0 makes none. Default: 20.

    Returns:
        DenseResult: what `brinell dense --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def dense_transfer(
    model: Models,
    data: Data,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    source: str | Sequence[str] = (),
    norm: Literal['linf', 'l2'] = 'linf',
    eps: Eps | None = None,
    attack: str | Sequence[str] = (),
    criterion: str | None = None,
    least_score: float = 0.4,
    enlarge: Literal['bilinear', 'bilinear-aligned', 'nearest'] = 'bilinear',
    queries: int | None = None,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 4,
    device: Device = 'auto',
) -> DenseTransferResult:
    """Show the strongest inputs of one segmentation network or detector to others, and compare with an attack on each.

    `brinell transfer` hands data with masks or boxes over to it.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        source: The name of a model that is attacked, among those of model. Default: each model.
        norm: The distance in which eps is measured: linf or l2.
        eps: The budget of the inputs. Default: 8/255 in linf; 1 in l2.
        attack: An attack, as for brinell dense. Default: that of brinell dense for such a model.
        criterion: The criterion of success, as for brinell dense: it ends the attack on a picture, and names the kinds of errors of boxes. Default: pixels, or missed for boxes.
        least_score: For boxes: the score above which they are shown. Recall and errors count shown boxes alone; AP takes scores over 0.001.
        enlarge: How maps that are smaller than the picture are enlarged; bilinear-aligned lays the outer pixels of both upon each other.
        queries: The forward evaluations that each attack may spend on a picture. Default: no limit.
        samples: The number of pictures, or all. Default: 50, or all where there are fewer.
        select: The selection of pictures: the first, or drawn with the seed. Default: drawn.
        seed: The seed of every random number.
        batch_size: The most pictures shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        DenseTransferResult: what `brinell dense-transfer --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def detect(
    run: Folder,
    train: Data,
    *,
    out: File | None = None,
    trust: File | None = None,
    progress: ProgressOption | None = None,
    detector: str | Sequence[str] = ('background', 'feature-squeezing', 'mahalanobis'),
    fpr: float = 0.05,
    fit: int = 2000,
    samples: int | Literal['all'] = 200,
    eps: Eps | None = None,
    steps: int = 100,
    seed: int = 0,
) -> DetectionResult:
    """Measure how much of a robust accuracy comes from changes that a detector sees, and how much adaptive attacks leave of it.

    Args:
        run: A finished run folder of brinell audit.
        train: Clean data that the detectors are fitted to. It must not contain samples of the run.
        out: where the results go. Default: a fresh folder under runs/.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        detector: A detector: background, feature-squeezing, mahalanobis, or file.py:Class.
        fpr: The false-alarm rate on clean inputs, which determines the threshold.
        fit: Number of clean inputs that detectors are fitted to. As many further inputs determine the threshold.
        samples: Number of samples of the run, counted from the first.
        eps: The budget of the adaptive attack. Default: the run's largest.
        steps: Gradient steps of the adaptive attack. 0 leaves it out.
        seed: The seed of every random number.

    Returns:
        DetectionResult: what `brinell detect --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def doctor(
) -> DoctorResult:
    """Show versions, devices, threads and disk, and which extra is missing for which kind of model and data.

    It attacks nothing and downloads nothing. The exit code is 1 if a package that Brinell needs is missing or too old.

    Args:

    Returns:
        DoctorResult: what `brinell doctor --json` prints, as `payload()`.

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
    output: str | int | None = None,
    out: File | None = None,
    progress: ProgressOption | None = None,
    train: Data | None = None,
    norm: Literal['linf', 'l2', 'l1', 'l0'] | Sequence[Literal['linf', 'l2', 'l1', 'l0']] = (),
    samples: int | Literal['all'] | None = None,
    pairs: int = 100,
    fraction: float = 0.5,
    allow: float = 0.01,
    conditions: Literal['label', 'interpolation', 'perception'] | Sequence[Literal['label', 'interpolation', 'perception']] = ('label', 'interpolation', 'perception'),
    ssim: float = 0.9,
    psnr: float = 30.0,
    evidence: Folder | Sequence[Folder] = (),
    seed: int = 0,
) -> EpsilonResult:
    """Measure distances between the samples of each class, and recommend an eps for the data, each class and each sample.

    brinell audit --eps recommended:FOLDER attacks each sample within its recommended eps. brinell review asks people which changes
    they notice.

    Args:
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        train: The training data of the model, which also provide neighbours.
        norm: A norm of the recommendation: linf, l2, l1, l0. Default: linf and l2, and the others if they take no longer than seconds.
        samples: The number of samples, or all, counted from the first. Default: all.
        pairs: The number of samples of each class that measure mean distances in Linf, L1 and L0, and perceptibility. 0 means all.
        fraction: Label constancy: eps is at most this fraction of the distance to the nearest sample of another class.
        allow: The share of samples on which a common eps of a class or of the data may break a condition.
        conditions: A condition that the recommended eps keeps: label, interpolation or perception.
        ssim: The least structural similarity (SSIM) that counts as unnoticed.
        psnr: The least peak signal-to-noise ratio in dB that counts as unnoticed.
        evidence: A folder with evidence of which changes are noticed, instead of random changes: a review by people, or an audit of the same data with stored adversarial examples.
        seed: The seed of random changes and of the subset of samples.

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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    trust: File | None = None,
    progress: ProgressOption | None = None,
    run: Folder | None = None,
    method: str | Sequence[str] = (),
    truth: File | None = None,
    region: str | None = None,
    explain: Literal['prediction', 'label'] = 'prediction',
    only: Literal['all', 'right', 'wrong'] = 'all',
    samples: int | Literal['all'] | None = None,
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
    """Compute saliency maps of inputs by several methods, and measure how good each method's maps are.

    With ground truth, the study measures how well maps match the objects. Without it, it measures how well the model follows them.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        run: A finished run folder of brinell audit, instead of data and model. Its adversarial examples are explained.
        method: A method, such as rlab or grad-cam?layer=NAME. Default: all methods that fit the model and the data.
        truth: Ground truth of the objects: masks:DIR, npz:FILE, coco:FILE, voc:DIR, spans:FILE or beat.
        region: The part of the answer that is explained, of a model of maps or boxes. With masks: class:NAME (the pixels that the model gives a class, or with explain=label those that have it) or box:X0,Y0,X1,Y1 (a rectangle in pixels). With boxes: class:NAME (the largest object of a class) or object:N (object N of each picture, from 0). The mask or the box is the ground truth.
        explain: The explained class: the predicted class or the true class.
        only: The samples: all, or those that the model classifies right or wrong.
        samples: The number of samples, or all. Default: 32, or all if there are fewer.
        select: Selection of samples: first, stratified or random. Default: first for published test sets, else stratified.
        steps: The number of steps that show and hide places to judge a map. 0 omits these measures.
        copies: The number of slightly noisy copies of each input on which every method runs again. 0 omits stability.
        randomise: Also run every method on the model with shuffled weights. A map that stays the same shows only the input.
        cascade: The number of stages that shuffle weights, from the last layers to the first. Every method runs at each stage; the last stage equals `randomise`. 0 omits the cascade.
        noise: The standard deviation of the noise of copies, as a share of the width of the bounds.
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
    progress: ProgressOption | None = None,
    eps: Eps | None = None,
    about: str | Sequence[str] = (),
) -> ExportAnswer:
    """Write metrics, tables and the report of a run for TensorBoard, MLflow or a spreadsheet, or as RobustBench entries.

    Args:
        run: A run folder, made by brinell audit.
        to: csv: metrics, rows and tables as CSV, and the report. tensorboard: event files. mlflow: a run for each model, at MLFLOW_TRACKING_URI or in --out. robustbench: a model_info file for each model. huggingface: a file for .eval_results of its repository on the hub. every-eval-ever: a record with a line for each sample and budget.
        out: where the results go. Default: a fresh folder under runs/.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        eps: The budget of the RobustBench entry, one of the run's. Default: its largest.
        about: Facts of an entry that the run cannot know, as KEY=VALUE. robustbench: name, authors, venue and link of the paper, architecture, additional_data, reported, footnote. huggingface: dataset (required), revision, task, url, source, user. every-eval-ever: organization, relationship, developer, id, availability.

    Returns:
        ExportAnswer: what `brinell export --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """

def falsify(
    query: File,
    network: File,
    *,
    timeout: float = 60.0,
    attack: str | Sequence[str] = ('apgd?loss=margin&steps=30', 'apgd?loss=margin&steps=100', 'square?steps=300&loss=margin'),
    starts: int = 16,
    bound: str = 'crown',
    answer: File = '',
    seed: int = 0,
) -> FalsifyResult:
    """Look for an input that satisfies a query in VNN-LIB on a network in ONNX, by attacks; or prove that there is none.

    Args:
        query: A query in VNN-LIB 1.0 or 2.0 about one network: bounds of each input, and linear constraints of the outputs.
        network: The network: MODEL.onnx, or NAME=MODEL.onnx with its name in the query.
        timeout: Seconds after which the search ends. With a limit of time the machine decides what is found.
        attack: Attacks in the Linf distance. They run in turn on the box of the inputs, with other random starts each time, until an input is found or the time is up. Those that need gradients are left out where the network gives none.
        starts: Starts of an attack side by side.
        bound: The method of proof that is tried first, such as crown or beta-crown?parts=200; none leaves it out.
        answer: A file for the verdict and the counterexample, in the form of the VNN competitions. Default: none.
        seed: The seed of every random number.

    Returns:
        FalsifyResult: what `brinell falsify --json` prints, as `payload()`.

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
    output: str | int | None = None,
    robust: float | None = None,
    worst_class: float | None = None,
    clean: float | None = None,
    certified: float | None = None,
    unmet: float | None = None,
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
        run: The folder, made by brinell audit, certify or smooth.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        robust: Least robust accuracy, 0 to 1, for the lower end of its interval.
        worst_class: The same for the weakest class.
        clean: The same for clean accuracy.
        certified: The same for the share of samples that is proven robust, in a folder of brinell certify or brinell smooth.
        unmet: The same for the share of inputs that do not meet a criterion of probability, in a run with --criterion.
        eps: The one budget that is judged, one of the run's. Default: its largest for thresholds, and each for a baseline.
        baseline: A run that this one must not be worse than.
        max_drop: The most that a rate may fall below the baseline's, chance or not.
        allow: The code of a check or a warning that does not fail the gate.
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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    progress: ProgressOption | None = None,
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
    precision: Literal['float32', 'tf32', 'bf16'] = 'float32',
    attack: str | Sequence[str] = ('fast',),
    budgets: Eps | None = None,
    samples: int | Literal['all'] = 200,
    seed: int = 0,
    device: Device = 'auto',
) -> HardenResult:
    """Train a model adversarially, and audit it before and after on data that the training never uses.

    By default it hardens the built-in network on real handwritten digits.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        train: The training data. Default: the training split of --data, if there is one.
        recipe: The training recipe: pgd, n-fgsm or a name that `brinell plugins defence` lists. Join recipes with +, as in pgd+distortions; they share each batch. Write settings in brackets, as in pgd(steps=5).
        norm: The distance of eps: linf or l2.
        eps: The training budget, such as 8/255. Default: the largest of the field's usual budgets for images.
        epochs: Number of passes over the training samples.
        minutes: Duration of the training in minutes; overrides epochs. Counts processor time on a CPU, wall time on a GPU.
        ramp: Fraction of the training over which eps rises from 0.
        optimizer: The optimiser.
        rate: The largest learning rate. Default: 0.005 for adamw and 0.02 for sgd. Large pretrained networks need less; networks with batch norm need more with sgd.
        weight_decay: The weight decay.
        batch_size: Samples in a training step, and the largest batch that the model evaluates.
        augment: Augmentation of training images: shifts of up to an eighth of their side with mirrored padding, or such shifts and horizontal flips of half of the images.
        clip: Largest norm of the gradient; longer gradients are scaled down to it. 0 turns clipping off.
        average: Decay of the moving average of the weights at each step. 0 keeps the last weights instead of the average.
        validation: Most training samples set aside for validation, at most a tenth of them. The best weights are selected on these samples.
        patience: Number of checks without an improvement in robust accuracy after which the training stops. Default: no early stop.
        precision: Precision of the training: float32; tf32, several times faster on GPUs; or bf16, where it is faster. Audits use float32.
        attack: The attacks of the audits, named as for brinell audit.
        budgets: The budgets of the audits, such as 0:8/255:9. Default: five from 0 to eps.
        samples: Most samples in each audit. More samples give narrower intervals and cost time in both audits.
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
    progress: ProgressOption | None = None,
    norm: Literal['linf', 'l2'] = 'linf',
    eps: Eps = '0.01,0.02,0.04,0.08,0.16,0.32',
    change: Folder = 'crafted',
    trials: int = 120,
    catch: float = 0.2,
    seed: int = 0,
    reviewer: str = '',
    port: int = 0,
) -> ReviewResult:
    """Show a person pairs of clean and changed pictures in a browser, and measure which changes are noticed.

    The command serves the pairs on this machine until all are judged. It writes each answer to disk at once.

    Args:
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        norm: The norm in which the changes are measured: linf or l2.
        eps: The sizes of the changes, in the units of the data's bounds.
        change: The kind of change: crafted (towards another class), noise, or run:FOLDER of an audit.
        trials: The number of pairs.
        catch: The share of pairs without a change.
        seed: The seed of every random number.
        reviewer: The name of the person who answers. Each person judges all pairs.
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

def smooth(
    model: AnyModel | None = None,
    data: Data | None = None,
    y: Labels | None = None,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    norm: Literal['l2', 'linf'] = 'l2',
    sigma: float = 0.25,
    draws: int = 10000,
    first: int = 100,
    alpha: float = 0.001,
    eps: Eps | None = None,
    samples: int | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 1000,
    device: Device = 'auto',
) -> SmoothResult:
    """Prove robustness in L2 of the smoothed model, which answers the class that is most frequent under Gaussian noise.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        norm: The distance: smoothing proves L2 alone, and linf is refused.
        sigma: Standard deviation of the noise, in the units of the data. Larger noise allows larger radii and costs accuracy.
        draws: Noisy inputs by which the share of the class is bounded. More draws allow larger radii: at most 2.46, 3.20 and 3.81 times sigma for 1,000, 10,000 and 100,000 at alpha 0.001.
        first: Other noisy inputs, by which the class is chosen.
        alpha: Largest probability that a radius is too large, for each sample.
        eps: Radii in L2, such as 0:1:5. Default: five from 0 to the largest that the draws allow.
        samples: The number of samples. Default: 100, or all where there are fewer.
        select: How samples are selected: first, stratified or random.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

    Returns:
        SmoothResult: what `brinell smooth --json` prints, as `payload()`.

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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    progress: ProgressOption | None = None,
    surrogate: str | Sequence[str] = (),
    norm: Norm = 'linf',
    eps: Eps | None = None,
    attack: str | Sequence[str] = ('fast',),
    targeted: str | None = None,
    reject_class: str | None = None,
    criterion: str | None = None,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    queries: int | None = None,
    precision: Literal['float32', 'tf32'] = 'float32',
    fresh: int | None = None,
    device: Device = 'auto',
    at: Eps | None = None,
    published: Folder | None = None,
    draws: int = 2000,
) -> StudyResult:
    """Compare any number of models class by class: stages, drops, places with intervals, and what goes with robustness.

    The models are those of runs that are there, or are audited first. Without options: four networks for digits.

    Args:
        run: Run folders of brinell audit on the same data; the study compares every model in them. Default: none, the study audits the models first.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        surrogate: A network of the same task, named like --model, whose gradients attacks follow: rlab, which learns from the answers of the model how far to trust it, and those of fast as well. It has the same classes. Several are named by repeating it.
        norm: The distance in which eps is measured: linf, l2, l1, l0, or embedding:FILE.
        eps: The budgets: 8/255, a list 1/255,2/255, or from:to:points as in 0:8/255:9; recommended, or recommended:FOLDER of brinell epsilon, gives each sample its own. Default: the field's usual budgets for images.
        attack: A cascade, fast, standard (also autoattack), slides, plus, rand or black-box; or an attack, such as apgd-ce or pgd?steps=50&restarts=3. They run in the order given, each on the samples that are still robust.
        targeted: The class that the attacks aim at: a class by name or number, least-likely, or random. Samples of that class are left out. Default: untargeted, any wrong class counts.
        reject_class: The class by which the model rejects inputs: a name, a number, or last. A rejected input is not an adversarial example, and a rejected clean input is not correct. Default: no reject class, so every class except the true one counts.
        criterion: A threshold on a probability in place of misclassification: "true<0.1" (the class is wrong, and the true one has less than 0.1) or "class=cat>0.9" (inputs of other classes with more than 0.9 for cat). The run then states the share of inputs that do not meet it, which is not robust accuracy. Default: misclassification.
        samples: The number of samples, or all. Default: 1000, or all where there are fewer.
        select: The selection of samples: first, stratified (drawn by class) or random. Default: first for published test sets (mnist, cifar10, bench, digits), stratified for all other data.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        queries: The forward evaluations that each attack may spend on a sample at each eps. Default: no limit.
        precision: The precision of the gradients: float32, or tf32, several times faster on GPUs. Every success is judged in float32.
        fresh: For a model that counts, remembers or adapts: every question is answered by a copy of the model that has answered no other, and N inputs that the attacks reached are judged once more, each by a copy of its own. Default: one model answers all.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.
        at: The budget at which models and classes are compared; all runs must have it. Default: the largest shared budget at which they keep a tenth of their clean accuracy on average.
        published: A folder of RobustBench's model_info files, such as model_info/cifar10/Linf. Its entries with the study's budget appear as reference marks.
        draws: Number of shuffles behind the p-values of the spread of the classes and of their agreement.

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
    output: str | int | None = None,
    out: File,
    resume: bool = False,
    progress: ProgressOption | None = None,
    attack: str = 'rlab',
    norm: Norm = 'l2',
    eps: Eps = '1',
    criterion: str | None = None,
    samples: int | Literal['all'] = 1000,
    algorithm: Literal['dqn', 'none'] = 'dqn',
    reward: Literal['margin', 'dilution', 'projected'] = 'margin',
    minutes: float = 10.0,
    steps: int | None = None,
    episode_steps: int = 300,
    probes: int = 16,
    fits: int = 800,
    surrogates: int = 3,
    surrogate_steps: int = 400,
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
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        attack: The attack that the agent is for, with its distortions and patches: rlab?distortions=gaussian-noise+fog&patch=4.
        norm: The distance in which eps is measured: l2 or linf.
        eps: The budget of the episodes, such as 1 or 8/255.
        criterion: The criterion of success for masks and boxes, as for brinell dense, such as pixels:0.5 or missed:0.5. Default: half of the pixels are wrong, or half of the objects are missed.
        samples: The most inputs, counted from the first; those that the model gets wrong, or that meet the criterion, are left out.
        algorithm: The learning algorithm: dqn, a dueling double DQN; none fits the prior alone.
        reward: Reward of a step: margin, dilution or projected.
        minutes: The wall time of the training, after the probes.
        steps: The steps of the training, in place of minutes: such a training is repeatable.
        episode_steps: The queries after which an episode is given up.
        probes: The random distortions of each input to which the prior is fitted; 0 leaves the prior as it is.
        fits: The gradient steps on the prior.
        surrogates: Small networks that are trained on the labelled data; those whose gradients explain the model's answers are kept in the file as surrogates. 0 trains none, and data with masks or boxes, which label no input, train none.
        surrogate_steps: The training steps of each of them.
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
    progress: ProgressOption | None = None,
    samples: int | Literal['all'] | None = None,
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
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        out: where the results go. Default: a fresh folder under runs/.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
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
    progress: ProgressOption | None = None,
    test: Data | None = None,
    samples: int | Literal['all'] = 20000,
    margin: float = 0.2,
    steps: int = 1500,
    batch_size: int = 128,
    rate: float = 0.002,
    neighbours: int = 5,
    seed: int = 0,
) -> MetricResult:
    """Train a triplet network on the data, and measure how well its distances separate classes beside those between pixels.

    Args:
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        out: where the results go. Default: a fresh folder under runs/.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: ProgressOption | None = None,
    norm: Norm = 'linf',
    eps: Eps | None = None,
    attack: str = 'mi-fgsm',
    criterion: str | None = None,
    samples: int | Literal['all'] | None = None,
    select: Literal['first', 'stratified', 'random'] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    device: Device = 'auto',
) -> TransferResult:
    """Measure how adversarial examples transfer between models: examples made now, or read from runs or benchmark sets.

    Without options it compares four networks for digits: one, the same retrained, a narrower and a wider one.

    Args:
        source: A source of adversarial examples: the folder of a benchmark set, the folder of a run, or the name of a model among those of --model, which is attacked. Names joined by + are attacked as one model, by the mean of their logits. Default: each model.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        norm: The distance in which eps is measured: linf, l2, l1 or l0.
        eps: The budget of the examples, both those made now and those read from runs. Default: the largest budget that is usual in the field.
        attack: The attack that makes examples, for example mi-fgsm?diverse=0.5&kernel=3 or apgd-ce. It runs all its steps on each sample.
        criterion: A threshold on a probability in place of misclassification, as for brinell audit: "true<0.1" or "class=cat>0.9". Success then means that the example meets it. Default: misclassification.
        samples: The number of samples, or all. Default: 1000, or all if there are fewer.
        select: The selection of samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test sets, and stratified for all other data.
        seed: The seed of every random number.
        batch_size: The most inputs shown to the model at once.
        device: The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.

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
    output: str | int | None = None,
    out: File | None = None,
    resume: bool = False,
    progress: ProgressOption | None = None,
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
    """Search a generator's latent space for inputs of an intended class that the model misclassifies, without a norm ball.

    The records contain who still sees the intended class and the distance of each input to the training data.

    Args:
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        out: where the results go. Default: a fresh folder under runs/.
        resume: whether to go on with a folder that holds part of this.
        progress: True shows progress, False hides it, an object receives it. Default: shown at a terminal and in a notebook.
        judge: A judge: a further model that predicts the class of each input and is never attacked.
        generator: A generator file, written by brinell train-generator.
        per_class: Number of attempts for each intended class.
        noise: Largest change of a value by added noise, in the units of the data. 0 leaves out the variant with noise.
        towards: The target class, by name or number. Default: untargeted.
        steps: Most gradient steps of a search.
        rate: The size of a step, in standard deviations of the latent.
        radius: Change of a latent value that costs no penalty.
        hold: Weight of the penalty on latents beyond the radius.
        keep: Weight of the auxiliary classifier's loss.
        sure: Least probability that the auxiliary classifier must give the intended class.
        seed: The seed of every random number.
        batch_size: The largest batch that a model evaluates.
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
    output: str | int | None = None,
    trust: File | None = None,
    digest: str | Sequence[str] = (),
    attack: str | Sequence[str] = (),
    replay: int | None = None,
    signed_by: File | None = None,
) -> VerifyResult:
    """Recompute the claims of a run: rows, classes, adversarial inputs, costs, checks, tables, and some of its robust samples.

    If the run was made elsewhere, its models and data are not opened unless you name or trust them. Only its files are checked.

    Args:
        run: A run folder that brinell audit made, or the folder or the file of another study.
        model: an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.
        data: inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face or by MAITE's protocol; what `brinell.data` makes; or a spec such as `npz:FILE`.
        y: the labels (n,), where `data` are the inputs alone.
        preprocessing: `{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.
        mean: subtracted before the model: a number, or one for each channel.
        std: divided by before the model, like `mean`.
        answers: what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), labels, or for two classes one logit or probability. Default: by what it answers to clean samples.
        output: the part of a model's answer that holds the logits, if it has several: a name or a place, such as `logits` or 0. Default: the only part that fits.
        trust: a folder from elsewhere whose models, data and code may be used as it names them.
        digest: A digest of the data or of a model that you know from elsewhere. Without it, and without --model and --data, they are the claim of whoever made RUN.
        attack: An attack file that RUN names and that you allow to run, written as RUN names it.
        replay: Samples of each model to compute again from the start. Default: 8, or 5 % if that is more.
        signed_by: A file of allowed signers, or of public SSH keys: a run that none of them has signed is refused.

    Returns:
        VerifyResult: what `brinell verify --json` prints, as `payload()`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
