"""How statements are said: a sentence, and a cell of a table.

No other file builds a sentence that names a weakest class, a leader or a change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from brinell.analysis.results import DetectorResult
from brinell.analysis.statements import KindName, Statement, Subject
from brinell.analysis.total_drops import TotalDrops
from brinell.reports.numbers import capital, counted, interval, listed, percent, points, whole
from brinell.reports.values import Detail, Percent

UNKNOWN = 0.8
"""Width of the intervals of both shares of a variation from which nothing is said about either."""
NO_LOSS = "No class is shown to have lost accuracy on clean inputs."
MOST_NAMED = 6
"""Number of objects that a sentence names; of more it says how many."""


def sentence(statement: Statement) -> str:
    """A statement in words."""
    return SENTENCES[statement.kind](statement)


def class_sentence(statements: Iterable[Statement]) -> str:
    """What is said of the classes at a budget: the weakest, the strongest, and those that have few
    samples.
    """
    of_classes = [entry for entry in statements if entry.kind in ("weakest", "strongest", "alike")]
    if not of_classes:
        return "There are no classes to tell apart."
    first = of_classes[0]
    texts = list(map(sentence, of_classes))
    if len(of_classes) > 1:
        count = first.compared + len(first.subjects)
        texts.append(f"Both intervals hold for all {count} classes together.")
    sparse = [f"{capital(text)}." for text in _sparse(first, first.sparse) if first.subjects]
    return " ".join([*texts, *sparse])


def mark(statement: Statement) -> Detail | None:
    """A cell of a table: the rate, and below it who has it, with those of few samples that may have
    less; None if nobody is named.
    """
    if not statement.subjects:
        return None
    shared = _shared(statement.subjects)
    lower = [entry for entry in statement.sparse if entry.value <= statement.subjects[0].value]
    return Detail(shared, "; ".join([subject_names(statement), *_sparse(statement, lower)]))


def subject_names(statement: Statement) -> str:
    """The objects of a statement."""
    return listed([figure.name for figure in statement.subjects], most=MOST_NAMED)


def lowest_mark(statements: Sequence[Statement]) -> Detail | None:
    """The cell of the weakest class among statements about classes; all of them if they
    are alike.
    """
    entries = [entry for entry in statements if entry.kind in ("weakest", "alike")]
    return mark(entries[0]) if entries else None


def _shared(subjects: Sequence[Subject]) -> Subject | Percent:
    """The rate that some objects have in common, with an interval that covers those of all."""
    first = subjects[0]
    if all((figure.k, figure.n) == (first.k, first.n) for figure in subjects):
        return first
    lows = [figure.low for figure in subjects if figure.low is not None]
    highs = [figure.high for figure in subjects if figure.high is not None]
    return Percent(first.value, min(lows, default=None), max(highs, default=None))


def _rate(subjects: Sequence[Subject]) -> str:
    """The rate of objects that tie, with its interval and the counts of each."""
    shared = _shared(subjects)
    counts = sorted({figure.n or 0 for figure in subjects})
    size = f"{whole(subjects[0].k or 0)} of {whole(counts[0])}"
    if counts[1:]:
        size = f"of {whole(counts[0])} to {whole(counts[-1])} samples"
    details = [interval(shared.low, shared.high), f"{size}{' each' * (len(subjects) > 1)}"]
    return f"{percent(shared.value)} ({', '.join(filter(None, details))})"


def _weakest(statement: Statement) -> str:
    return _extreme(statement, "weak")


def _strongest(statement: Statement) -> str:
    return _extreme(statement, "strong")


def _extreme(statement: Statement, word: str) -> str:
    """The sentence on the weakest or the strongest class."""
    if not statement.subjects:
        total = len(statement.sparse) + statement.compared
        return (
            f"{len(statement.sparse)} of {total} classes have fewer than {statement.least_n} samples: "
            "too few to tell classes apart."
        )

    verb = "is" if len(statement.subjects) == 1 else "are"
    place = f"At {statement.eps_text}" if statement.eps_text else "On clean inputs"
    text = (
        f"{place} the {statement.kind} {verb} {subject_names(statement)} with "
        f"{_rate(statement.subjects)}"
    )

    if not statement.supported:
        return f"{text}. Chance may explain the order." if word == "weak" else f"{text}."
    if statement.rivals:
        return f"{text}; {listed(statement.rivals, most=MOST_NAMED)} may be as {word}."
    opposite = "stronger" if word == "weak" else "weaker"
    return f"{text}; each other class is shown to be {opposite}."


def _sparse(statement: Statement, sparse: Sequence[Subject]) -> list[str]:
    """Classes with few samples; empty without any."""
    names = [f"{figure.name} ({figure.k} of {figure.n})" for figure in sparse]
    if not names:
        return []
    fewer = f"fewer than {statement.least_n} samples, so in no order"
    return [f"{fewer}: {listed(names, most=MOST_NAMED)}"]


def _alike(statement: Statement) -> str:
    value = percent(statement.subjects[0].value)
    count = len(statement.subjects)
    place = f"at {statement.eps_text}" if statement.eps_text else "on clean inputs"
    return f"All {count} classes have the same rate {place}: {value}."


def _leads(statement: Statement) -> str:
    """Who is the most robust, who may be as robust, or that all are."""
    names = listed([figure.name for figure in statement.subjects])
    value = percent(statement.subjects[0].value)
    text = statement.eps_text
    samples = counted(statement.n, "sample")
    single = len(statement.subjects) == 1
    if not statement.compared:
        if single:
            return f"{names}, the only model, has a {statement.quantity} of {value} at {text}."
        return f"{names} have the same {statement.quantity} at {text}: {value} of {samples}."

    if statement.rivals:
        return (
            f"{names} {'has' if single else 'have'} the highest {statement.quantity} at {text}, "
            f"{value}, but with {samples} {listed(statement.rivals)} may be as robust."
        )

    competitors = "each other model"
    correction = ", corrected for all pairs"
    if statement.family == 1:
        competitors = "the other one"
        correction = ""
    return (
        f"{names} {'is' if single else 'are'} the most robust at {text}, with {value}: {competitors} is "
        f"shown to be less robust (McNemar's test{correction})."
    )


def _crosses(statement: Statement) -> str:
    rival = statement.subjects[0]
    leader = statement.against[0]
    chance = "which may be chance"
    if statement.supported:
        chance = "more than chance explains at the budgets looked at"
    return (
        f"At {statement.eps_text} {rival.name} leads with {percent(rival.value)}, against "
        f"{percent(leader.value)} for {leader.name}, {chance}."
    )


def _end(statement: Statement) -> str:
    """The object with the highest or the lowest mean."""
    if not statement.compared:
        value = percent(statement.subjects[0].value)
        return f"{subject_names(statement)}, alone, has a {statement.quantity} of {value}."
    degree = "highest" if statement.kind == "most" else "lowest"
    opposite = "lower" if statement.kind == "most" else "higher"
    verb = "has" if len(statement.subjects) == 1 else "have"
    text = (
        f"{subject_names(statement)} {verb} the {degree} {statement.quantity}, "
        f"{percent(statement.subjects[0].value)}"
    )

    if statement.supported:
        competitors = f"each of the other {statement.compared}"
        if statement.compared == 1:
            competitors = "the other one"
        return f"{text}; {competitors} is shown to be {opposite}."
    rivals = listed(statement.rivals, most=MOST_NAMED)
    return f"{text}; {rivals} may be as {'high' if statement.kind == 'most' else 'low'}."


def _loses(statement: Statement) -> str:
    """The class that loses most or least, and the classes that are in no order."""
    words = (
        ("most", "much", "less") if statement.kind == "loses_most" else ("least", "little", "more")
    )
    extreme, likewise, opposite = words
    verb = "loses" if len(statement.subjects) == 1 else "lose"
    text = (
        f"Up to {statement.eps_text} {subject_names(statement)} {verb} {extreme}, with a "
        f"{statement.quantity} of {100 * statement.subjects[0].value:.1f} points"
    )

    rivals = listed(statement.rivals, most=MOST_NAMED)
    if len(statement.rivals) == statement.compared:
        rivals = "each other class"
    doubt = f"{rivals} may lose as {likewise}."
    if statement.supported:
        doubt = f"each other class is shown to lose {opposite}."

    few = listed([figure.name for figure in statement.sparse], most=MOST_NAMED)
    if few and statement.kind == "loses_most":
        doubt += (
            f" In no order, since fewer than {statement.least_n} samples are right on clean inputs: "
            f"{few}."
        )
    return f"{text}; {doubt}"


def losses_sentence(statements: Sequence[Statement]) -> str:
    """The classes whose accuracy on clean inputs fell, the largest loss first."""
    lost = [entry for entry in statements if entry.supported and entry.kind == "fell"]
    lost.sort(key=lambda entry: entry.difference or 0.0)
    names = [
        f"{entry.quantity} ({-100 * (entry.difference or 0.0):.1f} points, "
        f"{counted(entry.n, 'sample')})"
        for entry in lost
    ]
    return f"Accuracy on clean inputs fell significantly in {listed(names)}." if lost else NO_LOSS


def changes_sentence(statements: Sequence[Statement]) -> str:
    """Under which of several changes a model is shown to be more or less accurate than before."""
    parts = []
    for word, kind in (("better", "rose"), ("worse", "fell")):
        names = [entry.quantity for entry in statements if entry.supported and entry.kind == kind]
        if names:
            parts.append(f"{word} under {len(names)} ({listed(names)})")
    text = "is not shown to be better or worse"
    if parts:
        text = f"is significantly {' and '.join(parts)}"
    start = "Of" if parts else "Under"
    count = counted(len(statements), "change")
    return f"{start} {count} that the training did not use, the model {text}."


def _change(statement: Statement) -> str:
    """How a rate rose or fell."""
    after = statement.subjects[0].value
    before = statement.against[0].value
    low = statement.low or 0.0
    high = statement.high or 0.0
    budget = f"At {statement.eps_text} the" if statement.eps_text else "The"

    if statement.kind == "unchanged":
        return (
            f"{budget} {statement.quantity} was {percent(after)} before and after; with "
            f"{counted(statement.n, 'sample')}, a change of {100 * max(high, -low):.1f} points "
            "cannot be excluded."
        )
    chance = "" if statement.supported else "; this may be chance"
    span = f"{points(statement.difference)} points, {points(low)} to {points(high)}"
    return (
        f"{budget} {statement.quantity} {statement.kind} from {percent(before)} to "
        f"{percent(after)} ({span}){chance}."
    )


def _threshold(statement: Statement) -> str:
    """That a rate reaches a threshold, or does not."""
    figure = statement.subjects[0]
    verb = "reaches" if statement.kind == "passes" else "is not shown to reach"
    return (
        f"{capital(figure.name)} {verb} {percent(statement.threshold)}: {figure.k} of {figure.n} "
        f"samples, at least {percent(figure.low)} with 97.5 % confidence."
    )


def _faithful(statement: Statement) -> str:
    names = [figure.name for figure in statement.subjects]
    total = counted(statement.family, "method")
    verb = "is" if len(names) < 2 else "are"
    return (
        f"{len(names) or 'None'} of {total} {verb} shown to be more faithful than the controls "
        f"that ignore the model{': ' * bool(names)}{listed(names, len(names))}."
    )


def model_or_data(drops: TotalDrops, eps: str) -> str:
    """The sentence that says whether classes or models make the difference."""
    parts = drops.decomposition
    if parts is None:
        if len(drops.classes) - len(drops.left_out) < 2:
            return (
                "Whether the drop depends on the class or on the model cannot be said: fewer than "
                "two classes have two samples."
            )
        return (
            f"Beyond what chance adds, the drops up to {eps} show no variation by class or model."
        )

    if min(part.high - part.low for part in (parts.classes, parts.models)) > UNKNOWN:
        return (
            f"{counted(drops.n, 'sample')} are too few to say whether the drop up to {eps} depends "
            "on the class or on the model."
        )
    return sentence(parts.statement)


def _matters(statement: Statement) -> str:
    words = {"classes": "class", "models": "model"}
    portions = {entry.name: entry for entry in (*statement.subjects, *statement.against)}
    end = "which of both matters more is not shown"
    if statement.supported:
        first = words[statement.subjects[0].name]
        second = words[statement.against[0].name]
        end = f"the {first} matters more than the {second}"
    return (
        f"Of the {statement.quantity} up to {statement.eps_text}, {_share(portions['classes'])} "
        f"stands between classes, {_share(portions['models'])} between models, and "
        f"{_share(portions['both'])} is left: {end}."
    )


def _share(portion: Subject) -> str:
    low = 100 * (portion.low or 0.0)
    return f"{percent(portion.value, 0)} ({low:.0f} to {100 * (portion.high or 0.0):.0f})"


def detector_sentence(entry: DetectorResult, eps: str) -> str:
    """How often adaptive attacks evade a detector at a budget, and what it leaves of the model."""
    if entry.statement is not None:
        return sentence(entry.statement)
    return (
        f"At {eps} the robust accuracy of {entry.model} is {percent(entry.robust.value)} without "
        f"{entry.detector}, and {percent(entry.static.value)} with it under attacks that do not know "
        "it; no adaptive attack was judged."
    )


def _evades(statement: Statement) -> str:
    subject = statement.subjects[0]
    without, static, adaptive = [percent(rate.value) for rate in statement.against]
    return (
        f"At {statement.eps_text} adaptive attacks evade {subject.name} on {subject.k} of {subject.n} "
        f"samples that are right ({percent(subject.value)}, {interval(subject.low, subject.high)}): "
        f"robust accuracy is {without} without the detector, {static} with it under attacks that do "
        f"not know it, and {adaptive} under adaptive ones."
    )


def _fits(statement: Statement) -> str:
    better = statement.subjects[0]
    given = statement.against[0]
    end = "this form may be better, or it is chance"
    if statement.supported:
        end = f"this form is shown to be better, corrected for all {statement.family} forms tried"
    return (
        f"{capital(better.name)} the model is right on {better.k} of {statement.n} samples, and "
        f"{given.name} on {given.k}: {end}."
    )


def leader_count(count: int) -> str:
    """In how many tasks of several a model leads others, as a clause."""
    return f"shown to be the most robust in {count or 'none'} of them"


SENTENCES: Mapping[KindName, Callable[[Statement], str]] = {
    "weakest": _weakest,
    "strongest": _strongest,
    "alike": _alike,
    "leads": _leads,
    "crosses": _crosses,
    "most": _end,
    "least": _end,
    "loses_most": _loses,
    "loses_least": _loses,
    "rose": _change,
    "fell": _change,
    "unchanged": _change,
    "passes": _threshold,
    "fails": _threshold,
    "faithful": _faithful,
    "evades": _evades,
    "matters": _matters,
    "fits": _fits,
}
"""The sentence of each kind."""
