"""Archives of any names, kinds, orders of axes and ranges open, or are refused once with the spec that opens them."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import brinell
from brinell.core.errors import RequestError
from brinell.datasets.npz import Npz
from brinell.engine.sources import open_data

INPUT_NAMES = ("x", "X", "images", "data", "inputs", "beats", "ecg", "X_test", "features", "arr_0", "signals", "beats_uV")
LABEL_NAMES = ("y", "labels", "Y", "target", "y_test", "label", "arr_1")


def heartbeats(rng, n, length):
    """(n, length): smooth curves with a peak, in millivolts."""
    time = np.linspace(-1, 1, length)
    peaks = rng.uniform(0.5, 2, (n, 1)) * np.exp(-((time - rng.uniform(-0.2, 0.2, (n, 1))) ** 2) / 0.01)
    return peaks + 0.2 * np.sin(3 * time + rng.uniform(0, 3, (n, 1)))


def stored(kind, rng, n):
    """Inputs of a kind as people store them, in a random order of axes and a random range."""
    if kind == "signal":
        length = int(rng.integers(100, 400))
        leads = int(rng.choice([1, 2, 12]))
        x = np.stack([heartbeats(rng, n, length) for _ in range(leads)], 1)
        x = x[:, 0] if leads == 1 and rng.random() < 0.6 else x
        x = x.swapaxes(1, 2) if x.ndim == 3 and rng.random() < 0.4 else x
        return (x * rng.choice([1.0, 1000.0])).astype(rng.choice(["float32", "float64"]))
    side = int(rng.integers(6, 20))
    x = rng.random((n, 3, side, side + 1))
    x = x.transpose(0, 2, 3, 1) if rng.random() < 0.5 else x
    scale = rng.choice(["unit", "bytes", "floats", "integers", "normalised"])
    scales = {
        "unit": x,
        "bytes": (255 * x).astype(np.uint8),
        "floats": np.round(255 * x),
        "integers": (255 * x).astype(np.int64),
        "normalised": (x - 0.45) / 0.22,
    }
    return scales[scale]


def reopen(spec):
    """The data of a spec, and the number of refusals until it opened; each refusal ends with the spec to write."""
    for refusals in range(2):
        try:
            return open_data(spec), refusals
        except RequestError as error:
            proposal = re.search(r"write (npz:\S+)$", str(error))
            assert proposal, error
            spec = proposal[1]
    return open_data(spec), 2


def test_archives_open_after_at_most_one_refusal(tmp_path_factory, subtests):
    for seed in range(40):
        with subtests.test(seed=seed):
            tmp_path = tmp_path_factory.mktemp("case")
            rng = np.random.default_rng(seed)
            n, kind = int(rng.integers(12, 40)), str(rng.choice(["signal", "image"]))
            x, y = stored(kind, rng, n), np.arange(n) % 3
            names = rng.choice(INPUT_NAMES), rng.choice(LABEL_NAMES)
            labels = [y, y[:, None], np.eye(3)[y], np.eye(3, dtype=bool)[y], y.astype(float)][int(rng.integers(5))]
            more = {"patient": np.arange(n).astype(str)} if rng.random() < 0.3 else {}
            np.savez(tmp_path / "some.npz", **{str(names[0]): x, str(names[1]): labels}, **more)
            data, refusals = reopen(f"{tmp_path}/some.npz")
            assert refusals < 2 and data.domain.kind == kind, (x.shape, names)
            assert data.labels().tolist() == y.tolist()
            assert data.domain.shape[0] == (
                x.shape[1] if x.ndim > 2 and x.shape[1] < x.shape[-1] else x.shape[-1] if x.ndim > 2 else 1
            )
            batch = data.load([0, 1])
            low, high = data.domain.bounds()
            assert bool((batch >= low).all()) and bool((batch <= high).all()) and float((high - low).max()) < 1e5


def test_the_users_options_stay_in_the_proposal(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "b.npz", beats=heartbeats(rng, 30, 200), target=np.arange(30) % 2, patient=np.arange(30) // 10)
    data, refusals = reopen(f"{tmp_path}/b.npz?groups=patient&unit=mV&rate=360")
    assert refusals == 1 and data.domain.kind == "signal" and data.groups is not None and data.info.sampling.unit == "mV"


def test_labels_of_several_classes_are_said_to_be_unsupported(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "m.npz", x=rng.random((20, 1, 8, 8)), y=rng.random((20, 5)) < 0.5)
    with pytest.raises(
        RequestError, match="several labels per sample .multi-label. are not supported; audit one label at a time"
    ):
        open_data(f"npz:{tmp_path}/m.npz")


def test_what_no_option_cures_is_refused_without_a_proposal(tmp_path):
    np.savez(tmp_path / "n.npz", x=np.full((4, 1, 8, 8), np.nan), y=np.arange(4))
    np.savez(tmp_path / "o.npz", x=np.zeros((4, 1, 8, 8)))
    for name in ("n", "o"):
        with pytest.raises(RequestError) as caught:
            Npz(path=f"{tmp_path}/{name}.npz")()
        assert "write npz:" not in str(caught.value)


def test_rows_of_labels_are_one_hot_or_refused_in_every_container(subtests):
    for seed in range(6):
        with subtests.test(seed=seed):
            rng = np.random.default_rng(seed)
            x, y = rng.random((20, 1, 8, 8), dtype=np.float32), np.arange(20) % 4
            one_hot = np.eye(4, dtype=rng.choice(["int64", "float32", "bool"]))[y]
            several = one_hot.copy()
            several[int(rng.integers(20))] = rng.permutation([1, 1, 0, 1])
            for labels, fits in ((one_hot, True), (several, False)):
                pairs = [(torch.tensor(value), torch.tensor(label)) for value, label in zip(x, labels, strict=True)]
                tensors = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(labels))
                for data in ((x, labels), pairs, tensors, torch.utils.data.DataLoader(tensors, batch_size=7)):
                    if fits:
                        assert brinell.data(data).labels().tolist() == y.tolist()
                    else:
                        with pytest.raises(RequestError, match="several labels per sample .multi-label. are not supported"):
                            brinell.data(data)


def test_multi_label_models_are_said_to_be_unsupported():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5))
    net.main_input_name, net.config = "pixel_values", SimpleNamespace(problem_type="multi_label_classification")
    data = (np.zeros((6, 1, 8, 8), np.float32), np.arange(6) % 5)
    with pytest.raises(RequestError, match="is a multi-label model .problem_type., .* audit one label at a time"):
        brinell.audit(net, data, eps=0.1, attack="fgsm")
