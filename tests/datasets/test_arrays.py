"""Axes, scale, bounds and the hash of arrays as they are stored."""

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _refusals import refused
from brinell.core.errors import RequestError
from brinell.datasets._arrays import StoredArrays, arrange, blocks, domain_of
from brinell.datasets._labels import check_labels, class_names


def test_channels_come_first() -> None:
    rows = [
        ((9, 5), {}, "vector", (5,)),
        ((9, 28, 20), {}, "image", (1, 28, 20)),
        ((9, 28, 20, 3), {}, "image", (3, 28, 20)),
        ((9, 3, 28, 20), {}, "image", (3, 28, 20)),
        ((9, 3, 28, 3), {"layout": "last"}, "image", (3, 3, 28)),
        ((9, 3, 28, 3), {"layout": "first"}, "image", (3, 28, 3)),
        ((9, 16, 8, 6, 3), {}, "video", (3, 16, 8, 6)),
        ((9, 16, 8, 6), {"kind": "video"}, "video", (1, 16, 8, 6)),
        ((9, 2, 187), {"kind": "signal"}, "signal", (2, 187)),
        ((9, 187, 2), {"kind": "signal", "layout": "last"}, "signal", (2, 187)),
        ((9, 187), {"kind": "signal"}, "signal", (1, 187)),
    ]
    for stored, options, kind, shape in rows:
        arrangement = arrange(stored, **options)
        assert (arrangement.kind, arrangement.shape) == (kind, shape)
        x = np.arange(np.prod(stored)).reshape(stored)
        # Sample by sample: a stored axis of channels that is last must end up first.
        last = len(stored) == len(shape) + 1 and stored[1:] != shape
        expected = np.moveaxis(x, -1, 1) if last else x.reshape(stored[0], *shape)
        assert np.array_equal(arrangement(x), expected)


def test_what_cannot_be_told_is_asked_for() -> None:
    rows = [
        ((9, 3, 28, 3), {}, "layout=first or layout=last"),
        ((9, 20, 28, 20), {}, "layout="),
        ((9,), {}, "1 to 4 axes"),
        ((9, 5), {"kind": "video"}, "kind="),
        ((9, 5, 5), {"kind": "vector"}, "kind="),
    ]
    for stored, options, words in rows:
        with pytest.raises(RequestError, match=words) as error:
            arrange(stored, **options)
        assert "\n" not in str(error.value)


def test_bytes_become_zero_to_one() -> None:
    x = np.array([[0, 51, 255]], dtype=np.uint8)
    domain, divisor = domain_of(x, arrange(x.shape))
    assert (domain.low, domain.high, domain.levels, divisor) == (0, 1, 256, 255)


def test_floats_keep_8_bits_where_they_have_them() -> None:
    image = np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16) / 255
    assert domain_of(image, arrange(image.shape))[0].levels == 256
    image[0, 0, 0, 0] = 0.001
    assert domain_of(image, arrange(image.shape))[0].levels is None
    assert domain_of(image, arrange(image.shape), levels=17)[0].levels == 17
    assert domain_of(image, arrange(image.shape), levels=0)[0].levels is None


def test_whole_numbers_have_a_level_each() -> None:
    x = np.array([[-500, 700]], dtype=np.int16)
    domain, divisor = domain_of(x, arrange(x.shape), low=-1000, high=1000)
    assert (domain.low, domain.high, domain.levels, divisor) == (-1000, 1000, 2001, 1)


def test_values_outside_are_refused_with_what_was_found() -> None:
    rows = [
        ([0.0, 1.5], {}, "from 0 to 1.5, outside the bounds 0 to 1"),
        ([0.0, 1 + 3e-6], {}, "outside"),
        ([0.0, np.nan], {}, "NaN"),
        ([0.0, np.inf], {"high": 1e9}, "NaN or infinity"),
        ([0.0, 5.0], {"low": 9.0, "high": 3.0}, "outside the bounds|smaller"),
        ([1j, 0], {}, "real numbers"),
        ([0.5, 0.5], {"levels": 1}, "levels is 1"),
    ]
    for values, bounds, words in rows:
        x = np.array([values])
        with pytest.raises(RequestError, match=words):
            domain_of(x, arrange(x.shape), **bounds)


def test_rounding_at_the_bound_is_forgiven_and_moved_onto_it() -> None:
    x = np.array([[-5e-7, 1 + 5e-7, 0.5]])
    domain, divisor = domain_of(x, arrange(x.shape))
    data = StoredArrays(
        name="a", x=x, y=np.array([0]), arrangement=arrange(x.shape), domain=domain, classes=("0",), divisor=divisor
    )
    assert torch.equal(data.load([0]), torch.tensor([[0.0, 1.0, 0.5]]))


def test_labels_are_one_whole_number_per_sample() -> None:
    rows = [
        (np.array([0, 1]), "2 labels for 3"),
        (np.array([0, -1, 2]), "label -1"),
        (np.array([0, 0.5, 1]), "whole numbers"),
        (np.array(["a", "b", "c"]), "whole numbers"),
        (np.full((3, 3), 0.3), "argmax"),
        (np.tri(3), "several labels per sample .multi-label. are not supported"),
    ]
    for y, words in rows:
        with pytest.raises(RequestError, match=words):
            check_labels(y, 3)


def test_labels_in_a_column_or_as_floats_are_whole_numbers() -> None:
    assert check_labels(np.array([[2], [0]], np.uint8), 2).tolist() == [2, 0]
    assert check_labels(np.array([2.0, 0.0]), 2).dtype == np.int64
    assert (
        check_labels(np.eye(3)[[2, 0, 1]], 3).tolist() == check_labels(np.eye(3, dtype=bool)[[2, 0, 1]], 3).tolist() == [2, 0, 1]
    )


def test_class_names() -> None:
    assert class_names(None, np.array([0, 2])) == ("0", "1", "2")
    assert class_names([b"cat", "dog", 7], np.array([0, 1])) == ("cat", "dog", "7")
    with pytest.raises(RequestError, check=refused("datasets._labels.class_names")):
        class_names(["a", "b"], np.array([0, 2]))


def stored(x: np.ndarray[Any, Any], y: list[int]) -> StoredArrays:
    domain, divisor = domain_of(x, arrange(x.shape))
    return StoredArrays(
        name="a", x=x, y=np.array(y), arrangement=arrange(x.shape), domain=domain, classes=tuple("0123456789"), divisor=divisor
    )


@given(st.permutations(range(4)), st.integers(0, 3))
def test_the_digest_sees_content_and_order_and_nothing_else(order: list[int], pixel: int) -> None:
    x = np.arange(4 * 3 * 5 * 5, dtype=np.uint8).reshape(4, 3, 5, 5)
    y = [3, 1, 4, 1]
    digest = stored(x, y).digest()
    assert stored(np.moveaxis(x, 1, -1).copy(), y).digest() == digest, "channels last, same content"
    assert stored(np.asfortranarray(x), y).digest() == digest
    is_sorted = order == sorted(order)
    assert (stored(x[order], [y[i] for i in order]).digest() == digest) == is_sorted
    changed = x.copy()
    changed[pixel, 0, 0, 0] ^= 1
    assert stored(changed, y).digest() != digest
    assert stored(x, [3, 1, 4, 2]).digest() != digest


def test_the_digest_is_the_same_on_every_machine() -> None:
    # Written out by hand: if it changes, no run can be resumed or verified any more.
    content = b"image (3, 2, 2) [0.0] [1.0] 256 255.0" + bytes(range(244, 256)) + b"\1\0\0\0\0\0\0\0"
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    assert stored(np.arange(244, 256, dtype=np.uint8).reshape(1, 3, 2, 2), [1]).digest() == digest
    big = np.array([[0.25, 1.0]], dtype=">f4")
    assert stored(big, [1]).digest() == stored(big.astype("<f4"), [1]).digest()


def test_an_array_is_read_in_blocks() -> None:
    x = np.zeros((10, 1 << 20), dtype=np.uint8)
    assert [len(rows) for rows in blocks(x)] == [4, 4, 2]
