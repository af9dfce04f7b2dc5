"""What pages say of results made by hand: numbers as people read them, and sentences with every value in its place."""

from types import SimpleNamespace

import numpy as np

from brinell.analysis.results import (
    AuditResult,
    CheckResult,
    ClassResult,
    CompareResult,
    ModelResult,
    PairedRate,
    Rate,
    StageResult,
    WarningResult,
)
from brinell.analysis.robust_accuracy import rate
from brinell.pages import findings, terminal
from brinell.pages import format as words
from brinell.pages import page as pages

EPS, TEXTS = [0.0, 0.1, 0.2, 0.3], ["0", "1/10", "2/10", "3/10"]
UNKNOWN = Rate(eps=0.1, value=None, low=None, high=None, n=0, k=0)


def rates(*ks: int, n: int = 20) -> list[Rate]:
    return [rate(k, n, eps=eps) for k, eps in zip(ks, EPS, strict=True)]


def of_class(number: int, *ks: int, n: int = 20, name: str = "") -> ClassResult:
    return ClassResult(
        class_=number, name=name or f"c{number}", n=n, clean=rate(n, n), robust=rates(*ks, n=n), drop=[], total_drop=None
    )


def stage(attack: str, *ks: int, **changes) -> StageResult:
    curve = rates(*ks) if ks else []
    fields = {
        "title": f"T {attack}",
        "label": f"L {attack}",
        "kept_to": f"K {attack}",
        "eps": 0.3,
        "accuracy": None,
        "drop": None,
    }
    costs = {"forwards": 3, "backwards": 5, "judge_forwards": 7, "surrogate_passes": 11, "seconds": 13.5}
    return StageResult(
        **{"attack": attack, "curve": curve, "broken": [0] * len(curve), "finished": bool(ks)} | fields | costs | changes
    )


def model(name: str = "net", ks: tuple[int, ...] = (18, 12, 5, 0), **changes) -> ModelResult:
    fields = {
        "run": "R", "model": name, "distance": "linf", "criterion": "c", "eps": EPS, "eps_text": TEXTS, "n": 20, "complete": True,
        "clean_accuracy": rate(18, 20), "robust_accuracy": rates(*ks), "quantised_robust_accuracy": None,
        "per_class": [of_class(0, 20, 18, 9, 0), of_class(1, 20, 8, 1, 0)], "classes_without_samples": 0, "mean_drop": None,
        "stages": [], "distributions": [], "remarks": [], "success_by_queries": [], "seconds": None, "warnings": [], "checks": [],
        "caveat": None, "attacks": "a", "verdict": "v", "verdict_notes": [], "ways_around": [],
    }  # fmt: skip
    return ModelResult(**fields | changes)


def audit(*models: ModelResult, **changes) -> AuditResult:
    fields = {"run": "R", "n": 20, "complete": True, "models": list(models), "mean_drop_per_class": [], "warnings": []}
    return AuditResult(**fields | changes)


def run_of(**manifest) -> SimpleNamespace:
    return SimpleNamespace(manifest={"models": [], "data": {"name": "digits"}} | manifest)


def pair(eps: float, a: int, b: int, difference: float, p: float) -> PairedRate:
    return PairedRate(
        eps=eps, both_robust=1, only_a=a, only_b=b, neither=2, n=9, value_a=0.5, value_b=0.5, difference=difference,
        low=-0.1, high=0.1, p=p,
    )  # fmt: skip


def comparison(a: str, b: str, robust: list[PairedRate], **changes) -> CompareResult:
    fields = {"n": 9, "per_class": []}
    return CompareResult(
        **{"a": a, "b": b, "clean": pair(0.0, 7, 8, 0.0, 1.0), "robust": robust, "notes": ["N"]} | fields | changes
    )


def check(code: str, passed: bool | None, **fields) -> CheckResult:
    return CheckResult(code=code, passed=passed, text="t", **fields)


def wrong(rows: list[tuple[object, object]]) -> list[tuple[object, object]]:
    """The rows whose value is not the expected one."""
    return [(value, expected) for value, expected in rows if value != expected]


def test_numbers_as_people_read_them():
    first_rate = rate(1, 8)
    rows = [
        (words.percent(0.71349), "71.3\u00a0%"),
        (words.percent(0.71349, 0), "71\u00a0%"),
        (words.number(0.71349), "71.3"),
        (words.points(-0.1234), "−12.3"),
        (words.points(0.1), "+10.0"),
        (words.points(-0.0001), "0.0"),
        (words.points(0.0001, 0), "0"),
        (words.interval_text(0.1, 0.25), "10.0–\u206025.0\u00a0%"),
        (words.interval_text(0.1, 0.25, 0), "10–\u206025\u00a0%"),
        (words.span(0.116, 0.25), "12–25"),
        (words.rate_text(first_rate), f"{100 * first_rate.low:.1f}–\u2060{100 * first_rate.high:.1f}\u00a0%, 1\u00a0of\u00a08"),
        (words.rate_text(UNKNOWN), "no sample was judged"),
        (words.count(1234567), "1\u202f234\u202f567"),
        (words.short(0.031372), "0.0314"),
        (words.short(999.4), "999"),
        (words.short(1000), "1\u202f000"),
        (words.short(-1234.4), "-1\u202f234"),
        ([words.seconds(value) for value in (3.21, 59.9, 60, 90, 3599, 3600, 7200)],
         ["3.2 s", "59.9 s", "1.0 min", "1.5 min", "60.0 min", "1.0 h", "2.0 h"]),
        ([words.p_value(p) for p in (1e-9, 9.9e-5, 1e-4, 0.0312, 0.5)], ["< 0.0001", "< 0.0001", "0.0001", "0.031", "0.5"]),
        ([words.norm(name) for name in ("linf", "l2", "l1", "l0", "lpips")], ["Linf", "L2", "L1", "L0", "lpips"]),
        (words.clip("a rather long name, indeed", 14), "a rather long…"),
        (words.clip("x" * 16), "x" * 16),
        (words.clip("x" * 17), "x" * 15 + "…"),
        (words.samples(1), "1 sample"),
        (words.counted(1200, "model"), "1\u202f200 models"),
        (str(words.breakable("8/<255")), "8/<wbr>&lt;255"),
        ([words.plain(of_class(3, 0, 0, 0, 0, name=name)) for name in ("3", "cat")], ["class 3", "cat"]),
        ([words.class_label(of_class(3, 0, 0, 0, 0, name=name)) for name in ("3", "cat")], ["class 3", "cat (class 3)"]),
        ([words.outcome(check("c", passed)) for passed in (True, False, None)], ["passed", "failed", "not made"]),
        (words.measured(check("zero-gradients", True, figure=0.125, limit=0.5)), "12.5\u00a0% (limit 50\u00a0%)"),
        (words.measured(check("zero-gradients", True, figure=0.125)), "12.5\u00a0%"),
        (words.measured(check("gradient-mismatch", True, figure=0.126, limit=0.5)), "0.13 (limit 0.5)"),
        (words.measured(check("zero-gradients", True)), ""),
        (words.brief([check("zero-gradients", False)]), "1 check failed"),
        (terminal.percent(0.5), "50.0 %"),
        (list(terminal.reading(["a\u2060b"], ["c"])), ["  ab", "  note: c"]),
        ([pages.heat(rate(k, 10)) for k in (0, 4, 10)], ["h10", "h6", "h0"]),
        (pages.heat(UNKNOWN), "none"),
    ]  # fmt: skip
    none = [f(None) for f in (words.percent, words.number, words.points, words.short, words.seconds, words.p_value)]
    partial = [words.interval_text(0.1, None), words.interval_text(None, 0.1), words.span(0.1, None), words.span(None, 0.1)]
    assert wrong(rows) == [] and none == ["–"] * 6 and partial == ["–", "–", "", ""] and terminal.percent(None) == "-"


def test_classes_are_ranked_by_rate_then_attestation_then_number():
    """Property against a naive sort; classes of four samples, or without a rate, have no rank."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        classes = [
            of_class(i, *[int(k)] * 4, n=int(n)) for i, n in enumerate(rng.integers(3, 9, 8)) for k in [rng.integers(0, 3)]
        ]
        ranked = words.ranked(classes, 1)
        expected = sorted((c for c in classes if c.n >= 5), key=lambda c: (c.robust[1].k / c.n, c.robust[1].high, c.class_))
        assert [c.class_ for c in ranked] == [c.class_ for c in expected], seed
    blank = of_class(9, 0, 0, 0, 0).model_copy(update={"robust": [UNKNOWN] * 4})
    assert words.ranked([blank], 1) == []


def test_the_most_telling_budget():
    """Where models differ most, or the classes of one; then where accuracy is half of what it was; then the largest."""
    alike = [of_class(i, 20, 10, 5, 0) for i in range(2)]
    rows = [
        (words.most_telling_eps([]), 0),
        (words.most_telling_eps([model()]), 1),
        (words.most_telling_eps([model(per_class=[of_class(0, 20, 12, 9, 5), of_class(1, 20, 8, 1, 5)])]), 2),
        (words.most_telling_eps([model(per_class=alike)]), 3),
        (words.most_telling_eps([model("a", (18, 12, 9, 0)), model("b", (18, 14, 2, 1))]), 2),
        (words.most_telling_eps([model("a", (18, 12, 9, 3), per_class=alike), model("b", (18, 16, 13, 3), per_class=alike)]), 2),
        (words.most_telling_eps([model("a", (18, 12, 9, 0)), model("b", (18, 12, 9, 0))]), 1),
        (words.most_telling_eps([model(robust_accuracy=[rate(18, 20), *[UNKNOWN] * 3])]), 3),
    ]
    assert wrong(rows) == []


def test_where_a_model_breaks():
    def text(*ks: int, **changes) -> tuple[str, str]:
        result = model(ks=ks, **changes)
        return words.where_it_breaks(result).replace("\u00a0", " "), words.half_lost(result)

    loses = "It loses half of its clean accuracy between 1/10 (60.0 %) and 2/10 (25.0 %)"
    already = "Already at the smallest budget tested, 1/10, less than half of its clean accuracy is left"
    rows = [
        (text(18, 12, 5, 0), (f"{loses}; from 3/10 on, no sample is robust.", "2/10")),
        (text(18, 12, 5, 1), (f"{loses}.", "2/10")),
        (text(18, 12, 0, 0), (f"{loses.replace('25.0', '0.0')}; there, no sample is robust.", "2/10")),
        (text(18, 8, 5, 1), (f"{already} (40.0 %).", "1/10")),
        (text(18, 9, 9, 9), (
            "At least half of its clean accuracy remains over the whole range; at the largest budget, 3/10, it has lost 45.0 of "
            "90.0 points.", "beyond 3/10")),
        (text(18, 18, 18, 18), (
            "Nowhere that was tested: no attack broke a single sample up to 3/10. Stronger attacks may.", "beyond 3/10")),
        (text(18, 9, 9, 9, clean_accuracy=rate(0, 20)), ("Not known: no attack has been completed.", "–")),
        (text(18, 9, 9, 9, robust_accuracy=[rate(18, 20), *[UNKNOWN] * 3]), ("Not known: no attack has been completed.", "–")),
    ]  # fmt: skip
    assert wrong(rows) == []


def test_which_classes_are_weak():
    def text(index: int, *classes: ClassResult) -> str:
        return words.which_classes(model(per_class=list(classes)), index).replace("\u00a0", " ").replace("\u2060", "")

    cat, dog, hen = of_class(0, 20, 1, 0, 0, name="cat"), of_class(1, 20, 19, 9, 0, name="1"), of_class(2, 4, 4, 4, 4, n=4)
    small_classes, twin = [of_class(i, 3, 3, 3, 3, n=3) for i in range(2)], of_class(4, 20, 1, 0, 0, name="fox")
    weak, strong = f"{words.rate_text(rate(1, 20))}", f"{words.rate_text(rate(19, 20))}"
    weak, strong = (part.replace("\u00a0", " ").replace("\u2060", "") for part in (weak, strong))
    rows = [
        (text(1, cat, dog),
         f"At 1/10 the weakest is cat (class 0) with 5.0 % ({weak}), the strongest class 1 with 95.0 % ({strong})."),
        (text(1, cat, dog, hen).partition(" the weakest")[0], "At 1/10, of the 2 classes with 5 samples or more,"),
        (text(1, cat, twin, dog).partition(", the strongest")[0], "At 1/10 the weakest are 2 classes with 5.0 % each (cat, fox)"),
        (text(3, cat, dog), "All 2 classes have the same rate on these samples at 3/10: 0.0 %."),
        (text(1, cat), "There are no classes to tell apart."),
        (text(0, cat, dog), "There are no classes to tell apart."),
        (text(1, *small_classes).partition(" to tell")[0], "3 samples per class at most, in 2 classes, are too few"),
        (text(1, *[of_class(i, 20, 1, 0, 0) for i in range(6)], dog).partition(", the strongest")[0],
         "At 1/10 the weakest are 6 classes with 5.0 % each (c0, c1, c2, c3 and 2 more)"),
    ]  # fmt: skip
    assert wrong(rows) == []


def test_verdicts_of_pairs():
    def text(difference: float, p: float) -> str:
        return words.verdict_of_pair("A", "B", pair(0.1, 1, 2, difference, p), p, "1/10")

    rows = [
        (text(0.25, 0.03), "A is robust on more samples than B: by 25.0 points at 1/10 (McNemar p = 0.03)."),
        (text(-0.25, 1e-6), "B is robust on more samples than A: by 25.0 points at 1/10 (McNemar p < 0.0001)."),
        (text(-0.25, 1e-4), "B is robust on more samples than A: by 25.0 points at 1/10 (McNemar p = 0.0001)."),
        (text(0.25, 0.05), "A is ahead of B by 25.0 points at 1/10 (McNemar p = 0.05), a difference that may be chance."),
        (text(0.0, 1.0), "A and B are robust on equally many samples at 1/10."),
    ]
    assert wrong(rows) == []


def test_pairs_at_a_budget_are_corrected_for_their_number():
    first = comparison("A", "B", [pair(0.1, 3, 4, 0.5, 0.02), pair(0.2, 5, 6, 0.1, 0.01)])
    second = comparison("C", "D", [pair(0.1, 1, 2, -0.5, 0.04)], notes=["M"])
    pairs_found = findings.pairs(audit(model()), [first, second], 2)
    assert [(p.a, p.b, p.rate.only_a, p.p_holm, p.notes) for p in pairs_found] == [
        ("A", "B", 5, 0.02, ["N"]), ("C", "D", 1, 0.04, ["M"])
    ]  # fmt: skip
    assert [(text, rate.only_b) for text, rate in pairs_found[0].rates] == [("clean", 8), ("1/10", 4), ("2/10", 6)]
    assert pairs_found[0].words == "A is robust on more samples than B: by 10.0 points at 2/10 (McNemar p = 0.02)."
    assert pairs_found[1].words.startswith("D is robust on more samples than C: by 50.0 points at 1/10")
    assert findings.ties(pairs_found) == "All 2 pairs differ by more than chance."


def test_the_headline_names_the_worst_class():
    tied = [of_class(0, 20, 8, 0, 0, name="x" * 30), of_class(1, 20, 9, 0, 0), of_class(2, 20, 9, 1, 0)]
    first_rate = findings.headline(model(per_class=tied), 2)
    assert [(name, rate.k if rate else None, remark) for name, rate, remark in first_rate] == [
        ("Clean accuracy", 18, "inputs without perturbation"),
        ("Robust accuracy at 2/10", 5, "classes differ most here"),
        ("Robust accuracy at 3/10", 0, "Linf, the largest budget"),
        ("Worst class at 2/10", 0, f"{'x' * 23}… and 1 more"),
    ]
    assert findings.headline(model(per_class=tied), 1, several_models=True)[1][2] == "models differ most here"
    last = findings.headline(model(per_class=tied), 3)
    assert [name for name, *_ in last] == ["Clean accuracy", "Robust accuracy at 3/10", "Worst class at 3/10"]
    assert last[-1][2] == "all classes alike"
    assert findings.headline(model(per_class=[]), 1)[-1] == ("Worst class at 1/10", None, "too few samples per class to name one")


def test_stages_over_all_models():
    first = model("a", stages=[stage("x", 16, 10, 4, 2, broken=[0, 1, 2, 3]), stage("y", 15, 9, 2, 0), stage("z")])
    second = model("b", stages=[
        stage("x", 20, 20, 20, 20, forwards=100, seconds=0.5), stage("y", 1, 2, 3, 4, forwards=0, backwards=0), stage("z"),
    ])  # fmt: skip
    x, y, z = findings.attacks([first, second])
    assert [(a.name, a.stage, a.waits) for a in (x, y, z)] == [("L x", "x", "K x"), ("L y", "y", "K y"), ("L z", "z", "K z")]
    assert [x.drop(i) for i in (0, 3)] == [0.8 - 0.9, 0.1 - 0.9] and y.drop(1) == 0.45 - 0.5 and z.drop(1) is None
    assert [r.k for r in x.rates(3)] == [2, 20] and z.rates(0) == []
    assert [x.total(cost) for cost in ("forwards", "backwards", "seconds")] == [103, 10, 14]
    costless = {"forwards": 0, "backwards": 0}
    idle = [
        (changes, findings.attacks([model(stages=[stage("x", 1, 1, 1, 1, **costless | changes)])])[0].idle)
        for changes in ({}, {"forwards": 1}, {"backwards": 1}, {"skipped": "why"}, {"finished": False}, {"broken": [0, 1]})
    ]
    assert [is_idle for _, is_idle in idle] == [True] + [False] * 5


def test_surrogates_probes_and_checks_in_a_line():
    result = model("a", stages=[stage("x", surrogate_passes=600), stage("y", surrogate_passes=634)])
    manifest = {"models": [{"name": "a", "digest": "D1"}, {"name": "b", "digest": "D2"}]}
    foreign = {"surrogates": [{"name": "s", "digest": "D3"}]}
    own_surrogates = {"surrogates": [{"name": "s", "digest": "D3"}, {"name": "t", "digest": "D2"}]}
    assert findings.surrogates(manifest, [result]) == ""
    assert findings.surrogates(manifest | foreign, [result]).startswith(
        "Attacks followed gradients of s (digest D3), in 1\u202f234 "
    )
    assert "white-box" not in findings.surrogates(manifest | foreign, [result])
    assert "s (digest D3), t (digest D2), in" in findings.surrogates(manifest | own_surrogates, [result])
    assert findings.surrogates(manifest | own_surrogates, [result]).endswith(
        "white-box where a surrogate is the model under test itself: b."
    )
    probes = {"a": {"forwards": 1000, "backwards": 30}, "b": {"forwards": 200, "backwards": 4}}
    cost = findings.probes(run_of(probes=probes), [model("a"), model("b")])
    assert cost == "Those made before the attacks cost 1\u202f200 forwards and 34 backwards in all."
    assert findings.probes(run_of(), [model("a")]) == findings.probes(run_of(probes={"a": {"backwards": 3}}), [model("a")]) == ""
    checks = [check("a", False), check("b", True), check("c", True), check("d", None)]
    assert findings.checked([model(checks=checks)]) == "The checks: 1 failed, 1 not made, 2 passed"
    four = [model(name, checks=checks[index:]) for index, name in enumerate("pqrs")]
    assert findings.checked(four).endswith("; q: 1 not made, 2 passed; r: 1 not made, 1 passed; s: 1 not made")
    assert findings.checked([*four, model()]) == "The checks of 5 models"


def test_who_leads():
    compared = findings.pairs(audit(model()), [comparison("b", "a", [pair(0.1, 1, 2, 0.5, 0.01)])], 1)
    a, b = model("a", (18, 10, 5, 0)), model("b", (18, 14, 5, 0), caveat="1 check failed")
    interval = words.rate_text(rate(14, 20))
    text = findings.lead(audit(a, b), compared, 1)
    assert text == (
        f"b is the most robust at 1/10: 70.0\u00a0% ({interval}). Not all of its checks passed. b is robust on more samples than "
        "a: by 50.0 points at 1/10 (McNemar p = 0.01). C1 (class 1) is the weakest class of both models there."
    )
    assert findings.lead(audit(a), compared, 1) == ""
    assert findings.lead(audit(a, b), compared, 3) == "No model is robust on a single sample at 3/10."
    assert "McNemar" not in findings.lead(audit(a, model("c", (18, 14, 5, 0))), compared, 1)
    assert [m.model for m in words.leader([a, b, model("c", (18, 12, 0, 0))], 1)] == ["b", "c", "a"]


def test_the_weakest_class_of_most_models():
    def text(*weakest: int) -> str:
        models = [model(per_class=[of_class(i, 20, 2 if i == number else 9, 0, 0) for i in range(4)]) for number in weakest]
        return findings.common_weakness(models, 1)

    rows = [
        (text(2, 2), "C2 (class 2) is the weakest class of both models there."),
        (text(2, 2, 2), "C2 (class 2) is the weakest class of all 3 models there."),
        (text(1, 2, 0, 2), "C2 (class 2) is the weakest class of 2 of the 4 models there."),
        (text(1, 2), ""),
        (text(7, 7), ""),
        (findings.common_weakness([model(per_class=[of_class(0, 20, 9, 0, 0)])] * 2, 1), ""),
    ]
    assert wrong(rows) == []


def test_what_to_do_next():
    def text(result: ModelResult, **manifest) -> str:
        return findings.next_step(run_of(**manifest), audit(result), 1)

    robust, note = (18, 18, 17, 15), "Stronger attacks may lower it: run --attack fast."
    floor = f"{int(100 * rate(15, 20).low) / 100:g}"
    rows = [
        (text(model(stages=[stage("x")])), "Go on with brinell audit --resume --out FOLDER."),
        (text(model(clean_accuracy=rate(0, 20))).partition(" and")[0], "Compare the order of the classes"),
        (text(model(robust_accuracy=[*rates(18, 12, 5, 0)[:3], UNKNOWN])), "Name a budget above 0, such as --eps 8/255."),
        (text(model(checks=[check("c", False)])), "Read the failed checks below before you quote the figure."),
        (text(model(checks=[check("c", False)], verdict_notes=["x", note])),
         f"Read the failed checks below before you quote the figure. {note}"),
        (text(model(checks=[check("c", None)])).partition(" and")[0], "Train a robust model (brinell harden --eps 3/10)"),
        (text(model(ks=robust, verdict_notes=["x", note])), note),
        (text(model(ks=robust)),
         f"Keep it so: brinell gate FOLDER --robust {floor} --eps 3/10 fails as soon as a later run falls below."),
        (findings.next_step(run_of(), audit(model("a"), model("b", robust)), 1)[:10], "Keep it so"),
    ]  # fmt: skip
    assert wrong(rows) == []


def test_rounding():
    def quantised(name: str, *ks: int, n: int = 20) -> ModelResult:
        return model(name, (18, 12, 5, 3), quantised_robust_accuracy=rates(*ks, n=n))

    (undone,) = findings.quantised_notes([quantised("a", 18, 13, 7, 5)])
    assert undone.startswith(
        "a: rounding to the levels in which inputs are stored undoes 2 of 15 samples broken at 3/10; quantised "
    )
    assert f"is 25.0\u00a0% ({words.rate_text(rate(5, 20))}). No attack" in undone
    unchanged = [quantised(name, 18, 12, 5, 3) for name in "bc"]
    assert findings.quantised_notes([*unchanged, model()]) == [
        "b, c: every adversarial example at 3/10 remains adversarial after rounding."
    ]
    unbroken = model("d", (18, 18, 18, 18), quantised_robust_accuracy=rates(18, 18, 18, 18))
    assert findings.quantised_notes([unbroken]) == [] == findings.quantised_notes([quantised("e", 0, 0, 0, 0, n=0)])


def test_warnings_the_gravest_first():
    going = model("a", stages=[stage("x", title="X"), stage("y", skipped="no gradient")])
    missing = model("b", robust_accuracy=[*rates(18, 12, 5, 0)[:3], rate(0, 17, eps=0.3, missing=3)], caveat="1 check failed",
                    checks=[check("zero-gradients", False)])  # fmt: skip
    small = model("c", caveat="no checks were made", per_class=[of_class(0, 5, 5, 5, 5, n=9), of_class(1, 5, 5, 5, 5, n=10)])
    warnings = [WarningResult(code="w", text="of c", model="c"), WarningResult(code="zero-gradients", text="listed", model="b"),
                WarningResult(code="v", text="of all")]  # fmt: skip
    ending = "The section Checks lists what was measured and what to do."
    assert findings.alerts(run_of(), audit(going, missing, small, warnings=warnings)) == [
        ("stop", "This run is not finished (a: X). The figures are those of the finished attacks and may still fall."),
        ("stop", "b: 3 of 20 samples could not be judged; they are in no rate, and each rate states its own denominator."),
        ("warn", f"b: 1 check failed. {ending}"),
        ("note", f"c: no checks were made. {ending}"),
        ("warn", "c: of c"),
        ("warn", "of all"),
        ("note", "a: T y was skipped: no gradient."),
    ]
    single = small.model_copy(update={"classes_without_samples": 2000})
    assert findings.alerts(run_of(), audit(single, warnings=warnings[:1])) == [
        ("note", f"No checks were made. {ending}"),
        ("warn", "of c"),
        ("note", "1 of 2 classes have fewer than 10 samples; their intervals are wide."),
        ("note", "2\u202f000 classes have no samples, so nothing is known about them."),
    ]
    recommended = {"least": 0.1, "median": 0.25, "most": 1.5, "conditions": ["p", "q"], "by": "E", "without": 2}
    (level, text), *further_alerts = findings.alerts(run_of(recommended=recommended), audit(model()))
    assert (level, further_alerts) == ("note", []) and text == (
        "Budgets are multiples of the eps that each sample was recommended, by E (p, q): from 0.1 to 1.5, median 0.25. The "
        "column radius of the records is each sample's budget in the units of the data. For 2 samples no eps is sound; not "
        "attacked, they count as right or wrong untouched."
    )
    assert "no eps" not in findings.alerts(run_of(recommended=recommended | {"without": 0}), audit(model()))[0][1]


def test_the_classes_on_the_page():
    """Up to twenty all are listed; of more the ten worst and the five best; up to a hundred the others are folded."""
    for number, folded, left_out in ((20, 0, 0), (21, 6, 0), (100, 85, 0), (101, 0, 86)):
        order = np.random.default_rng(number).permutation(number)
        classes = [of_class(i, *[int(position)] * 4, n=200, name=f"n{i}") for i, position in enumerate(order)]
        selection = pages.choose_classes([model(per_class=classes)], 1)
        ranked = np.argsort(order).tolist()
        assert selection.listed == (ranked if number <= 20 else ranked[:10] + ranked[-5:])
        assert (selection.folded, selection.left_out) == (ranked[10:-5] if folded else [], left_out)
        assert selection.by_index == sorted(selection.listed) and selection.names[3] == "n3" and selection.eps_index == 1
    first, second = ([of_class(i, *[k] * 4, n=16) for i, k in enumerate(ks)] for ks in ((4, 9, 6), (8, 1, 6)))
    blank = of_class(7, 0, 0, 0, 0).model_copy(update={"robust": [UNKNOWN] * 4})
    union = pages.choose_classes([model(per_class=[blank, *first]), model(per_class=second)], 2)
    assert union.listed == [1, 0, 2, 7], "by the mean over the models, then by attestation and number; without a rate last"


def test_classes_that_are_alike_are_not_said_to_differ():
    """Property: classes with one true rate get the caveat; classes far apart, with samples enough, get none about the ends."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        classes, n = int(rng.integers(2, 40)), int(rng.integers(5, 60))
        alike = sorted(rng.binomial(n, 0.4, classes).tolist())
        if alike[0] < alike[-1]:
            assert "the order may be chance" in words._order_caveat([rate(k, n) for k in alike]), seed
    assert words._order_caveat([rate(k, 200) for k in (10, *[100] * 20, 190)]) == ""
    assert words._order_caveat([rate(k, 200) for k in (10, 12, 190)]) == " But 1 of the other 2 classes may be as weak."
    ends = [rate(k, 200) for k in (10, 12, 188, 190)]
    assert words._order_caveat(ends) == (
        " But 1 of the other 3 classes may be as weak and 1 of the other 3 classes may be as strong."
    )
