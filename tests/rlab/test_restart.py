"""Who is stuck, and which way out comes next: by hand."""

import torch

from brinell.rlab.cache import CLEAN
from brinell.rlab.restart import Restarts

ROW, LABEL = torch.tensor([0]), torch.tensor([0])


def restarts(patience=5, aims=True, classes=4):
    made = Restarts(1, classes, torch.tensor([7, 9]), patience, aims, torch.device("cpu"))
    made.clear(ROW)
    return made


def wait(made, margins):
    """One query for each height, all of which helped."""
    for margin in margins:
        made.wait(ROW, torch.tensor([True]), torch.tensor([margin]))
    return bool(made.stuck(ROW))


def test_no_gain_for_as_long_as_patience_lasts():
    made = restarts()
    for _ in range(4):
        made.wait(ROW, torch.tensor([False]), torch.tensor([-3.0]))
    assert not made.stuck(ROW)
    made.wait(ROW, torch.tensor([False]), torch.tensor([-3.0]))
    assert made.stuck(ROW)
    assert not wait(made, [-2.9]), "a gain ends it"


def test_small_gains_are_not_enough():
    """Two windows of ten queries; the second must bring a tenth of what is missing after it, which is 2."""
    begin = [-3.0] * 9 + [-2.2]
    assert wait(restarts(), [*begin, *[-2.1] * 9, -2.01])
    assert not wait(restarts(), [*begin, *[-2.1] * 9, -2.0])
    assert not wait(restarts(), begin), "there is nothing to compare the first with"
    assert not wait(restarts(patience=0), [*begin, *[-2.2] * 50])


def test_whole_inputs_come_first_and_once():
    made = restarts()
    assert [made.whole(ROW).item() for _ in range(4)] == [7, 9, CLEAN, CLEAN]


def test_steps_that_are_kept_and_other_classes_take_turns():
    """Class 1 leads; 3 and then 2 came nearest to it in other answers."""
    made, now = restarts(), torch.tensor([[5.0, 4.0, 0.0, 1.0]])
    made.note(ROW, torch.tensor([[5.0, 0.0, 3.0, 0.0]]), LABEL)
    made.note(ROW, torch.tensor([[5.0, 0.0, 0.0, 3.5]]), LABEL)
    made.note(ROW, now, LABEL)
    assert made.clean.tolist() == [[5, 0, 3, 0]], "of the first answer"
    aims = []
    for _ in range(3):
        assert not len(made.restart(ROW, now, LABEL)) and made.kept.item() and made.aim.item() == -1
        made.kept[0] = False
        assert made.restart(ROW, now, LABEL).tolist() == [0] and not made.kept.item()
        aims.append(made.aim.item())
        now = torch.tensor([[5.0, 0.0, 0.0, 0.0]])
        now[0, aims[-1]] = 4.0  # where such an episode ends
    assert aims == [3, 2, 1]


def test_with_one_class_to_go_for_steps_are_kept_each_time():
    for made in (restarts(classes=2), restarts(aims=False)):
        now = torch.zeros(1, made.clean.shape[1])
        made.note(ROW, now, LABEL)
        for _ in range(4):
            assert not len(made.restart(ROW, now, LABEL)) and made.kept.item()
