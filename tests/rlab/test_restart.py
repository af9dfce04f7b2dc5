"""Who is stuck, and which way out comes next: by hand."""

import torch

from brinell.rlab.cache import CLEAN
from brinell.rlab.restart import Restarts

ROW, LABEL = torch.tensor([0]), torch.tensor([0])


def restarts(patience=5, aims=True, classes=4):
    restarts_state = Restarts(1, classes, torch.tensor([7, 9]), patience, aims, torch.device("cpu"))
    restarts_state.clear(ROW)
    return restarts_state


def wait(restarts_state, margins):
    """One query for each height, all of which helped."""
    for margin in margins:
        restarts_state.wait(ROW, torch.tensor([True]), torch.tensor([margin]))
    return bool(restarts_state.stuck(ROW))


def test_no_gain_for_as_long_as_patience_lasts():
    restarts_state = restarts()
    for _ in range(4):
        restarts_state.wait(ROW, torch.tensor([False]), torch.tensor([-3.0]))
    assert not restarts_state.stuck(ROW)
    restarts_state.wait(ROW, torch.tensor([False]), torch.tensor([-3.0]))
    assert restarts_state.stuck(ROW)
    assert not wait(restarts_state, [-2.9]), "a gain ends it"


def test_small_gains_are_not_enough():
    """Two windows of ten queries; the second must bring a tenth of what is missing after it, which is 2."""
    begin = [-3.0] * 9 + [-2.2]
    assert wait(restarts(), [*begin, *[-2.1] * 9, -2.01])
    assert not wait(restarts(), [*begin, *[-2.1] * 9, -2.0])
    assert not wait(restarts(), begin), "there is nothing to compare the first with"
    assert not wait(restarts(patience=0), [*begin, *[-2.2] * 50])


def test_whole_inputs_come_first_and_once():
    restarts_state = restarts()
    assert [restarts_state.whole(ROW).item() for _ in range(4)] == [7, 9, CLEAN, CLEAN]


def test_steps_that_are_kept_and_other_classes_take_turns():
    """Class 1 leads; 3 and then 2 came nearest to it in other answers."""
    restarts_state, scores = restarts(), torch.tensor([[5.0, 4.0, 0.0, 1.0]])
    restarts_state.note(ROW, torch.tensor([[5.0, 0.0, 3.0, 0.0]]), LABEL)
    restarts_state.note(ROW, torch.tensor([[5.0, 0.0, 0.0, 3.5]]), LABEL)
    restarts_state.note(ROW, scores, LABEL)
    assert restarts_state.clean.tolist() == [[5, 0, 3, 0]], "of the first answer"
    aims = []
    for _ in range(3):
        assert (
            not len(restarts_state.restart(ROW, scores, LABEL)) and restarts_state.kept.item() and restarts_state.aim.item() == -1
        )
        restarts_state.kept[0] = False
        assert restarts_state.restart(ROW, scores, LABEL).tolist() == [0] and not restarts_state.kept.item()
        aims.append(restarts_state.aim.item())
        scores = torch.tensor([[5.0, 0.0, 0.0, 0.0]])
        scores[0, aims[-1]] = 4.0  # where such an episode ends
    assert aims == [3, 2, 1]


def test_with_one_class_to_go_for_steps_are_kept_each_time():
    for restarts_state in (restarts(classes=2), restarts(aims=False)):
        scores = torch.zeros(1, restarts_state.clean.shape[1])
        restarts_state.note(ROW, scores, LABEL)
        for _ in range(4):
            assert not len(restarts_state.restart(ROW, scores, LABEL)) and restarts_state.kept.item()
