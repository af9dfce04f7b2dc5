"""Selection of samples: small selections hold every class, larger ones contain smaller ones, and
published orders stay.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from _helpers import mlp, plan_of
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets._memory import from_arrays
from brinell.datasets.digits import Digits
from brinell.engine.audit import plan_hash
from brinell.engine.request import Request
from brinell.engine.selection import choose_samples, stratified_order
from brinell.models._torch_model import TorchModel

SORTED = np.repeat(np.arange(10), 50)


def data(labels):
    return from_arrays(np.zeros((len(labels), 2), np.float32), labels)


def select_from(labels, **request):
    request = Request(**request)
    return choose_samples(request.samples, request.seed, data(labels))


def test_a_folder_sorted_by_class_gives_every_class():
    selection = select_from(SORTED, samples=20)
    assert selection.method == "stratified" and selection.ids.tolist() == sorted(
        selection.ids.tolist()
    )
    assert np.bincount(SORTED[selection.ids]).tolist() == [2] * 10
    assert selection.text(500) == "20 of 500 samples, drawn stratified by class"


def test_the_first_and_random_ones_on_request():
    assert select_from(SORTED, samples="first:20").ids.tolist() == list(range(20))
    random_selection = select_from(SORTED, samples="random:200")
    assert random_selection.method == "random" and len(set(random_selection.ids.tolist())) == 200
    assert np.bincount(SORTED[random_selection.ids], minlength=10).std() > 0, (
        "chance does not share them out evenly"
    )


def test_all_samples_are_all_however_they_are_chosen():
    for samples in ("first:500", "stratified:500", "random:500", 500, "all", None):
        selection = select_from(SORTED, samples=samples)
        assert (selection.method, selection.ids.tolist()) == ("all", list(range(500)))
        assert selection.text(500) == "all 500 of 500 samples"


def test_published_test_sets_keep_their_order():
    selection = choose_samples(20, 0, Digits()())
    assert (selection.method, selection.ids.tolist()) == ("first", list(range(20)))
    assert choose_samples("stratified:20", 0, Digits()()).method == "stratified"


def test_data_of_one_class_are_drawn_at_random_and_said_so():
    selection, drawn = (
        select_from(np.zeros(500, int), samples=samples) for samples in (20, "random:20")
    )
    assert selection.text(500) == "20 of 500 samples, drawn at random"
    assert selection.ids.tolist() == drawn.ids.tolist()


@given(st.lists(st.integers(0, 5), min_size=2, max_size=80), st.data())
def test_every_prefix_is_stratified(labels, draw):
    """Each class has its share up to one sample, and one at least where there are as many samples
    as classes."""
    labels = np.array(labels)
    n = draw.draw(st.integers(1, len(labels)))
    order = stratified_order(labels, np.random.default_rng(len(labels)).uniform(size=len(labels)))
    assert sorted(order.tolist()) == list(range(len(labels)))
    classes, counts = np.unique(labels, return_counts=True)
    prefix_counts = np.array([int((labels[order[:n]] == label).sum()) for label in classes])
    assert (prefix_counts >= 1).all() or (n < len(classes) and prefix_counts.max() == 1)
    # A class is never a whole sample of its own behind another, as shares of their sizes go.
    assert (
        (prefix_counts[:, None] - 1) / counts[:, None] <= (prefix_counts / counts)[None] + 1e-12
    ).all()


def test_what_is_asked_for_must_be_there():
    with pytest.raises(RequestError, match="samples is 501, and arrays has 500"):
        select_from(SORTED, samples=501)
    for samples in ("ten", "last:5", "first:0", "first:", 0, True, 1.5):
        with pytest.raises(ValidationError, match="whole number above 0, all, or first:N"):
            Request(samples=samples)


# In a plan


DOMAIN = Domain(kind="vector", shape=(2,))


def planned(labels, classes=10, **request):
    model = TorchModel(mlp(2, classes), DOMAIN)
    x = np.random.default_rng(0).uniform(size=(len(labels), 2))
    return plan_of(model, x, labels, attack="fgsm", **request)


def test_a_plan_takes_them_and_its_cells_say_so():
    stratified, first = planned(SORTED, samples=20), planned(SORTED, samples="first:20")
    assert stratified.ids.tolist() == select_from(SORTED, samples=20).ids.tolist()
    assert stratified.labels.tolist() == SORTED[
        stratified.ids
    ].tolist() and first.ids.tolist() == list(range(20))
    assert plan_hash(stratified) != plan_hash(first)
    another = planned(SORTED, samples=20, seed=3)
    assert plan_hash(stratified) != plan_hash(another)


def test_classes_without_samples_are_told_before_the_first_attack():
    notes = [line for line in planned(SORTED, samples="first:20").notes if "have no sample" in line]
    assert notes == [
        "9 of 10 classes have no sample among the 20 of this run (1, 2, 3, 4, 5 "
        "and 4 more): nothing is known about them"
    ]
    assert not [line for line in planned(SORTED, samples=20).notes if "have no sample" in line]
