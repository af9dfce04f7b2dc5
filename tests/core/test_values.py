"""Arrays of any container: the values come as they are, in the machine's order of bytes, or a line
says why they cannot.
"""

import random

import numpy as np
import pytest
import torch

from _refusals import refused
from brinell.core.errors import RequestError
from brinell.core.values import as_array, as_tensor


class Wrapped:
    """An array of another library, which has `__array__` alone."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


@pytest.mark.filterwarnings("ignore")
def test_quantised_and_compressed_tensors_are_refused(subtests):
    for made in [
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        torch.Tensor.to_sparse_csr,
    ]:
        with subtests.test(made=made):
            with pytest.raises(RequestError, check=refused("core.values.as_strided")):
                as_tensor(made(torch.eye(3)), "inputs")


def packed(rng, values, depth):
    """The values in lists, tuples and wrappers, as deep as their axes at most."""
    if depth and values.ndim and rng.random() < 0.7:
        return rng.choice([list, tuple])(packed(rng, part, depth - 1) for part in values)
    return Wrapped(values) if rng.random() < 0.3 and values.ndim else values


def test_a_mask_is_refused_at_any_depth_and_values_are_kept_without_one(subtests):
    for seed in range(40):
        with subtests.test(seed=seed):
            rng = random.Random(seed)
            sides = tuple(rng.choice([1, 2, 3]) for _ in range(rng.choice([1, 2, 3])))
            numbers = np.random.default_rng(seed).random(sides)
            mask = np.zeros(sides, bool)
            if hides := rng.random() < 0.5:
                mask.flat[rng.randrange(mask.size)] = True
            values = np.ma.array(
                numbers.astype(rng.choice([">f4", "<f4", "f8"])),
                mask=mask if hides or rng.random() < 0.5 else False,
            )
            given = packed(rng, values, 3)
            if hides:
                with pytest.raises(RequestError, match="inputs"):
                    as_array(given, "inputs")
            else:
                found = as_array(given, "inputs")
                assert (
                    np.array_equal(found, values.data)
                    and found.dtype.isnative
                    and not isinstance(found, np.ma.MaskedArray)
                )
                assert np.array_equal(as_tensor(given, "inputs").numpy(), values.data)


def test_what_is_no_dense_array_of_real_numbers_is_refused(subtests):
    for value, says in [
        (torch.eye(3).to_sparse(), "sparse"),
        (torch.eye(3, device="meta"), "meta device"),
        (torch.eye(3) * 1j, "complex"),
        ([torch.eye(3), torch.eye(3).to_sparse()], "sparse"),
        (np.eye(3).astype("M8[s]"), "datetime64"),
        (np.eye(3).astype("U3"), "<U3"),
        ({"x": 1}, "type dict"),
        (iter([1]), "list_iterator"),
    ]:
        with subtests.test(value=value, says=says):
            with pytest.raises(RequestError, match=says) as refusal:
                as_tensor(value, "inputs")
            assert "\n" not in str(refusal.value)


def test_views_and_orders_of_bytes_are_kept_in_value(subtests):
    for view in [
        lambda x: x[::-1],
        lambda x: x[..., ::2],
        lambda x: x.T,
        lambda x: np.broadcast_to(x[:1], x.shape),
    ]:
        for kind in [">f4", "f8", "u1", ">i2", "f2"]:
            with subtests.test(view=view, kind=kind):
                values = view((np.arange(24).reshape(4, 6)).astype(kind))
                assert np.array_equal(as_tensor(values, "inputs").numpy(), values)
