"""The report of an audit: each figure of a run stands where it belongs, and its sentences are true."""

import re

import numpy as np

from brinell.analysis.judgements import extreme_classes, lower_end
from brinell.analysis.results import CheckResult, WarningResult
from brinell.analysis.robust_accuracy import rate
from brinell.reports import html
from brinell.reports.statements import class_sentence
from brinell.reports.steps import next_steps
from brinell.reports.values import Curve, Samples, Table
from brinell.store.run import Run
from brinell.studies.register import open_folder

CLASSES = ["ant", "bee", "cow"]
INF = np.inf


def breaks(n: int, seed: int, scale: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    distance = scale * rng.lognormal(size=n)
    return np.stack([np.where(rng.random(n) < 0.05, 0, distance), distance * 0.9])


def tables(report) -> dict[str, Table]:
    return {block.name: block for block in report.blocks if isinstance(block, Table) and block.name}


def test_every_figure_stands_where_it_belongs(make):
    """Property: of random runs with one and with several models."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        eps = [0.0, 0.05, 0.1, 0.2][seed % 2 :]
        names = ["net", "other", "third"][: 1 + seed % 3]
        run = make(
            {name: breaks(60, 9 * seed + i) for i, name in enumerate(names)},
            np.arange(60) % 3,
            eps,
            CLASSES,
        )
        result = open_folder(run)
        report, above = result.report(), [i for i, e in enumerate(eps) if e]
        first, shown = result.models[0], tables(report)
        curve = next(block for block in report.blocks if isinstance(block, Curve))
        assert [[r for _, r in s.points][-len(eps) :] for s in curve.series] == [
            m.robust_accuracy for m in result.models
        ]
        assert [line.points[0][1].k for line in curve.series] == [
            m.clean_accuracy.k for m in result.models
        ]
        rates = shown["robust_accuracy"]
        if len(names) == 1:
            assert [row[1] for row in rates.rows][
                -len(eps) :
            ] == first.robust_accuracy and rates.terminal
        else:
            assert [[row[1], *row[2 : 2 + len(above)]] for row in rates.rows] == [
                [m.clean_accuracy, *(m.robust_accuracy[i] for i in above)] for m in result.models
            ]
        skip = len(names) > 1
        for m in result.models:
            of_model = [
                row[skip:] for row in shown["per_class"].rows if not skip or row[0] == m.name
            ]
            by_class = {row[0].value: row for row in of_model[1 - skip :]}
            for c in m.per_class:
                assert by_class[c.name][1:] == [c.clean, *(c.robust[i] for i in above)]
            stages = [row[skip:] for row in shown["stages"].rows if not skip or row[0] == m.name]
            worked = [stage for stage in m.stages if stage.forwards]
            assert [row[5:8] for row in stages] == [
                [s.median_queries, s.forwards, s.backwards] for s in worked
            ]
            assert round(sum(row[3].value for row in stages), 9) == round(
                stages[-1][2].value - m.clean_accuracy.value, 9
            )
            outcomes = [
                row[skip + 1] for row in shown["checks"].rows if not skip or row[0] == m.name
            ]
            assert outcomes.count("passed") == sum(check.passed is True for check in m.checks)
        (samples,) = [block for block in report.blocks if isinstance(block, Samples)]
        links = re.findall(r'href="#([^"]+)"', html.page(report))
        assert samples.draw() and set(links) <= {"provenance"}
        assert rng is not None and result.report() == report


def test_classes_on_the_page_and_in_the_file(make):
    """Up to twenty all are listed; of more the twenty weakest, and the file has all."""
    for number in (20, 21, 300):
        names = [f"class {i} with a long name" for i in range(number)]
        run = make({"net": breaks(2 * number, 0)}, np.arange(2 * number) % number, [0.1], names)
        report = open_folder(run).report()
        on_page = [
            block
            for block in report.blocks
            if isinstance(block, Table) and block.heat and block.page and not block.beside
        ]
        assert [len(block.rows) for block in on_page] == [21]
        assert len(tables(report)["per_class"].rows) == number + 1
        values = [row[-1].value for row in on_page[0].rows[1:]]
        assert values == sorted(values)
        assert "too few to tell classes apart" in report.sentences[1]


def test_what_is_said_where_nothing_and_where_all_is_broken(make):
    labels = np.arange(40) % 2
    report = open_folder(make({"net": np.full((2, 40), INF)}, labels, [0.1], ["a", "b"])).report()
    (samples,) = [block for block in report.blocks if isinstance(block, Samples)]
    assert samples.text == "All 40 samples. No adversarial input was found." and not samples.draw()
    models = {"net": np.full((2, 40), 0.01), "two": np.full((2, 40), 0.01)}
    report = open_folder(make(models, labels, [0.1, 0.2], ["a", "b"])).report()
    assert report.sentences[0].startswith(
        "net and two have the same robust accuracy at 26/255: 0.0"
    )


def test_names_act_nowhere_and_a_page_fetches_nothing(make):
    bad = "<script>alert(1)</script>"
    warning = {"code": "odd", "model": None, "text": f"beware of {bad}"}
    path = make({bad: breaks(40, 0)}, np.arange(40) % 2, [0.1], [bad, "a&b"], warnings=[warning])
    page = html.page(open_folder(path).report())
    assert (
        "<script>alert" not in page and page.count("<script") == 2 and "eware of &lt;script" in page
    )
    assert not re.search(r'(?:src|href)="(?!data:|#)', page) and not re.search(
        r"url\(|@import|\bNone\b|\bnan\b", page
    )


def test_checks_are_one_sentence_and_one_note(make, synthetic):
    failed = ("zero-gradients", "misleading-gradients")
    checks = [
        {"code": code, "passed": code not in failed, "text": f"words about {code}"}
        for code in synthetic.CODES
    ]
    report = open_folder(
        make({"net": breaks(60, 0)}, np.arange(60) % 3, [0.1, 9], CLASSES, checks={"net": checks})
    ).report()
    assert any(
        ", 2 failed (zero-gradients, misleading-gradients)" in sentence
        for sentence in report.sentences
    )
    assert [note.text for note in report.notes if note.code == "checks"] == [
        "misleading-gradients failed too."
    ]
    assert [row[0] for row in tables(report)["checks"].rows[:2]] == list(failed)


def steps(make, robust, *, n=200, total=200, weak=None, checks=(), access="gradients", **changes):
    """The commands of a model with these counts of robust samples at two budgets, of 200 in three
    classes."""
    run = Run.open(make({"net": breaks(60, 0)}, np.arange(60) % 3, [0.1, 0.2], CLASSES, **changes))
    run.manifest["data"]["total"] = total
    run.manifest["models"][0]["access"] = access
    model = open_folder(run.path).models[0]
    rates = [rate(k, n, eps=eps) for k, eps in zip(robust, (0.1, 0.2), strict=True)]
    model = model.model_copy(
        update={
            "robust_accuracy": rates,
            "weak": weak,
            "checks": list(checks),
            "clean_accuracy": rate(n - 2, n),
            "n": n,
            "per_class": [],
        }
    )
    return [step.command for step in next_steps(run.manifest, model, 1)]


def test_the_next_step_is_what_changes_most(make):
    repetition, gate = "brinell audit FOLDER/run.toml", "brinell gate FOLDER --robust"
    failed = [CheckResult(code="clean-accuracy", passed=False, text="t")]
    assert steps(make, (150, 120), checks=failed) == [repetition]
    assert steps(
        make, (150, 120), checks=[CheckResult(code="answers-by-batch", passed=False, text="t")]
    ) == [repetition]
    floors = [int(100 * lower_end(rate(k, 200))) / 100 for k in (150, 120, 90)]
    assert steps(make, (150, 120)) == [f"{gate} {floors[1]:g} --eps 51/255"]
    assert steps(make, (150, 120), weak="FGSM") == [
        f"{repetition} --attack fast",
        f"{gate} {floors[1]:g} --eps 51/255",
    ]
    detached = [CheckResult(code="boundary-margin", passed=False, text="t")]
    assert (
        steps(make, (150, 120), checks=detached)[0] == f"{repetition} --attack 'ray-s?steps=100000'"
    )
    few = [
        CheckResult(
            code="gradient-mismatch", passed=None, text="t", reason="too few samples to tell"
        )
    ]
    assert steps(make, (150, 120), checks=few, total=900)[0] == f"{repetition} --samples 800"
    harden = "brinell harden --data digits --model net --eps"
    assert steps(make, (150, 90)) == [f"{harden} 51/255", f"{gate} {floors[2]:g} --eps 51/255"]
    assert steps(make, (150, 0)) == [f"{harden} 51/255", f"{gate} {floors[0]:g} --eps 26/255"], (
        "a floor can fail"
    )
    assert steps(make, (0, 0)) == [f"{harden} 26/255"], "no gate that can never fail"
    labels = [CheckResult(code="kind-of-answers", passed=False, text="t")]
    assert steps(make, (150, 90), checks=labels)[:2] == [
        f"{repetition} --attack plus",
        f"{harden} 51/255",
    ]
    assert steps(make, (150, 90), checks=labels, access="labels") == [
        f"{repetition} --attack hop-skip-jump",
        f"{gate} {floors[2]:g} --eps 51/255",
    ], "nothing that needs gradients"


def test_classes_that_are_alike_are_not_said_to_differ(make):
    """Property: at a level of 5 %, classes with one true rate get the caveat."""
    doubts = []
    model = open_folder(make({"net": breaks(60, 0)}, np.arange(60) % 3, [0.1], CLASSES)).models[0]
    for seed in range(30):
        rng = np.random.default_rng(seed)
        counts = rng.binomial(40, 0.4, int(rng.integers(2, 30))).tolist()
        classes = [
            model.per_class[0].model_copy(
                update={"class_": i, "name": f"c{i}", "n": 40, "robust": [rate(k, 40, eps=0.1)]}
            )
            for i, k in enumerate(counts)
        ]
        text = class_sentence(extreme_classes(classes, 0, "0.1"))
        doubts.append(min(counts) == max(counts) or "Chance may explain the order" in text)
    assert sum(doubts) >= 28
    apart = [
        c.model_copy(update={"robust": [rate(k, 40, eps=0.1)]})
        for c, k in zip(classes[:2], (2, 39), strict=False)
    ]
    assert "Chance" not in class_sentence(extreme_classes(apart, 0, "0.1"))


def test_without_a_budget_the_answer_is_of_clean_inputs(make):
    """The headline has the clean accuracy, and the classes are told apart on clean inputs."""
    for seed in range(4):
        wrong = np.random.default_rng(seed).random(60) < np.repeat([0.1, 0.5, 0.9], 20)
        distances = np.stack([np.where(wrong, 0.0, INF), np.full(60, INF)])
        result = open_folder(make({"net": distances}, np.repeat([0, 1, 2], 20), [0.0], CLASSES))
        headline, *sentences = result.report().sentences
        assert headline.startswith(f"Clean accuracy is {100 * np.mean(~wrong):.1f} %: no budget")
        rates = {c.name: c.clean.value for c in result.models[0].per_class}
        weakest = min(rates, key=rates.get)
        (classes,) = [text for text in sentences if "the weakest" in text]
        assert classes.startswith(f"On clean inputs the weakest is {weakest} (class ")
        assert "On clean inputs the strongest is " in classes


def test_warnings_come_before_notes(make):
    warnings = [{"code": "v", "model": None, "text": "of all"}]
    settings = {"warnings": warnings, "remarks": {"net": {"apgd-ce": {"odd": "of one attack"}}}}
    result = open_folder(
        make({"net": breaks(40, 0)}, np.arange(40) % 5, [0.1], list("abcde"), **settings)
    )
    notes = result.report().notes
    assert [(note.code, note.level) for note in notes] == [("v", "warn"), ("odd", "note")]
    assert result.warnings == [WarningResult(code="v", text="of all")]
