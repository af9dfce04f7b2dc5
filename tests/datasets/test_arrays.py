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
from brinell.datasets._arrays import StoredArrays, arrange, domain_of
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


def test_levels_follow_from_the_values() -> None:
    for values, bounds, expected in (
        (np.array([[0, 51, 255]], np.uint8), {}, (0, 1, 256, 255)),
        (np.array([[-500, 700]], np.int16), {"low": -1000, "high": 1000}, (-1000, 1000, 2001, 1)),
    ):
        domain, divisor = domain_of(values, arrange(values.shape), **bounds)
        assert (domain.low, domain.high, domain.levels, divisor) == expected
    image = np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16) / 255
    assert domain_of(image, arrange(image.shape))[0].levels == 256
    image[0, 0, 0, 0] = 0.001
    assert [
        domain_of(image, arrange(image.shape), **more)[0].levels
        for more in ({}, {"levels": 17}, {"levels": 0})
    ] == [
        None,
        17,
        None,
    ]


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
    assert torch.equal(
        stored(np.array([[-5e-7, 1 + 5e-7, 0.5]]), [0]).load([0]), torch.tensor([[0.0, 1.0, 0.5]])
    )


def test_labels_are_one_whole_number_per_sample_and_each_class_has_a_name() -> None:
    for y, words in (
        (np.array([0, 1]), "2 labels for 3"),
        (np.array([0, -1, 2]), "label -1"),
        (np.array([0, 0.5, 1]), "whole numbers"),
        (np.array(["a", "b", "c"]), "whole numbers"),
        (np.full((3, 3), 0.3), "argmax"),
        (np.tri(3), "several labels per sample .multi-label. are not supported"),
    ):
        with pytest.raises(RequestError, match=words):
            check_labels(y, 3)
    for good in (
        np.array([[2], [0], [1]], np.uint8),
        np.array([2.0, 0.0, 1.0]),
        np.eye(3)[[2, 0, 1]],
    ):
        assert check_labels(good, 3).tolist() == [2, 0, 1]
    assert class_names(None, np.array([0, 2])) == ("0", "1", "2")
    assert class_names([b"cat", "dog", 7], np.array([0, 1])) == ("cat", "dog", "7")
    with pytest.raises(RequestError, check=refused("datasets._labels.class_names")):
        class_names(["a", "b"], np.array([0, 2]))


def stored(x: np.ndarray[Any, Any], y: list[int]) -> StoredArrays:
    domain, divisor = domain_of(x, arrange(x.shape))
    return StoredArrays(
        name="a",
        x=x,
        y=np.array(y),
        arrangement=arrange(x.shape),
        domain=domain,
        classes=tuple("0123456789"),
        divisor=divisor,
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
    content = (
        b"image (3, 2, 2) [0.0] [1.0] 256 255.0" + bytes(range(244, 256)) + b"\1\0\0\0\0\0\0\0"
    )
    inputs = hashlib.blake2b(content, digest_size=16).hexdigest()
    digest = hashlib.blake2b(
        "\n".join((inputs, *"0123456789")).encode(), digest_size=16
    ).hexdigest()
    assert stored(np.arange(244, 256, dtype=np.uint8).reshape(1, 3, 2, 2), [1]).digest() == digest
    big = np.array([[0.25, 1.0]], dtype=">f4")
    assert stored(big, [1]).digest() == stored(big.astype("<f4"), [1]).digest()
