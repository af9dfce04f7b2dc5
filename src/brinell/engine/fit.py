"""Fit of a model and data, before anything is attacked: in which form is the model right?

On up to 200 real samples the forms in which people hand inputs and labels to models are tried
together (`engine.forms`). Few samples sort out most forms, more decide among the best. A form is
better if the model is right on more samples and a paired exact test says so, corrected for the
forms tried: of right and wrong answers, or of losses, each form with its own temperature, so that
the size of the logits decides nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.checks import ERROR_RATE, TOO_FEW, Code, Finding, exact_test
from brinell.core.class_names import NEVER, option_text
from brinell.core.data import Dataset
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.model import Model, ask
from brinell.core.record import Array
from brinell.engine.answers import with_logits
from brinell.engine.forms import (
    LOOKS,
    MIXED,
    Affine,
    InputForm,
    forms_of,
    holds_pictures,
    mixes,
    preparation_of,
)
from brinell.engine.plan import model_opener

FIRST_LOOK = 32
"""Samples after which nothing more is asked of a model that is right on nearly all of them."""
SAMPLES = 200
"""Most samples on which forms are tried, spread over the classes."""
ROUNDS = ((8, 24), (16, 8), (32, 5), (64, 3))
"""Samples of a round, and the forms that go on; the last are asked on all samples."""
TELLING = 16
"""Samples from which it shows that no form is right, and which families lead."""
JOINT_SAMPLES, JOINT_KEPT = 40, 3
"""Samples of each form where the order of the classes is not known either, and the forms that go
on."""
CLEARLY_RIGHT = 0.98
"""Share of right answers from which no form can be much better."""
LEAST_RATE = 0.4
"""Least accuracy in another form at which it is named; below it, more forms are tried."""
LEAST_GAIN, CLEAR_GAIN = 0.02, 0.05
"""Least gain of accuracy for which the check fails: where right and wrong answers say so, and where
losses alone do. Sound models have a smaller loss in some other form, and a few more right answers."""
SURE = 0.1
"""Loss below which a smaller one says little more about a form."""
DOUBT = 0.05
"""Probability from which two forms count as equally good."""
TEMPERATURES = torch.logspace(-2, 3, 31)
"""Factors on logits of mean size 1, of which each form takes the best."""
MOST_LISTED = 4
MOST_TITLE_WORDS = 9
"""Most words of a form's title that a verdict has room for."""
NO_FORM = ": the labels do not belong to the inputs, or the model does not know these classes"
SHIFTS = (
    (1, "with the label minus 1", "take 1 from the labels (y - 1)"),
    (-1, "with the label plus 1", "add 1 to the labels (y + 1)"),
)
"""Numbers added to answers, in words, and the line that mends the labels."""


@dataclass(frozen=True)
class Reading:
    """A way to read the answers of a model: the class of the data that each stands for."""

    title: str = ""
    line: str = ""
    shift: int = 0
    """The number added to an answer to get the class of the data."""
    order: tuple[tuple[int, int], ...] = ()
    """Pairs of an answer and the class of the data that it stands for; empty for all others."""

    def classes_of(self, answers: Array) -> Array:
        """(n,) classes of the data for answers, NEVER for those that stand for none."""
        if not self.order:
            return np.where(answers == NEVER, NEVER, answers + self.shift)
        classes = dict(self.order)
        return np.array([classes.get(answer, NEVER) for answer in answers.tolist()], dtype=int)

    def targets(self, labels: Array) -> Array:
        """(n,) answers that are right, NEVER where none is."""
        if not self.order:
            return labels - self.shift
        answers = {label: answer for answer, label in self.order}
        return np.array([answers.get(label, NEVER) for label in labels.tolist()], dtype=int)


PLAIN = Reading()


@dataclass(frozen=True)
class Trial:
    """The answers of a model to samples in one form."""

    form: InputForm
    reading: Reading
    pred: Array
    """(m,) classes of the data; NEVER where the model fails, or answers none of them."""
    correct: Array
    """(m,) bool: the right ones."""
    loss: Array
    """(m,) losses at the form's best temperature."""

    @property
    def right(self) -> int:
        """Number of right answers."""
        return int(self.correct.sum())

    @property
    def score(self) -> float:
        """The loss by which forms are sorted, the best first."""
        return (float(self.loss.mean()) + SURE) * self.form.factor

    @property
    def title(self) -> str:
        """The form in words."""
        inputs = f"with inputs {self.form.title}" if self.form.steps else ""
        return " and ".join(filter(None, (inputs, self.reading.title))) or "as given"


@dataclass(frozen=True)
class Fit:
    """The result of a search through the forms of inputs and answers."""

    base: Trial
    best: Sequence[Trial]
    """The forms in which the model is better, the best first, with one that is as good;
    empty without any."""
    p: float
    """P-value of the best form's gain, corrected for both tests and all forms; 1 without one."""
    trials: Sequence[Trial]
    """The forms that were tried on all samples, the given one included."""
    forms: int
    """Number of forms tried."""
    forwards: int

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.base.pred)

    @property
    def is_better(self) -> bool:
        """True if the best is better beyond chance; False if it only may be."""
        return self.p <= ERROR_RATE

    def as_good(self) -> list[Trial]:
        """The other forms that are as good as the given one; none if another is better."""
        # Half of the gain that counts, or one sample, makes no difference; the first trial is the
        # given form.
        least = self.base.right - max(1, LEAST_GAIN * self.n / 2)
        return [trial for trial in self.trials[1:] if not self.best and trial.right >= least]


def spread_over_classes(labels: Array, most: int = SAMPLES) -> Array:
    """Positions of samples, as many of each class as far as it has them, the classes in turn."""
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    # The samples of a class lie together in `order`: how many of it come before each.
    turn = np.arange(len(labels)) - np.repeat(starts, sizes)
    return np.asarray(order[np.argsort(turn, kind="stable")[:most]])


def chance(pred: Array, labels: Array, classes: int) -> float:
    """Expected accuracy of answers independent of the inputs; 1 / classes if all labels are of one
    class.
    """
    if len(np.unique(labels)) < 2:
        return 1 / classes
    # Answers that stand for no class, NEVER, are counted with class 0.
    count = int(max(pred.max(), labels.max())) + 1
    predicted, true = (
        np.bincount(values.clip(0), minlength=count) / len(values) for values in (pred, labels)
    )
    return float(predicted @ true)


def paired_test(wins: int, defeats: int) -> float:
    """Probability that of so many unequal pairs this many or more are better by chance (McNemar
    1947, exact).
    """
    n = wins + defeats
    return float(sum(math.comb(n, k) for k in range(wins, n + 1)) / 2**n)


class FormSearch:
    """Tries a model in many forms.

    Args:
        model: the model, with logits as answers.
        x: (n, *shape) real inputs, in the bounds of the model's domain.
        labels: (n,) their classes.
        classes: names of the classes of the data.
        batch_size: inputs asked at once.
    """

    def __init__(
        self,
        model: Model,
        x: Tensor,
        labels: Array,
        classes: Sequence[str] = (),
        batch_size: int = 128,
    ) -> None:
        self.model, self.x, self.labels = model, x, labels
        self.classes, self.batch_size = classes, batch_size
        self.forwards, self.forms = 0, 0
        self.alternatives: list[Trial] = []
        """Answers of other models of the same file, in the given form."""
        self._logits: dict[InputForm, Tensor] = {}
        """Answers to the first samples so far, by form."""

    def run(self) -> Fit:
        """Try forms until the model is clearly right, or none is left."""
        n = len(self.x)
        trials = [self.base()]
        if trials[0].right >= CLEARLY_RIGHT * n:
            return self._judge(trials)

        cheap, dear = forms_of(self.model.domain, self.x, self._own_preparation())
        trials += self._sort_out(cheap)
        trials += self._read(trials)
        if _most(trials) < LEAST_RATE * n:
            trials += self._read(self._sort_by_order(cheap))
        if _most(trials) < LEAST_RATE * n:
            trials += self._sort_out(dear)

        # Half a cure is not the end: inputs are tried again under what mends the rest, the layout
        # (the first step of a form that is more than a preparation) and the reading of answers.
        best = max(trials, key=lambda trial: trial.right)
        layout = best.form.steps[:1] if best.form.affine is None or best.form.is_moved else ()
        if layout or best.reading != PLAIN:
            # What a network was trained on is mostly of one family.
            further = [form.after(layout) for form in cheap if not layout or form.is_common]
            trials += self._sort_out(further, best.reading)
        self.forms += len(self.alternatives)
        return self._judge([*trials, *self.alternatives])

    def base(self) -> Trial:
        """The answers in the form that was given."""
        return self._trial(InputForm(), len(self.x))

    def _judge(self, trials: Sequence[Trial]) -> Fit:
        """Name the best form, if it is better, and one that is as good."""
        n, base = len(self.x), trials[0]
        candidates = [trial for trial in trials[1:] if self._may_be_better(base, trial)]
        most_right = max((trial.right for trial in candidates), default=0)
        # Among forms that are right nearly as often, the loss decides.
        close = max(1, LEAST_GAIN * n / 2)
        candidates = [trial for trial in candidates if trial.right >= most_right - close]
        candidates.sort(key=lambda trial: trial.score)

        p = 1.0
        if candidates:
            best = candidates[0]
            p = self._corrected(base, best)
            alike = [trial for trial in candidates[1:] if self._is_alike(best, trial)]
            # A mixed form is named only where it is the best, never as the other one.
            candidates = [best, *(trial for trial in alike if trial.form.factor < MIXED)][:2]
        return Fit(base, candidates, p, trials, self.forms, self.forwards)

    def _corrected(self, base: Trial, trial: Trial) -> float:
        """The p-value of a form, corrected for both tests and all forms; 1 for too small a gain."""
        gain = (trial.right - base.right) / len(self.x)
        tests = zip(self._probabilities(base, trial), (LEAST_GAIN, CLEAR_GAIN), strict=True)
        smallest = min((p for p, least in tests if gain >= least), default=1.0)
        return min(1.0, 2 * max(1, self.forms) * smallest)

    def _may_be_better(self, base: Trial, trial: Trial) -> bool:
        """True if a form shows more than chance, and is better, if not yet beyond all doubt."""
        # Half of the gain by which the check fails, and a weaker test, which is of two: the form is
        # only a candidate here.
        n, gain = len(self.x), trial.right - base.right
        interval = wilson(trial.right, n)
        limit = chance(trial.pred, self.labels, self.model.classes)
        if gain < max(2, 0.5 * LEAST_GAIN * n) or interval is None or interval.low <= limit:
            return False
        probability = 2 * min(self._probabilities(base, trial))
        return trial.right >= LEAST_RATE * n and probability <= DOUBT / 2

    def _probabilities(self, base: Trial, trial: Trial) -> tuple[float, float]:
        """Probabilities that a form looks so much better than another by chance: by its right answers,
        and by its losses.
        """
        is_right, was_right = trial.correct, base.correct
        wins, defeats = is_right & ~was_right, was_right & ~is_right
        by_answers = paired_test(int(wins.sum()), int(defeats.sum()))
        # An order of classes is fitted to the labels, so that its losses are no evidence.
        if trial.reading.order:
            return by_answers, 1.0
        gain = base.loss - trial.loss
        return by_answers, paired_test(int((gain > 0).sum()), int((gain < 0).sum()))

    def _is_alike(self, best: Trial, trial: Trial) -> bool:
        """True if no test tells which of two forms is better, or both leave next to no loss."""
        excess = trial.loss - best.loss
        if max(best.loss.mean(), trial.loss.mean()) < SURE / 5:
            return True
        return paired_test(int((excess > 0).sum()), int((excess < 0).sum())) > DOUBT

    def _own_preparation(self) -> Affine | None:
        """The model's own preparation of pictures, if it can be read."""
        domain = self.model.domain
        if not holds_pictures(domain):
            return None
        x = self.x[:LOOKS]
        self.forwards += len(x)
        low, high = domain.bounds(x)
        return preparation_of(self.model, (x - low) / (high - low), x)

    def _ask(self, form: InputForm, start: int, stop: int) -> Tensor:
        """(stop - start, classes) logits in a form; NaN where the model fails."""
        x = form.apply(self.x[start:stop])
        self.forwards += len(x)
        try:
            with torch.no_grad():
                parts = [ask(self.model, part) for part in torch.split(x, self.batch_size)]
            logits = torch.cat(parts)
        except ModelError:
            logits = x.new_full((len(x), self.model.classes), torch.nan)
        return logits.cpu().float()

    def _trial(self, form: InputForm, count: int, reading: Reading = PLAIN) -> Trial:
        """The trial of a form on the first samples."""
        stored = self._logits.get(form)
        start = 0 if stored is None else len(stored)
        if start < count:
            parts = [stored] if stored is not None else []
            self._logits[form] = torch.cat([*parts, self._ask(form, start, count)])
        logits, labels = self._logits[form][:count], self.labels[:count]

        targets = reading.targets(labels)
        answers = logits.argmax(1).numpy()
        answers[~torch.isfinite(logits).all(1).numpy()] = NEVER
        pred = reading.classes_of(answers)
        if reading.order and count == len(self.labels):
            # Each half is judged by the order of the other.
            pred = _in_order(answers, labels)[1]
        return Trial(form, reading, pred, pred == labels, losses(logits, targets))

    def _sort_out(self, forms: Sequence[InputForm], reading: Reading = PLAIN) -> list[Trial]:
        """The best forms, asked on all samples; each round asks more of fewer forms.

        None is left if the first round shows that none is right on more than a few.
        """
        self.forms += len(forms)
        n, trials = len(self.x), list[Trial]()
        pool = [form for form in forms if form.factor < MIXED]
        mixed = [form for form in forms if form.factor == MIXED]
        # What the rounds leave is asked on all samples, and kept.
        for count, most in (*ROUNDS, (n, len(forms))):
            trials = [self._trial(form, min(count, n), reading) for form in pool]
            trials = sorted(trials, key=lambda trial: trial.score)[:most]
            if TELLING <= count < n and _most(trials) < LEAST_RATE / 2 * count:
                return []
            # Means and deviations of two families are mixed where both lead, once it shows.
            pool = [trial.form for trial in trials]
            mixtures = [form for form in mixed if mixes(form, pool[:2])]
            pool += mixtures if count == TELLING else []
        return trials

    def _sort_by_order(self, forms: Sequence[InputForm]) -> list[Trial]:
        """The forms in which answers follow the labels best, whatever class each stands for."""
        count = min(JOINT_SAMPLES, len(self.x))
        trials = [self._trial(form, count) for form in forms if form.factor < MIXED]
        labels = self.labels[:count]
        trials.sort(key=lambda trial: -(_in_order(trial.pred, labels)[1] == labels).sum())
        return [self._trial(trial.form, len(self.x)) for trial in trials[:JOINT_KEPT]]

    def _read(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials with their answers read otherwise: shifted, or in another order."""
        readings = list[Trial]()
        for trial in trials:
            for reading in self._readings(trial.pred):
                self.forms += 1
                readings.append(self._trial(trial.form, len(self.x), reading))
        return readings

    def _readings(self, pred: Array) -> list[Reading]:
        """Other readings of answers: shifted, or in the order that fits best."""
        labels, readings = self.labels, list[Reading]()
        for shift, title, line in SHIFTS:
            # Of two classes a shift leaves only one; and no answer is negative.
            if labels.max() > 1 and labels.min() >= shift:
                readings.append(Reading(title, line, shift))
        # An order in which all classes move alike is a shift, or none.
        order, _, is_settled = _in_order(pred, labels)
        if len({label - answer for answer, label in order.items()}) > 1:
            title, line = self._order_text(order, is_settled)
            readings.append(Reading(title, line, order=tuple(order.items())))
        return readings

    def _order_text(self, order: dict[int, int], is_settled: bool) -> tuple[str, str]:
        """Title and line of answers in another order of the classes."""
        count = int(self.labels.max()) + 1
        names = [*self.classes, *map(str, range(len(self.classes), count))]
        swaps = [
            f"{answer} is {names[label]}"
            for answer, label in sorted(order.items())
            if answer != label
        ]
        listing = ", ".join(swaps[:MOST_LISTED])
        if len(swaps) > MOST_LISTED:
            listing += f" and {len(swaps) - MOST_LISTED} more"

        is_whole = is_settled and sorted(order) == list(range(self.model.classes))
        option = option_text([names[order[answer]] for answer in sorted(order)]) if is_whole else ""
        fallback = "class_names=, as it is documented where the model comes from"
        line = f"name the model's classes by its option {option or fallback}"
        return f"with its classes in another order ({listing})", line


def _most(trials: Sequence[Trial]) -> int:
    """The most right answers of a form."""
    return max((trial.right for trial in trials), default=0)


def losses(logits: Tensor, targets: Array) -> Array:
    """(m,) losses of logits (m, classes) at the temperature that fits them best.

    Targets outside of the classes, and answers that are not finite, cost as much as a guess.
    """
    m, classes = logits.shape
    guess = math.log(max(2, classes))
    valid = torch.from_numpy((targets >= 0) & (targets < classes)) & torch.isfinite(logits).all(1)
    if not bool(valid.any()):
        return np.full(m, guess)

    centred = logits[valid] - logits[valid].mean(1, keepdim=True)
    unit = centred / centred.abs().mean().clamp_min(1e-12)
    right_answers = torch.from_numpy(targets)[valid].long()
    # Losses of all answers at each temperature; the one with the least mean counts.
    scaled = TEMPERATURES[:, None, None] * unit
    table = F.cross_entropy(
        scaled.flatten(0, 1), right_answers.repeat(len(scaled)), reduction="none"
    ).reshape(len(scaled), -1)

    loss = np.full(m, guess)
    loss[valid.numpy()] = table[table.mean(1).argmin()].numpy()
    return loss


def _in_order(pred: Array, labels: Array) -> tuple[dict[int, int], Array, bool]:
    """The order of classes by which answers fit labels best, the classes that they then stand for,
    and whether both halves of the samples give this order.

    Each half is judged by the order that fits the other, so that none is made up.
    """
    rows = np.lexsort((np.arange(len(labels)), labels))
    # Every second sample of each class.
    halves = rows[::2], rows[1::2]
    orders = [_match(pred[half], labels[half]) for half in halves]
    mended = np.empty(len(labels), dtype=np.int64)
    for half, order in zip(halves, reversed(orders), strict=True):
        mended[half] = [order.get(answer, NEVER) for answer in pred[half].tolist()]
    order = _match(pred, labels)
    return order, mended, all(half_order == order for half_order in orders)


def _match(pred: Array, labels: Array) -> dict[int, int]:
    """Answers matched to labels one to one, greedily by the frequency of the pairs."""
    pairs, counts = np.unique(np.stack([pred, labels]), axis=1, return_counts=True)
    order: dict[int, int] = {}
    for row in np.argsort(-counts, kind="stable"):
        answer, label = int(pairs[0, row]), int(pairs[1, row])
        if answer not in order and answer != NEVER and label not in order.values():
            order[answer] = label
    return order


# The check


def line_of(trial: Trial, model: Model, spec: str) -> str:
    """The line that gives a model the form of a trial."""
    form, lines = trial.form, list[str]()
    if form.steps:
        # Options of a model prepare pictures, but neither move values nor replace the preparation
        # that the model makes itself: for these there is only code.
        affine = None if form.is_moved or form.preparation is not None else form.affine
        options = "" if affine is None else _options(affine, model, spec)
        own = f"its own x = {form.preparation.code}" if form.preparation else ""
        if own and form.line == "x = x":  # the form is the inputs as they are
            lines.append(f"leave {own} out of the model")
        else:
            place = f" in place of {own}" if own else ""
            lines.append(options or f"let the model begin with {form.line}{place}")
    if trial.reading.line:
        lines.append(trial.reading.line)
    return "; and ".join(lines)


def _options(affine: Affine, model: Model, spec: str) -> str:
    """The options of a model that prepare pictures; empty for a model that has none."""
    numbers = {
        name: [float(f"{value:.6g}") for value in values]
        for name, values in (("mean", affine.centre), ("std", affine.width))
    }
    if spec.startswith("onnx:"):
        parts = [f"{key}={'+'.join(f'{v:g}' for v in values)}" for key, values in numbers.items()]
        parts += ["bgr=true"] if affine.reverse else []
        return f"write {'&'.join(parts)} in the model's options"
    # Other specs have no such options; an object has those of the call from Python, with the axis
    # of channels counted from the end.
    if spec:
        return ""
    texts = {key: values if len(values) > 1 else values[0] for key, values in numbers.items()}
    axis = -len(model.domain.shape)
    if affine.reverse:
        return f"give preprocessing={texts | {'axis': axis, 'flip_axis': axis}}"
    return f"give mean={texts['mean']}, std={texts['std']}"


def check_clean_accuracy(
    model: Model,
    pred: Array,
    labels: Array,
    load: Callable[[Array], Tensor],
    *,
    spec: str = "",
    classes: Sequence[str] = (),
    batch_size: int = 128,
    expect: float | None = None,
) -> tuple[Finding, int]:
    """Check clean accuracy; return the finding and the number of forwards.

    `pred` (n,) are the classes predicted for the clean inputs; `load` maps positions (m,) among
    them to inputs (m, *shape) on the model's device; `expect` is the accuracy that the author of
    the model states.
    """
    index = spread_over_classes(labels)
    fit: Fit | None = None
    is_random = False
    if (pred == labels)[index].mean() < CLEARLY_RIGHT:
        fit = FormSearch(model, load(index), labels[index], classes, batch_size).run()
        # The search asks again in the given form: another answer does not depend on forms.
        is_random = (fit.base.pred != pred[index]).mean() > LEAST_GAIN
    finding = judge(model, pred, labels, fit, spec=spec, expect=expect, is_random=is_random)
    return finding, 0 if fit is None else fit.forwards


def check_fit(
    model: Model,
    dataset: Dataset,
    ids: Array,
    labels: Array,
    device: torch.device,
    *,
    spec: str = "",
    batch_size: int = 128,
    expect: float | None = None,
) -> tuple[Finding | None, int]:
    """Check clean accuracy on some of the samples `ids` (n,) of data, whose classes are `labels`;
    return the finding, None where a first look shows that the model is right, and the number of
    forwards.

    The answers of the model are logits.
    """
    index = spread_over_classes(labels)

    def form_search(rows: Array) -> FormSearch:
        x = dataset.load(ids[rows].tolist()).to(device)
        search = FormSearch(model, x, labels[rows], dataset.classes, batch_size)
        search.alternatives = other_models(search, dataset, spec) if len(rows) > FIRST_LOOK else []
        return search

    first = form_search(index[:FIRST_LOOK])
    base = first.base()
    if expect is None and base.right >= CLEARLY_RIGHT * len(base.pred):
        return None, first.forwards
    fit = form_search(index).run()
    pred = fit.base.pred
    is_random = (pred[: len(base.pred)] != base.pred).mean() > LEAST_GAIN
    finding = judge(
        model, pred, labels[index], fit, spec=spec, expect=expect, is_random=bool(is_random)
    )
    return finding, first.forwards + fit.forwards


def fit_data(
    model: Model,
    dataset: Dataset,
    device: torch.device,
    *,
    spec: str = "",
    batch_size: int = 128,
    expect: float | None = None,
) -> tuple[Fit, Finding]:
    """Try a model on samples of data in all forms; return what they show, and the check."""
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    ids = spread_over_classes(labels)
    with model.info.session(device):
        ready = with_logits(model, dataset, manifest={}, device=device)
        x = dataset.load(ids.tolist()).to(device)
        search = FormSearch(ready, x, labels[ids], dataset.classes, batch_size)
        search.alternatives = other_models(search, dataset, spec)
        fit = search.run()
    return fit, judge(ready, fit.base.pred, labels[ids], fit, spec=spec, expect=expect)


def other_models(search: FormSearch, dataset: Dataset, spec: str) -> list[Trial]:
    """The answers of the other models in the file that a spec names to the samples of a search."""
    trials, device = list[Trial](), search.x.device
    for option in search.model.info.alternatives if spec else ():
        model = model_opener(f"{spec}{'&' if '?' in spec else '?'}{option}", dataset)()
        with model.info.session(device):
            # The model is only tried: the kind of its answers goes into no manifest.
            ready = with_logits(model, dataset, manifest={}, device=device)
            trial_search = FormSearch(ready, search.x, search.labels, batch_size=search.batch_size)
            reading = Reading(f"with {option}", f"add &{option} to the model")
            # Another model is asked in the given form alone: forms are tried on the first.
            trials.append(replace(trial_search.base(), reading=reading))
        search.forwards += trial_search.forwards
    return trials


def judge(
    model: Model,
    pred: Array,
    labels: Array,
    fit: Fit | None,
    *,
    spec: str = "",
    expect: float | None = None,
    is_random: bool = False,
) -> Finding:
    """The check of clean accuracy, given what the forms show; None for a model that is right.

    The inputs that drown the noise of a random model are no better form, so none is named for it.
    """
    n, k, limit = len(labels), int((pred == labels).sum()), chance(pred, labels, model.classes)
    low, _ = wilson(k, n) or (0.0, 1.0)
    # Low is an accuracy below half of the way from chance to always right, by an exact test of the
    # wrong answers.
    is_low, error_rate = exact_test(n - k, n, (1 - limit) / 2)
    forms = []
    if fit is not None and not is_random:
        forms = [describe(fit, trial, n, line_of(trial, model, spec)) for trial in fit.best]
    faults = _faults(pred, labels, limit, is_chance=low <= limit and is_low)
    faults += _excluded(k, n, expect, fit)
    named = forms if faults or (fit is not None and fit.is_better) else []
    cause = _cause(faults, fit if named else None)
    # A fault that no form explains.
    if len(faults) == 1 and not named and low <= limit:
        faults[0] += NO_FORM

    summary = f"right on {k} of {n} clean inputs"
    passed: bool | None = True
    reason: str | None = None
    text = f"{summary}, and chance is {limit:.3f}"
    if cause is not None:
        complaints = filter(None, ("; or ".join(faults), "; or ".join(named)))
        passed, text = False, f"{summary}: {'; but '.join(complaints)}"
    elif forms:
        passed, reason = None, "more right answers in another form may be chance"
        text = f"{summary}; {TOO_FEW}, since {reason}: {'; or '.join(forms)}"
    elif low <= limit:
        passed, reason, text = None, TOO_FEW, f"{TOO_FEW}: {text}"
    elif is_random:
        text += "; asked again, in other batches, it answers otherwise, so no other form was judged"
    elif is_low and fit is not None:
        text += f"; that is low, and no other of {fit.forms} forms is shown to be right more often"
    return Finding(
        code=Code.CLEAN,
        passed=passed,
        text=text,
        cause=cause,
        reason=reason,
        figure=k / n,
        limit=limit,
        error_rate=error_rate,
    )


def _allows(k: int, n: int, expect: float) -> bool:
    """True if `k` right answers of `n` may come from a model of this accuracy."""
    interval = wilson(k, n, 1 - ERROR_RATE)
    return interval is None or interval.low <= expect <= interval.high


def _excluded(k: int, n: int, expect: float | None, fit: Fit | None) -> list[str]:
    """The fault of a clean accuracy that is not the one stated; empty without any."""
    if expect is None or _allows(k, n, expect):
        return []
    side = "less" if k / n < expect else "more"
    points = 100 * abs(k / n - expect)
    text = f"{100 * k / n:.1f} % is {points:.1f} points {side} than the {100 * expect:.1f} % stated"
    # Better forms are named behind it, with the figures that they reach.
    trials = [] if fit is None or fit.best else fit.trials
    near = [trial.title for trial in trials if _allows(trial.right, len(trial.pred), expect)]
    return [text + (f", which it reaches {' or '.join(dict.fromkeys(near[:2]))}" if near else "")]


def describe(fit: Fit, trial: Trial, n: int, line: str) -> str:
    """The evidence for a better form, and the line to type; `n` are the inputs of the check."""
    evidence = f"on {trial.right} {trial.title}: {line}"
    if fit.n == n:
        return f"it is right {evidence}"
    # Forms are tried on a part of the inputs, so both counts are given.
    return f"of {fit.n} of them it is right on {fit.base.right}, and {evidence}"


def _cause(faults: Sequence[str], fit: Fit | None) -> str | None:
    """The fault as a short clause: in the best form of a fit if there is one; None without any."""
    if fit is None:
        return f"on clean inputs {faults[-1].partition(', ')[0]}" if faults else None
    best = fit.best[0]
    if len(best.title.split()) > MOST_TITLE_WORDS:
        return "clean accuracy is higher when inputs or labels are prepared differently"
    return f"of {fit.n} clean inputs {fit.base.right} are right, and {best.right} {best.title}"


def _faults(pred: Array, labels: Array, limit: float, *, is_chance: bool) -> list[str]:
    """The fault of answers, whatever form the inputs have; empty if nothing is wrong."""
    # A model that is no better than a coin would still name another class on one of so many samples
    # of other classes.
    n, is_single = len(labels), len(np.unique(pred)) < 2
    is_constant = is_single and 0.5 ** int((labels != pred[0]).sum()) <= ERROR_RATE
    if is_chance and len(np.unique(labels)) < 2:
        return [
            f"all {n} labels are {labels[0]}, so that nothing shows whether the model tells "
            "classes apart"
        ]
    if is_constant or (is_chance and is_single):
        return [f"it answers class {pred[0]} to every input"]
    if is_chance:
        return [f"its answers agree with the labels no more often than by chance ({limit:.3f})"]
    return []
