"""The file of a model changes settings of torch: what is created afterwards is as before."""

import numpy as np
import torch

import brinell
from brinell.core.torch_settings import float32_products, kept_defaults

NET = """
import torch
torch.set_grad_enabled(False)
torch.set_default_device("meta")
torch.set_default_dtype(torch.float64)

def net():
    torch.set_default_device("cpu")
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)).float()
"""


def defaults():
    return torch.empty(0).dtype, torch.empty(0).device, torch.is_grad_enabled()


def test_defaults_are_as_before():
    before = defaults()
    with kept_defaults():
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        assert all(after != value for after, value in zip(defaults(), before, strict=True))
    assert defaults() == before


def test_products_have_the_precision_that_is_asked_for():
    before = torch.get_float32_matmul_precision()
    with float32_products(tf32=True):
        assert torch.get_float32_matmul_precision() == "high"
    with float32_products():
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before


def test_a_file_that_turns_gradients_off_is_attacked_by_gradients(tmp_path):
    before = defaults()
    (tmp_path / "net.py").write_text(NET)
    np.savez(
        tmp_path / "data.npz",
        x=np.random.default_rng(0).random((6, 1, 8, 8), np.float32),
        y=np.arange(6) % 3,
    )
    result = brinell.audit(
        f"{tmp_path}/net.py:net",
        f"npz:{tmp_path}/data.npz",
        eps=1.0,
        attack="fgsm",
        out=tmp_path / "run",
    )
    assert result.robust().k == 0 and defaults() == before
