"""Data sets within data sets keep the names of their classes, and data sets that are drawn anew are
refused."""

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split

import brinell
from _refusals import refused
from brinell.core.errors import RequestError

NAMES = ("cat", "dog", "emu")
N = 18


class Pictures(Dataset):
    """Pictures of three classes with their names, as an image folder has them."""

    def __init__(self, names=NAMES, noise=0.0):
        self.classes, self.noise = list(names), noise
        self.x = torch.rand(N, 3, 6, 7, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return N

    def __getitem__(self, index):
        x = self.x[index]
        return (x.flip(-1) if self.noise and torch.rand(()) < self.noise else x), index % 3


class Wrapper(Dataset):
    """A data set around another, which may change labels."""

    def __init__(self, dataset, change=lambda label: label):
        self.dataset, self.change = dataset, change

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        x, label = self.dataset[index]
        return x, self.change(label)


class Numbered(Pictures):
    """The same with a mapping in place of a list."""

    def __init__(self):
        super().__init__()
        self.class_to_idx = {"emu": 2, "cat": 0, "dog": 1}
        del self.classes


DS = Pictures()


def test_names_come_through_any_nesting():
    rows = [
        Subset(DS, [0, 1, 2, 8]),
        Subset(Subset(DS, range(2, 16)), [0, 5, 9]),
        random_split(DS, [9, 9])[1],
        ConcatDataset([DS, Subset(DS, [1, 2])]),
        Subset(ConcatDataset([Subset(DS, [3, 4, 5]), DS]), [0, 1, 2, 3]),
        DataLoader(Subset(DS, range(12)), batch_size=4),
        DataLoader(ConcatDataset([DS, DS]), shuffle=True),
        DataLoader(Subset(DS, range(17)), batch_size=5, drop_last=True),
        Subset(Numbered(), range(6)),
        Numbered(),
    ]
    for data in rows:
        assert brinell.data(data).classes == NAMES


def test_names_of_other_labels_are_left_out():
    assert brinell.data(Wrapper(DS, lambda label: int(label == 1))).classes == ("0", "1")
    assert brinell.data(ConcatDataset([DS, Pictures(("ant", "bee", "fly"))])).classes == (
        "0",
        "1",
        "2",
    )


def test_data_that_are_drawn_anew_are_refused():
    for wrap in [lambda data: data, lambda data: Subset(data, range(16)), DataLoader]:
        with pytest.raises(RequestError, check=refused("datasets._memory.Items._check_repeatable")):
            brinell.data(wrap(Pictures(noise=0.5)))
        labels = Wrapper(DS, lambda label: int(torch.randint(3, ())))
        with pytest.raises(RequestError, check=refused("datasets._memory.Items._check_repeatable")):
            brinell.data(labels)
