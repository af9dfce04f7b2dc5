"""Samples of masks and boxes on which no input can meet the criterion."""

from types import SimpleNamespace

import torch

from brinell.engine.dense_outputs import DenseSubject


def test_samples_without_what_the_criterion_counts_are_named():
    truth = SimpleNamespace(load=lambda ids: torch.as_tensor(ids))
    dataset = SimpleNamespace(info=SimpleNamespace(truth=truth))
    for task, noun in (("segmentation", "pixel"), ("detection", "object")):
        subject = DenseSubject(
            model=None, dataset=dataset, task=task, text="cat", make=lambda ids: SimpleNamespace(attackable=ids % 100 != 7)
        )
        expected = {7: f"it has no {noun} that cat counts", 107: f"it has no {noun} that cat counts"}
        assert subject.hopeless(range(3, 150)) == expected
