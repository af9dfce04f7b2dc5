"""The built-in network: good enough, the same each time, and kept."""

import logging
from pathlib import Path

import pytest
import torch

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets.digits import Digits
from brinell.models import digits_cnn
from brinell.models._torch_model import TorchModel
from brinell.models.digits_cnn import DigitsCnn, cache_file
from brinell.testing.others import check_model

DOMAIN = Domain(kind="image", shape=(1, 8, 8), levels=17)


def accuracy(model: TorchModel) -> float:
    data = Digits()()
    with model.session(), torch.no_grad():
        right = model.predict(data.load(range(len(data)))).argmax(1) == torch.from_numpy(
            data.labels()
        )
    return float(right.float().mean())


def test_it_reads_digits() -> None:
    model = DigitsCnn()(DOMAIN)
    check_model(model)
    assert (model.name, model.classes) == ("digits-cnn", 10)
    assert accuracy(model) >= 0.97
    with pytest.raises(RequestError, match=r"takes images of shape \(1, 8, 8\) .*--data digits"):
        DigitsCnn()(Domain(kind="image", shape=(1, 28, 28)))


@pytest.mark.slow
def test_training_again_gives_the_same_bits_and_touches_no_global(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = DigitsCnn()(DOMAIN).digest()
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "new"))
    generator, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(threads + 1)  # sums, and so weights, would depend on it
    try:
        with torch.no_grad():
            model = DigitsCnn()(DOMAIN)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert model.digest() == digest
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert [file.name for file in (tmp_path / "new").iterdir()] == [cache_file().name], (
        "and no part of a file is left"
    )


def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own with the weights in it, and training replaced by a flag."""
    DigitsCnn()(DOMAIN)
    content = cache_file().read_bytes()
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.setattr(digits_cnn, "train", lambda network, seed: None)
    cache_file().write_bytes(content)
    return cache_file()


def test_a_damaged_cache_is_replaced(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for damage in [lambda raw: raw[:1000], lambda raw: b""]:
        with monkeypatch.context() as patch:
            file = copied(tmp_path_factory.mktemp("case"), patch)
            assert accuracy(DigitsCnn()(DOMAIN)) >= 0.97, (
                "from the cache, since nothing is trained here"
            )
            assert not caplog.records
            file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
            with caplog.at_level(logging.WARNING):
                DigitsCnn()(DOMAIN)
            assert "training digits-cnn again" in caplog.text
            caplog.clear()
            DigitsCnn()(DOMAIN)
            assert not caplog.records, "the file is whole again"


def test_a_cache_that_cannot_be_written_costs_no_more_than_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(digits_cnn, "train", lambda network, seed: None)
    assert DigitsCnn()(DOMAIN).classes == 10
    assert "cannot be written" in caplog.text


@pytest.mark.slow
def test_retrained_and_narrower_ones_have_weights_and_names_of_their_own() -> None:
    usual, narrow, reseeded = DigitsCnn(), DigitsCnn(width=4), DigitsCnn(width=4, seed=1)
    assert [factory.display_name for factory in (usual, narrow, reseeded)] == [
        "digits-cnn",
        "digits-cnn-w4",
        "digits-cnn-w4-s1",
    ]
    models = [factory(DOMAIN) for factory in (usual, narrow, reseeded)]
    assert len({model.digest() for model in models}) == 3
    assert [model.info.parameters for model in models] == [38282, 2570, 2570]
    assert min(accuracy(models[1]), accuracy(models[2])) >= 0.9
    with pytest.raises(ValueError, match="width is 0; it must be at least 1"):
        DigitsCnn(width=0)
