"""Gradients of surrogates, and answers of models in float32: the same class leads."""

import numpy as np
import pytest
import torch

from _helpers import Recorder, batch_of, mlp, threat_of
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import BatchError, ModelError
from brinell.core.ledger import Ledger
from brinell.core.model import as_logits, ask, check_exit
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))


def test_slopes_are_those_of_each_surrogate_whatever_the_batch():
    models = [TorchModel(mlp(seed=seed), SIX) for seed in (1, 2)] + [
        Recorder(lambda x: torch.zeros(len(x), 3), SIX, 3)
    ]
    x = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    weights = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    expected = torch.zeros(5, 3, 6)
    for column, model in enumerate(models[:2]):
        for row in range(5):
            leaf = x[row : row + 1].clone().requires_grad_()
            (model.predict(leaf)[0] * weights[row]).sum().backward()
            expected[row, column] = leaf.grad[0]
    batch, threat = batch_of(x, [0] * 5), threat_of(0.1, domain=SIX, n=5)
    for size in (1, 2, 64):
        ledger = Ledger(models[0], batch, threat, batch_size=size, surrogates=models)
        torch.testing.assert_close(ledger.oracle().slopes(batch.ids, x, weights), expected)
        assert ledger.costs.surrogate_passes.tolist() == [3] * 5 and not ledger.costs.forwards.any()
    assert max(len(call) for call in models[2].calls) == 5 and not x.requires_grad
    faulty = Recorder(lambda x: (x - x).sqrt()[:, :3], SIX, 3)
    with pytest.raises(ModelError, match="NaN or infinity"):
        Ledger(models[0], batch, threat).oracle().follow([faulty]).slopes(batch.ids, x, weights)


def test_the_class_that_leads_leads_in_float32_too():
    rng = np.random.default_rng(0)
    near = 1e6 + rng.integers(0, 3, (40, 4)) * 1e-6
    wide = rng.normal(size=(40, 4)) * 10.0 ** rng.integers(-300, 300, (40, 1))
    whole = 2**30 + rng.integers(0, 3, (40, 4))
    for values in (
        near,
        wide,
        whole,
        whole.astype(np.uint8),
        whole % 2 == 0,
        rng.normal(size=(9, 4)).astype(np.float16),
    ):
        answer = torch.from_numpy(values)
        logits = as_logits(answer)
        wide_answer = answer.double()
        assert logits.dtype == torch.float32 and torch.equal(
            logits.argmax(1), wide_answer.argmax(1)
        ), values.dtype
        finite = wide_answer.isfinite() & (wide_answer.abs() < 1e38)
        torch.testing.assert_close(
            logits[finite].double(), wide_answer[finite], rtol=1e-6, atol=1e-40
        )
    same = torch.rand(2, 3)
    assert as_logits(same) is same
    infinite = torch.tensor(
        [[float("inf"), -float("inf"), float("nan"), 1e300]], dtype=torch.float64
    )
    assert (
        as_logits(infinite)[0, :2].tolist() == [float("inf"), -float("inf")]
        and as_logits(infinite)[0, 2].isnan()
    )
    assert as_logits(infinite)[0, 3].isfinite() and as_logits(
        torch.zeros(0, 3, dtype=torch.float64)
    ).shape == (0, 3)


def test_answers_of_float64_keep_their_gradient():
    leaf = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64, requires_grad=True)
    logits = as_logits(leaf)
    (grad,) = torch.autograd.grad(logits[0, 1], leaf)
    assert logits.argmax(1).item() == 1 and grad.tolist() == [[0.0, 1.0]]


def test_answers_that_are_no_logits_are_refused():
    x = torch.zeros(2, 2)
    for answer, words in (
        (np.zeros((2, 2)), "a ndarray"),
        ([1, 2], "a list"),
        (torch.zeros(2, 2, dtype=torch.complex64), "complex"),
    ):
        with pytest.raises(ModelError, match=words):
            ask(Recorder(lambda x, answer=answer: answer), x)
    with pytest.raises(BatchError, match="batch of 2 inputs"):
        ask(Recorder(lambda x: x.missing), x)
    with pytest.raises(ModelError, check=refused("core.model.check_exit")):
        check_exit("net", SystemExit(1))
    assert check_exit("net", ValueError()) is None
    with pytest.raises(KeyboardInterrupt):
        check_exit("net", KeyboardInterrupt())
