"""The built-in digits, and the split that audit and training share."""

import numpy as np

from brinell.datasets.digits import Digits
from brinell.testing.others import check_dataset


def test_digits() -> None:
    test, train = Digits()(), Digits(split="train")()
    check_dataset(test)
    check_dataset(train)
    assert (len(test), len(train)) == (539, 1258)
    assert (
        test.domain.shape == (1, 8, 8)
        and test.domain.levels == 17
        and test.classes == tuple("0123456789")
    )
    assert np.bincount(test.labels()).min() >= 52, "every class is there"


def test_no_image_is_in_both_halves() -> None:
    def rows(split: str) -> list[bytes]:
        data = Digits(split=split)()  # type: ignore[arg-type]
        return [row.numpy().tobytes() for row in data.load(range(len(data)))]

    from sklearn.datasets import load_digits

    all_images = sorted((image / 16).astype(np.float32).tobytes() for image in load_digits().images)
    assert sorted(rows("train") + rows("test")) == all_images
    assert not set(rows("train")) & set(rows("test"))
