"""What an audit's page is made of: the lines and bars that each figure is given, of two models that differ in every value."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from brinell.analysis.results import ClassResult, Distribution, Rate, SuccessCurve
from brinell.analysis.robust_accuracy import rate, summarise
from brinell.pages import figures, findings, page
from brinell.store.run import Run

EPS, TEXTS = [0.1, 0.2], ["26/255", "51/255"]


@pytest.fixture
def figure_arguments(monkeypatch):
    """Figures as the arguments that they are drawn with."""
    for name in ("curve", "histogram"):
        monkeypatch.setattr(
            figures, name, lambda values, *labels, **settings: SimpleNamespace(values=values, labels=labels, **settings)
        )
    monkeypatch.setattr(page, "band_figure", lambda *arguments: arguments)


@pytest.fixture
def audit(make):
    """Two models with two stages on two classes: a run and its result."""

    def audit(eps=EPS, models=("a", "b"), **changes):
        rng = np.random.default_rng(0)
        breaks = {name: rng.random((2, 40)) * 0.3 + 0.01 for name in models}
        breaks["a"][0, :3] = 0
        run = Run.open(make(breaks, np.arange(40) % 2, list(eps), ["ant", "bee"], **changes))
        return run, run.records(), summarise(run.manifest, run.records(), "R")

    return audit


def lines(figure) -> list[tuple[str, list[int], int, bool]]:
    """Name, counts, style and band of each line."""
    return [(line.name, [r.k for r in line.rates], line.style, line.band) for line in figure.values]


def test_the_curve_of_all_models(audit, figure_arguments):
    for eps, texts in ((EPS, ["0", *TEXTS]), ([0.0, *EPS], ["0/255", *TEXTS])):
        _, _, result = audit(eps)
        figure = page.overall_figure(result)
        expected = [[m.clean_accuracy.k, *(r.k for r in m.robust_accuracy[-2:])] for m in result.models]
        assert lines(figure) == [(m.model, ks, i, True) for i, (m, ks) in enumerate(zip(result.models, expected, strict=True))]
        assert figure.labels == (list(zip([0.0, *EPS], texts, strict=True)),) and figure.distance == "Linf"
        assert figure.title.endswith("of a, b") and expected[0] != expected[1]


def test_a_curve_for_each_class(audit, figure_arguments):
    run, records, result = audit()
    classes = page.choose_classes(result.models, 0)
    curves = page.class_figures(result, classes)
    assert [(index, name) for index, name, _ in curves] == [(i, ["ant", "bee"][i]) for i in classes.listed]
    for index, name, figure in curves:
        of_class = [m.per_class[index] for m in result.models]
        expected = [(m.model, [c.clean.k, *(r.k for r in c.robust)], i, True)
                    for i, (m, c) in enumerate(zip(result.models, of_class, strict=True))]  # fmt: skip
        assert lines(figure) == expected and figure.small and figure.title == f"Class {name}: robust accuracy over eps"
    single = result.model_copy(update={"models": result.models[:1]})
    (*_, (name, counts, style, band)) = lines(page.class_figures(single, classes)[0][2])
    first = result.models[0]
    assert (name, style, band) == ("all classes", -1, False)
    assert counts == [first.clean_accuracy.k, *(r.k for r in first.robust_accuracy)]
    is_plural = result.model_copy(update={"models": [*result.models, *result.models]})
    assert {band for *_, band in lines(page.class_figures(is_plural, classes)[0][2])} == {False}


def test_histograms_of_distances_and_queries(audit, figure_arguments):
    run, records, result = audit()
    distances = page.distance_figures(run, records, result)
    assert [name for name, _ in distances] == ["a", "b"]
    for style, (m, (_, figure)) in enumerate(zip(result.models, distances, strict=True)):
        broken = m.clean_accuracy.k - m.robust_accuracy[-1].k
        assert figure.values.counts.sum() == broken and len(figure.values.counts) == 24 and figure.style == style
        assert figure.title == f"{m.model}: distances at success of {broken} samples"
        assert figure.label == "distance at success (Linf)" and figure.ticks == [(0.0, "0"), *zip(EPS, TEXTS, strict=True)]
    queries = page.query_figures(run, records, result)
    assert [name for name, _ in queries] == [f"{m} · apgd-{kind}" for m in "ab" for kind in ("ce", "dlr")]
    for (_, figure), style in zip(queries, (0, 0, 1, 1), strict=True):
        assert figure.style == style and figure.title.endswith(f"success of {figure.values.counts.sum()} samples")
    single = result.model_copy(update={"models": result.models[1:]})
    assert [name for name, _ in page.query_figures(run, records, single)] == ["apgd-ce", "apgd-dlr"]
    run.manifest["recommended"] = {"least": 1}
    assert page.distance_figures(run, records, result) == []


def test_success_over_queries_is_logarithmic(audit, figure_arguments):
    _, _, result = audit()
    curves = [SuccessCurve(attack=name, queries=q, success=[rate(k, 9) for k in ks])
              for name, q, ks in (("x", [10, 1000], (1, 2)), ("y", [100, 2000], (3, 4)))]  # fmt: skip
    first = result.models[0].model_copy(update={"success_by_queries": curves})
    ((name, figure),) = page.success_figures(result.model_copy(update={"models": [first, result.models[1]]}))
    assert name == "a" and lines(figure) == [("x", [1, 2], 0, True), ("y", [3, 4], 1, True)]
    assert [[r.eps for r in line.rates] for line in figure.values] == [[1, 3], [2, pytest.approx(math.log10(2000))]]
    assert [line.tick_texts for line in figure.values] == [
        ["10 queries", "1\u202f000 queries"],
        ["100 queries", "2\u202f000 queries"],
    ]
    texts = ["1", "10", "100", "1\u202f000", "2\u202f000"]
    assert figure.labels == ([(pytest.approx(math.log10(q)), t) for q, t in zip((1, 10, 100, 1000, 2000), texts, strict=True)],)


def test_titles_attacks_and_examples(audit, figure_arguments):
    run, _, result = audit()
    assert page._title(run, result) == "2 models on digits"
    single = result.model_copy(update={"models": result.models[1:]})
    assert page._title(run, single) == "b on digits"
    stages = [{}, {}]
    rows = [(["fast"], "fast (2 stages)"), (["x", "y"], "x, y")]
    assert [page._attacks_text({"request": {"attack": names}, "stages": stages}) for names, _ in rows] == [
        text for _, text in rows
    ]
    assert page.proof_figure(single) is None and page.proof_figure(result) is None
    proven = result.models[1].model_copy(update={"certified": [rate(2, 9), rate(1, 9)]})
    figure = page.proof_figure(result.model_copy(update={"models": [proven]}))
    assert figure == (proven.eps, proven.certified, proven.robust_accuracy, "b")
    example_lists = page._examples([("a", ["a1", "a2"]), ("b", []), ("c", ["c1"]), ("d", ["d1"]), ("e", ["e1"])])
    assert example_lists["shown"] == ["a1", "c1", "d1"]
    assert example_lists["galleries"] == [("a", ["a2"]), ("b", []), ("c", []), ("d", []), ("e", ["e1"])]
    assert page._examples([("a", ["a1", "a2"])]) == {"shown": ["a1", "a2"], "galleries": []}


def test_the_context_of_a_page(audit):
    """Names of the template with what they hold, of one model and of two."""
    run, records, result = audit()
    run.manifest["probes"] = {"a": {"forwards": 3, "backwards": 4}}
    for models in (1, 2):
        subset = result.model_copy(update={"models": result.models[:models]})
        context = page.context(run, records, subset, [])
        assert context["many"] == (models == 2) and context["models"] == subset.models and context["manifest"] is run.manifest
        assert context["title"] == ("2 models" if models == 2 else "a") + " on digits"
        assert context["asked"] == "apgd-ce, apgd-dlr" and context["pair_eps"] == TEXTS[context["at"]]
        assert [cards[0][1] for cards in context["headlines"]] == [m.clean_accuracy for m in subset.models]
        assert [[c.class_ for c in by.values()] for by in context["class_of"]] == [[0, 1]] * models
        assert [by[1] for by in context["class_of"]] == [m.per_class[1] for m in subset.models]
        assert context["mean_of_means"] == pytest.approx(np.mean([m.mean_drop for m in subset.models]))
        assert context["mean_drop"] == {c.class_: c.mean_drop for c in result.mean_drop_per_class}
        assert "3 forwards and 4 backwards" in context["probes"] and [a.stage for a in context["attacks"]] == [
            "apgd-ce",
            "apgd-dlr",
        ]
        assert len(context["shown"]) == (2 if models == 2 else 12) and len(context["galleries"]) == (2 if models == 2 else 0)


def test_classes_of_two_models_meet_by_number():
    """Of a class that one model alone has, its rates count; a curve is drawn for those that have it."""
    unknown = Rate(eps=0.1, value=None, low=None, high=None, n=0, k=0)
    only = ClassResult(class_=5, name="f", n=3, clean=rate(3, 3), robust=[rate(1, 4)], drop=[], total_drop=None)
    second_class = only.model_copy(update={"class_": 2, "name": "c", "robust": [unknown]})
    selection = page.choose_classes([SimpleNamespace(per_class=[second_class]), SimpleNamespace(per_class=[only])], 0)
    assert selection.listed == [5, 2] and selection.names == {2: "c", 5: "f"} and selection.by_index == [2, 5]


def test_no_example_says_why():
    def distribution(successes: int) -> Distribution:
        return Distribution(of="distance", attack=None, successes=successes, robust=1, q10=None, median=None, q90=None)

    assert findings.no_example([SimpleNamespace(distributions=[distribution(0)])]) == "No adversarial input was found."
    assert "arrays/" in findings.no_example([SimpleNamespace(distributions=[distribution(k), distribution(0)]) for k in (0, 1)])
