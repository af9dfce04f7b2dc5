"""Arrays, tensors and torch Datasets as they are passed in Python."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets._memory import from_arrays
from brinell.testing.others import check_dataset

X = torch.linspace(0, 1, 5 * 3 * 5 * 5).reshape(5, 3, 5, 5)
Y = torch.tensor([0, 1, 2, 1, 0])


class Pairs(Dataset[Any]):
    """A data set as torchvision's are: one pair at a time."""

    def __init__(self, x: Any = X, y: Any = Y) -> None:
        self.x, self.y, self.read = x, y, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.read += 1
        return self.x[index], int(self.y[index])


def test_every_form_holds_the_same() -> None:
    for arguments in [
        (X, Y),
        (X.numpy(), Y.numpy()),
        (X.numpy(), Y.tolist()),
        (TensorDataset(X, Y),),
        (Pairs(),),
        (X.double(), Y),
    ]:
        data = from_arrays(*arguments)
        check_dataset(data)
        assert (data.domain.kind, data.domain.shape, data.domain.levels) == (
            "image",
            (3, 5, 5),
            None,
        )
        assert data.classes == ("0", "1", "2") and data.name == "arrays"
        assert torch.equal(data.load([3, 0]), X[[3, 0]])
        assert torch.equal(torch.from_numpy(data.labels()), Y)


def test_items_are_read_when_they_are_asked_for() -> None:
    pairs = Pairs()
    data = from_arrays(pairs)
    before = pairs.read
    data.load([1, 2])
    assert pairs.read == before + 2
    assert data.digest() == from_arrays(X, Y).digest()


def test_a_domain_is_taken_at_its_word() -> None:
    domain = Domain(kind="vector", shape=(2,), low=(-1.0, 0.0), high=(1.0, 9.0))
    data = from_arrays(np.array([[-1.0, 9.0]]), [0], domain=domain, classes=["only"], name="mine")
    assert (data.domain, data.classes, data.name) == (domain, ("only",), "mine")
    assert data.load([0]).tolist() == [[-1, 9]]
    from_arrays(np.array([[-1.0, 9.000005]]), [0], domain=domain)
    with pytest.raises(RequestError, check=refused("datasets._memory._check_bounds")):
        from_arrays(np.array([[-2.0, 3.0]]), [0], domain=domain)
    with pytest.raises(RequestError, check=refused("datasets._memory._check_bounds")):
        from_arrays(np.array([[np.nan, 3.0]]), [0], domain=domain)
    with pytest.raises(RequestError, match="do not live in a domain"):
        from_arrays(np.zeros((1, 3)), [0], domain=domain)


def test_bad_data_give_one_line() -> None:
    rows = [
        ((torch.zeros(2, 1, 1, 1, 1, 1), Y[:2]), "give a Domain"),
        ((X, Y, ["a", "b"]), "2 names"),
        ((Pairs(X[:0], Y[:0]),), "empty"),
        ((X[:0], Y[:0]), "empty"),
        ((Pairs(["picture"], [0]),), "transform to a tensor"),
        ((X,), "has no labels: give \\(x, y\\)"),
        ((7,), "is no data"),
    ]
    for arguments, words in rows:
        with pytest.raises(RequestError, match=words) as error:
            from_arrays(*arguments)
        assert "\n" not in str(error.value)
