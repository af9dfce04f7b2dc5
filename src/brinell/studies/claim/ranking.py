"""The rank that a figure would have among published entries, if it was measured by their protocol.

The entries are facts that come with Brinell (`robustbench.json`, written by scripts/write_robustbench_entries.py). There is a
rank only where data, norm, eps, criterion and attacks agree; otherwise the answer says which way a difference moves the figure.
"""

import functools
import json
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Literal

from brinell.analysis.folder_result import Result
from brinell.analysis.results import Rate
from brinell.core.numbers import parse_decimal
from brinell.pages.format import count, norm, percent

Effect = Literal["same", "higher", "lower", "either"]
"""How a difference from the protocol moves the figure: not at all, up, down, or either way."""
EFFECTS: dict[Effect, str] = {
    "same": "as published",
    "higher": "flatters the figure",
    "lower": "lowers the figure",
    "either": "moves the figure either way",
}
NEIGHBOURS = 3
"""Entries above and below the figure that a page shows."""


class Entry(Result):
    """A published model; figures in per cent."""

    name: str
    clean: float
    autoattack: float
    """Robust accuracy by AutoAttack: what the leaderboard ranks by."""
    external: float | None
    """A lower or equal figure that others found, as the leaderboard lists it."""
    venue: str
    architecture: str
    eps: str
    """The budget as the entry states it; some state 0.031 in place of 8/255."""
    unreliable: bool
    """True if the leaderboard marks the figure of AutoAttack as unreliable."""

    @property
    def best_known(self) -> float:
        """The lower of both figures."""
        return self.autoattack if self.external is None else min(self.autoattack, self.external)


class Leaderboard(Result):
    """The entries of one protocol."""

    data: str
    digest: str | None
    """Brinell's digest of the test images; null where it is not known."""
    distance: str
    eps: str
    n: int
    """Test images on which entries are compared."""
    entries: list[Entry]


class Source(Result):
    """The origin of the entries."""

    name: str
    address: str
    commit: str
    date: str
    """Date of the last change."""
    licence: str


class Published(Result):
    """All published entries."""

    source: Source
    attacks: list[str]
    """The stages of the attack of the protocol."""
    tables: list[Leaderboard]


class ProtocolLine(Result):
    """One part of a protocol, in the claim and in the published entries."""

    part: str
    claim: str
    published: str
    effect: Effect
    """How the difference moves the figure."""
    refused: bool
    """True if the difference refuses the rank."""


class Place(Result):
    """A place among entries, 1 for the best."""

    value: int
    low: int
    """The best place that the interval of the figure allows."""
    high: int
    """The worst place that it allows."""


class RankResult(Result):
    """The place of a figure among published entries."""

    value: int | None
    """The place by the leaderboard's own figures, 1 for the best; null if the figure is not comparable."""
    low: int | None
    """The best place that the interval of the figure allows."""
    high: int | None
    """The worst place that it allows."""
    of: int | None
    """Places: the published entries and this model."""
    comparable: bool
    """True if the protocols agree so far that a place means something."""
    why: str
    """Why it is not comparable, or what to keep in mind."""
    best_known: Place | None
    """The place if the lower figures that others found for entries replace AutoAttack's."""
    source: Source
    protocol: list[ProtocolLine]
    """Part by part."""
    above: list[Entry]
    """Entries next above the figure, the nearest last."""
    below: list[Entry]
    """Entries next below it."""


class Protocol(Result):
    """How a figure was measured."""

    model: str
    data: str
    digest: str
    n: int
    distance: str
    eps: float
    eps_text: str
    per_sample: bool
    criterion: str
    stages: list[str]
    attacks: str
    weak: str | None
    caveat: str | None
    proved: bool
    """True if the run was verified with its model and data."""


@functools.cache
def published() -> Published:
    """The entries that come with Brinell."""
    text = (files(__package__) / "robustbench.json").read_text(encoding="utf-8")
    return Published.model_validate(json.loads(text))


def table_for(data: str, digest: str, distance: str) -> Leaderboard | None:
    """The published table for data and norm; None if there is none."""
    plain = data.lower().replace("-", "").replace("_", "")
    tables = [table for table in published().tables if table.distance == distance]
    by_digest = next((table for table in tables if table.digest == digest), None)
    by_name = (table for table in sorted(tables, key=lambda table: -len(table.data)) if plain.startswith(table.data))
    return by_digest or next(by_name, None)


def rank(figure: Rate, protocol: Protocol) -> RankResult:
    """The place of a robust accuracy among the published entries, or why it has none."""
    table = table_for(protocol.data, protocol.digest, protocol.distance)
    lines = list(compare_protocols(protocol, table))
    refusals = [_reason(line) for line in lines if line.refused]
    if table is None or refusals or figure.value is None or figure.low is None or figure.high is None:
        reason = "; ".join(refusals) or "no sample was judged"
        places = dict.fromkeys(("value", "low", "high", "of", "best_known"), None)
        return RankResult(**places, comparable=False, why=reason, source=published().source, protocol=lines, above=[], below=[])
    rivals = [entry for entry in table.entries if entry.name != protocol.model]
    place = find_place(figure, [entry.autoattack for entry in rivals])
    percentage = _per_cent(figure.value)
    return RankResult(
        **place.model_dump(),
        of=len(rivals) + 1,
        comparable=True,
        why=_caution(lines, rivals),
        best_known=find_place(figure, [entry.best_known for entry in rivals]),
        source=published().source,
        protocol=lines,
        above=[entry for entry in rivals if entry.autoattack > percentage][-NEIGHBOURS:],
        below=[entry for entry in rivals if entry.autoattack <= percentage][:NEIGHBOURS],
    )


def find_place(figure: Rate, rivals: Sequence[float]) -> Place:
    """The place of a figure among rivals in per cent, and the places that its interval allows; ties share the better place."""
    value, best, worst = (
        1 + sum(rival > _per_cent(share or 0.0) for rival in rivals) for share in (figure.value, figure.high, figure.low)
    )
    return Place(value=value, low=best, high=worst)


def _per_cent(share: float) -> float:
    """A share in per cent with two digits, as the leaderboard writes it."""
    return round(100 * share, 2)


def compare_protocols(protocol: Protocol, table: Leaderboard | None) -> Iterator[ProtocolLine]:
    """The parts of both protocols, side by side."""
    if table is None:
        names = ", ".join(f"{entry.data} in {norm(entry.distance)}" for entry in published().tables)
        yield _line("data", f"{protocol.data} in {norm(protocol.distance)}", names, "either", refused=True)
        return
    is_same = table.digest is not None and protocol.digest == table.digest
    claim = "the same test images" if is_same else f"{protocol.data}, digest {protocol.digest[:12]}"
    digest = f"digest {table.digest[:12]}" if table.digest else "whose digest Brinell does not know"
    yield _line("data", claim, f"the test images of {table.data}, {digest}", "same" if is_same else "either", refused=not is_same)
    fewer = protocol.n < table.n
    yield _line("samples", count(protocol.n), count(table.n), "either" if fewer else "same")
    yield _budget_line(protocol, table)
    misses = protocol.criterion == "misclassified"
    yield _line("criterion", protocol.criterion, "misclassified", "same" if misses else "higher", refused=not misses)
    yield _attack_line(protocol)
    passed = protocol.caveat is None
    yield _line("checks", protocol.caveat or "all passed", "not made", "same" if passed else "higher", refused=not passed)
    claim = "replayed with the model" if protocol.proved else "not replayed"
    yield _line(
        "verification", claim, "their own evaluation", "same" if protocol.proved else "either", refused=not protocol.proved
    )


def _budget_line(protocol: Protocol, table: Leaderboard) -> ProtocolLine:
    expected = published_budget(table)
    if protocol.per_sample:
        text = f"{protocol.eps_text} times the recommended eps of each sample"
        return _line("eps", text, table.eps, "either", refused=True)
    is_same = math.isclose(protocol.eps, expected, rel_tol=1e-6)
    effect: Effect = "same" if is_same else "higher" if protocol.eps < expected else "lower"
    return _line("eps", protocol.eps_text, table.eps, effect, refused=not is_same)


def published_budget(table: Leaderboard) -> float:
    """The budget of a table as a number."""
    return parse_decimal(table.eps)


def _attack_line(protocol: Protocol) -> ProtocolLine:
    if protocol.stages == published().attacks:
        return _line("attack", "AutoAttack's standard version", "AutoAttack's standard version", "same")
    weak = protocol.weak is not None
    return _line("attack", protocol.attacks, "AutoAttack's standard version", "higher" if weak else "either", refused=weak)


def _line(part: str, claim: str, published_text: str, effect: Effect, *, refused: bool = False) -> ProtocolLine:
    return ProtocolLine(part=part, claim=claim, published=published_text, effect=effect, refused=refused)


def _reason(line: ProtocolLine) -> str:
    """Why a line refuses the rank."""
    return f"{line.part}: {line.claim}, and the entries have {line.published}, which {EFFECTS[line.effect]}"


def _caution(lines: Sequence[ProtocolLine], rivals: Sequence[Entry]) -> str:
    """What to keep in mind of a place."""
    sentences = [f"{_reason(line)}." for line in lines if line.effect != "same"]
    lower = sum(entry.best_known < entry.autoattack for entry in rivals)
    smaller = sum("/" not in entry.eps and entry.eps == "0.031" for entry in rivals)
    if lower:
        sentences.append(f"Of {lower} entries lower figures are known than those that the leaderboard ranks by.")
    if smaller:
        sentences.append(f"{smaller} entries state eps 0.031, which is less than 8/255 and flatters them.")
    source = published().source
    sentences.append(f"The entries are those of {source.name}, last changed on {source.date}; newer models are not among them.")
    return " ".join(sentences)


def sentence(result: RankResult, figure: Rate) -> str:
    """The place in a sentence."""
    if not result.comparable or result.best_known is None:
        return f"Not comparable with RobustBench's entries: {result.why}."
    best = result.best_known
    return (
        f"With {percent(figure.value, 2)} the model would be number {result.value} of {result.of} by RobustBench's own figures "
        f"({result.low} to {result.high} within the interval), and number {best.value} by the lowest known figures "
        f"({best.low} to {best.high})."
    )
