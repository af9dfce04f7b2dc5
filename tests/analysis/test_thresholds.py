"""Figures of a run with a criterion of probability: those of an audit under other names, and
sentences that claim no accuracy.
"""

import numpy as np

from brinell.analysis.robust_accuracy import meaning, summarise_model

EPS = [0.0, 0.1, 0.2]
INF = np.inf
TRUE = {
    "name": "probability",
    "true_below": 0.1,
    "wrong_class": None,
    "wrong_above": None,
    "text": "true<0.1",
}
WRONG = {
    "name": "probability",
    "true_below": None,
    "wrong_class": 2,
    "wrong_above": 0.9,
    "text": "class=two>0.9",
}
TOP = {"name": "top", "k": 2, "text": "top2"}
BREAKS = np.array([[0, 0.05, INF, INF, INF, INF], [0, 0.02, 0.1, 0.15, INF, INF]])


def run(synthetic, criterion=TRUE, breaks=BREAKS, **changes):
    """Six samples of two of four classes: one meets the criterion untouched, three are made to, two
    are not.
    """
    rows = synthetic.records("m", np.array([0, 0, 0, 1, 1, 1]), EPS, breaks, classes=4)
    return synthetic.manifest(
        ["m"], EPS, 6, ["zero", "one", "two", "three"], criterion=criterion, **changes
    ), rows


def test_every_rate_says_what_it_counts(synthetic):
    result = summarise_model(*run(synthetic), "runs/x", "m")
    assert (result.folder, result.criterion, result.meaning) == (
        "runs/x",
        "true<0.1",
        meaning(run(synthetic)[0]),
    )
    assert (result.clean_accuracy.k, result.clean_accuracy.n) == (5, 6)
    assert [rate.k for rate in result.robust_accuracy] == [
        5,
        3,
        2,
    ] and result.quantised_robust_accuracy is None
    rates = [
        result.clean_accuracy,
        *result.robust_accuracy,
        *(rate for stage in result.stages for rate in stage.curve),
    ]
    rates += [rate for entry in result.per_class for rate in (entry.clean, *entry.robust)]
    assert {rate.quantity for rate in rates} == {"share that does not meet true<0.1"}
    of_top = summarise_model(*run(synthetic, TOP), "runs/x", "m")
    assert {rate.quantity for rate in of_top.robust_accuracy} == {
        "top-2 accuracy"
    } and "top-2 accuracy" in of_top.verdict
    plain = summarise_model(*run(synthetic, {"name": "misclassified"}), "runs/x", "m")
    assert plain.meaning is None and {rate.quantity for rate in plain.robust_accuracy} == {
        "accuracy"
    }


def test_the_class_of_the_criterion_is_not_missed(synthetic):
    for criterion, missing in ((TRUE, 2), (WRONG, 1)):
        assert (
            summarise_model(*run(synthetic, criterion), "r", "m").classes_without_samples == missing
        )
    of_true, of_class, of_top = (
        meaning(run(synthetic, criterion)[0]) for criterion in (TRUE, WRONG, TOP)
    )
    assert of_true.startswith(
        "the predicted class is wrong, and the true class has a probability below 0.1; the share"
    )
    assert of_class.startswith(
        "an input of another class has a probability above 0.9 for two; the share"
    )
    assert "robust accuracy" in of_true and "robust accuracy" not in of_top


def test_statements(synthetic):
    def statement(breaks=BREAKS, eps=None, **changes):
        manifest, rows = run(synthetic, breaks=breaks, **changes)
        if eps is not None:
            manifest, rows = (
                manifest | {"eps": eps, "eps_text": ["0"]},
                synthetic.keep(rows, rows.attack == "clean"),
            )
        return summarise_model(manifest, rows, "r", "m").verdict

    assert statement() == (
        "At most 33.3 % of the inputs do not meet true<0.1 at 51/255: 1 of 6 "
        "meet it untouched, and attacks made 3 more meet it."
    )
    assert (
        statement(np.zeros((2, 6))) == "Every clean input meets true<0.1, so nothing was attacked."
    )
    assert statement(np.full((2, 6), 0.05)) == "Every input meets true<0.1 at 51/255."
    assert statement(eps=[0.0]).endswith("; nothing was attacked, since no budget is above 0.")
    manifest, rows = run(synthetic)
    clean_result = summarise_model(manifest, synthetic.keep(rows, rows.attack == "none"), "r", "m")
    assert (
        clean_result.verdict == "No sample could be judged, so nothing is known about true<0.1."
        and clean_result.verdict_notes == []
    )
