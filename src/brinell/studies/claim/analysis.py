"""The figures of a claim, counted from its rows, and what they say and leave open."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import OfClass, Rate
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.record import Array
from brinell.store.table import Folder
from brinell.studies.claim.ranking import Protocol, RankResult, rank
from brinell.studies.claim.records import BROKEN, FAILED, OPEN, PROVEN, TABLE, WRONG, Outcomes


class ClassClaim(OfClass):
    """One class at the budget of the claim."""

    n: int
    """Samples of the class."""
    clean: Rate
    """Accuracy without a change."""
    robust: Rate
    """Share that no attack broke: never below the truth for these samples."""
    certified: Rate | None
    """Share that is proven robust: never above the truth for these samples; null without proofs."""


class OutcomeCounts(Result):
    """Samples by outcome at a budget, in the words of ISO/IEC 24029-2."""

    eps: float
    proof: int
    """Proven robust."""
    counterexample: int
    """An input within the budget is misclassified, the sample itself included."""
    inconclusive: int
    """Neither."""


class Level(OutcomeCounts):
    """One budget of the run."""

    text: str
    """The budget as it was written."""
    robust: Rate
    """Share that no attack broke."""
    certified: Rate | None
    """Share that is proven robust; null without proofs."""


class CheckCounts(Result):
    """Checks of whether attacks fail for another reason than robustness."""

    passed: int
    failed: int
    not_made: int
    verdict: str
    """all passed, or what failed and what was not made."""
    failures: list[str]
    """The finding of each failed check."""


class Verification(Result):
    """What the verification of the run found."""

    level: str
    """rows: files, digests and rows agree with each other. replay: data and model were opened, and samples were replayed."""
    rows: int
    """Rows that were compared."""
    replayed: int
    """Rows that were computed again."""
    premises: list[str]
    verified: list[str]
    unverified: list[str]
    refusal: str


class Attack(Result):
    """The attack in the words of NIST AI 100-2."""

    kind: str
    objective: str
    capability: str
    knowledge: str
    attacks: str
    """The attacks as they were asked for."""
    stages: list[str]
    """The attacks that ran."""


class ClaimResult(FolderResult):
    """What `brinell claim --json` prints."""

    words: ClassVar[frozenset[str]] = frozenset({"date", "repeat", "verification"})

    run: str
    """The run that the claim is made from."""
    run_digest: str
    """Hash of the run's manifest, which lists the hashes of its files."""
    model: str
    model_digest: str
    data: str
    data_digest: str
    distance: str
    eps: float
    eps_text: str
    criterion: str
    domain: str
    """The inputs that the claim is about."""
    n: int
    """Samples."""
    clean: Rate
    robust: Rate
    """Share that no attack broke at `eps`: never below the truth for these samples."""
    certified: Rate | None
    """Share that is proven robust at `eps`; null without proofs."""
    outcomes: OutcomeCounts
    per_class: list[ClassClaim]
    levels: list[Level]
    """All budgets."""
    attack: Attack
    checks: CheckCounts
    verified: str
    """proved or consistent."""
    verification: Verification
    date: str
    """Day on which the run was finished, as it says."""
    not_tested: list[str]
    """What the claim does not speak of."""
    repeat: list[str]
    """Commands that repeat the run and check it."""
    sentences: list[str]
    """The claim in words."""
    rank: RankResult | None
    """The place among published entries; null if none was asked for."""

    @property
    def worst_class(self) -> ClassClaim | None:
        """The class with the lowest robust accuracy; None if no class was judged."""
        classes = [c for c in self.per_class if c.robust.value is not None]
        return min(classes, key=lambda c: (c.robust.value or 0.0, c.class_), default=None)


def open_claim(path: Path) -> ClaimResult:
    """The result of a folder from its records."""
    return summarise(TABLE.read(path))


def summarise(folder: Folder[Outcomes]) -> ClaimResult:
    """The claim of a folder, every figure counted from its rows."""
    facts, rows = folder.manifest, folder.rows
    has_proofs = facts["proofs"] is not None
    eps, names = float(facts["eps"]), [str(name) for name in facts["data"]["classes"]]
    attacked, clean = rows.eps == eps, rows.eps == 0
    per_class = [
        ClassClaim(
            class_=index,
            name=class_name(names, index),
            n=int((rows.label[clean] == index).sum()),
            clean=_share(rows, clean & (rows.label == index), (PROVEN, OPEN)),
            robust=_share(rows, attacked & (rows.label == index), (PROVEN, OPEN)),
            certified=_share(rows, attacked & (rows.label == index), (PROVEN,)) if has_proofs else None,
        )
        for index in np.unique(rows.label).tolist()
    ]
    levels = [
        Level(
            **_counts(rows, level).model_dump(),
            text=text,
            robust=_share(rows, rows.eps == level, (PROVEN, OPEN)),
            certified=_share(rows, rows.eps == level, (PROVEN,)) if has_proofs else None,
        )
        for level, text in zip(facts["budgets"], facts["texts"], strict=True)
    ]
    claimed = next(level for level in levels if level.eps == eps)
    result = ClaimResult(
        folder=str(folder.path),
        run=facts["source"]["path"],
        run_digest=facts["source"]["manifest"],
        model=facts["model"]["name"],
        model_digest=facts["model"]["digest"],
        data=facts["data"]["name"],
        data_digest=facts["data"]["digest"],
        distance=facts["distance"],
        eps=eps,
        eps_text=claimed.text,
        criterion=facts["criterion"],
        domain=describe_domain(facts),
        n=int(clean.sum()),
        clean=_share(rows, clean, (PROVEN, OPEN)),
        robust=claimed.robust,
        certified=claimed.certified,
        outcomes=_counts(rows, eps),
        per_class=per_class,
        levels=levels,
        attack=_attack(facts),
        checks=_checks(facts),
        verified=facts["verification"]["status"],
        verification=Verification(**{key: value for key, value in facts["verification"].items() if key != "status"}),
        date=str(facts["finished"] or "")[:10],
        not_tested=list(untested(facts, per_class)),
        repeat=[facts["repeat"], f"brinell verify {facts['source']['path']}"],
        sentences=[],
        rank=rank(claimed.robust, protocol(facts, int(clean.sum()), claimed.text)) if facts["request"].get("against") else None,
    )
    return result.model_copy(update={"sentences": list(state(result))})


def _share(rows: Outcomes, members: Array, counted: tuple[str, ...]) -> Rate:
    """The share of the rows in `members`, (rows,) bool, whose outcome counts, among those that were judged."""
    outcome = rows.outcome[members].astype(str)
    valid = outcome != FAILED
    eps = float(rows.eps[members][0]) if members.any() else 0.0
    return rate(int(np.isin(outcome, counted).sum()), int(valid.sum()), eps=eps, missing=int((~valid).sum()))


def _counts(rows: Outcomes, eps: float) -> OutcomeCounts:
    """Samples by outcome at a budget."""
    outcome = rows.outcome[rows.eps == eps].astype(str)
    return OutcomeCounts(
        eps=eps,
        proof=int((outcome == PROVEN).sum()),
        counterexample=int(np.isin(outcome, (BROKEN, WRONG)).sum()),
        inconclusive=int((outcome == OPEN).sum()),
    )


def describe_domain(facts: Mapping[str, Any]) -> str:
    """The inputs that a claim is about, in a sentence part."""
    domain = facts["data"]["domain"]
    shape = " x ".join(map(str, domain["shape"]))
    bounds = [value if isinstance(value, list) else [value] for value in (domain["low"], domain["high"])]
    low, high = min(bounds[0]), max(bounds[1])
    total = int(facts["data"]["total"])
    return f"{domain['kind']} inputs of {shape} values from {low:g} to {high:g}; {facts['data']['name']}, {total:,} samples"


def _attack(facts: Mapping[str, Any]) -> Attack:
    """The attack in the words of NIST AI 100-2."""
    aimed = facts["criterion"] != "misclassified"
    knowledge = {
        "gradients": "white-box: the attacker knows the model and its gradients",
        "scores": "black-box: the attacker sees the scores of the model",
        "labels": "black-box: the attacker sees the classes that the model predicts",
    }
    return Attack(
        kind="evasion",
        objective="integrity violation, targeted" if aimed else "integrity violation, untargeted",
        capability=f"testing-time control of the input within {facts['distance']} distance eps, inside the bounds of the data",
        knowledge=knowledge[facts["model"]["access"]],
        attacks=facts["attacks"],
        stages=facts["titles"],
    )


def _checks(facts: Mapping[str, Any]) -> CheckCounts:
    states = [check["passed"] for check in facts["checks"]]
    return CheckCounts(
        passed=states.count(True),
        failed=states.count(False),
        not_made=states.count(None),
        verdict=facts["caveat"] or "all checks that count passed",
        failures=[f"{check['code']}: {check['text']}" for check in facts["checks"] if check["passed"] is False],
    )


def protocol(facts: Mapping[str, Any], n: int, text: str) -> Protocol:
    """How the figure was measured."""
    return Protocol(
        model=facts["model"]["name"],
        data=facts["data"]["name"],
        digest=facts["data"]["digest"],
        n=n,
        distance=facts["distance"],
        eps=facts["eps"],
        eps_text=text,
        per_sample=facts["per_sample"],
        criterion=facts["criterion"],
        stages=facts["stages"],
        attacks=facts["attacks"],
        weak=facts["weak"],
        caveat=facts["caveat"],
        proved=facts["verification"]["status"] == "proved",
    )


def untested(facts: Mapping[str, Any], per_class: list[ClassClaim]) -> Iterator[str]:
    """The limits of a claim, a sentence each."""
    largest, distance = facts["texts"][-1], facts["distance"]
    n, total = int(facts["data"]["n"]), int(facts["data"]["total"])
    yield f"Budgets above {largest} in {distance}, and changes in other distances (rotation, blur, patches) were not tested."
    yield "Attacks that are stronger than those that ran may lower the robust accuracy; attacks prove nothing by failing."
    if facts["proofs"] is None:
        yield "Nothing was proven: samples that no attack broke are inconclusive."
    if n < total:
        yield f"{total - n:,} of {total:,} samples of the data were not tested."
    missing = len(facts["data"]["classes"]) - len(per_class)
    if missing > 0:
        yield f"{missing} of {len(facts['data']['classes'])} classes have no sample in the run."
    yield "Inputs from other sources than the test data, and drift in use, were not tested."
    if facts["criterion"] == "misclassified":
        yield "Targeted attacks were not counted separately."
    yield "Poisoning, privacy and extraction attacks (NIST AI 100-2) are outside the scope."
    if facts["model"]["access"] == "gradients":
        yield "The model was attacked alone, without the system around it."
    not_made = [check["code"] for check in facts["checks"] if check["passed"] is None]
    if not_made:
        yield f"Checks that were not made: {', '.join(not_made)}."


def state(result: ClaimResult) -> Iterator[str]:
    """The claim in words."""
    threat = f"within {result.distance} distance {result.eps_text}"
    yield (
        f"{result.model} classifies {_text(result.clean)} of the samples of {result.data} correctly; under every attack "
        f"{threat} {_text(result.robust)} keep their class."
    )
    if result.certified is not None:
        yield f"Proofs bound this from below: {_text(result.certified)} of the samples are proven robust."
    worst = result.worst_class
    if worst is not None and len(result.per_class) > 1:
        yield f"The weakest class is {worst.name}, with {_text(worst.robust)}."
    counts = result.outcomes
    yield (
        f"In the words of ISO/IEC 24029-2 there are {counts.proof:,} proofs, {counts.counterexample:,} counterexamples and "
        f"{counts.inconclusive:,} inconclusive samples."
    )
    yield f"Checks of the attacks: {result.checks.verdict}."
    yield VERIFIED[result.verified]


VERIFIED = {
    "proved": "The run was verified with its model: rows, stored inputs and checks come out again, and drawn samples replay.",
    "consistent": "The files of the run agree with each other; neither the model nor the data was used to verify it.",
}
"""The words for the verification of the run, by its status."""


def _text(value: Rate) -> str:
    """A rate with its interval in words."""
    if value.value is None or value.low is None or value.high is None:
        return "no judged share"
    return (
        f"{100 * value.value:.1f} % ({value.k:,} of {value.n:,}; 95 % interval {100 * value.low:.1f} to {100 * value.high:.1f} %)"
    )
