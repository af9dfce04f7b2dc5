"""What a device may refuse: it is not there, its memory is short, it lacks an operation, or a model
lies on several.
"""

import copy
import os
import subprocess
import sys
import tomllib

import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import brinell
from _helpers import mlp
from _second_device import NAME, second_device
from brinell.core.domain import Domain
from brinell.core.errors import MemoryShortError, ModelError, RequestError
from brinell.core.memory import is_memory_short
from brinell.core.model import ask
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.plan import choose_device
from brinell.models._torch_model import TorchModel
from brinell.testing import studies as rules

DOMAIN = Domain(kind="vector", shape=(6,))
SETTINGS = {"attack": "fgsm", "eps": "0.1"}
SMOOTH = {"method": "smoothing?draws=30&first=8", "samples": 3}


class Around(nn.Module):
    """A network that raises an error for more than `limit` inputs that do not lie on the processor."""

    def __init__(self, error, limit=0):
        super().__init__()
        self.network, self.error, self.limit = mlp(), error, limit

    def forward(self, x):
        if x.device.type != "cpu" and len(x) > self.limit:
            raise self.error
        return self.network(x)


def samples(n=12):
    x = torch.rand(n, 6, generator=torch.Generator().manual_seed(1))
    return x.numpy(), mlp()(x).argmax(1).numpy()


def rows_of(folder):
    tables = [pq.read_table(file) for file in sorted(folder.rglob("*.parquet"))]
    return [
        table.drop_columns("seconds").to_pylist()
        if "seconds" in table.column_names
        else table.to_pylist()
        for table in tables
    ]


# Memory


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.9 GB). Tried to allocate 2 GB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
            "can't allocate memory"
        ),
    ],
    ids=["cuda", "mps", "runtime", "cudnn", "processor"],
)
def test_batches_are_halved_on_every_device(error):
    sizes, remarks = [], []

    def work():
        sizes.append(sizer.size)
        if sizer.size > 4:
            raise error
        return sizer.size

    sizer = BatchSizer(16, remarks.append)
    assert is_memory_short(error) and sizer.fit(work) == 4 and sizes == [16, 8, 4]
    with pytest.raises(
        MemoryShortError,
        match="one input alone does not fit .*--device cpu, or one with more memory",
    ):
        BatchSizer(1, remarks.append).fit(lambda: (_ for _ in ()).throw(error))


def test_other_errors_are_not_of_memory():
    assert not is_memory_short(RuntimeError("a model of shapes that run out of memory lanes"))
    with pytest.raises(RuntimeError, match="no such call"):
        BatchSizer(16, print).fit(lambda: (_ for _ in ()).throw(RuntimeError("no such call")))


@pytest.mark.parametrize(
    ("verb", "settings"),
    [
        ("certify", SMOOTH),
        pytest.param("corrupt", {"kind": "gaussian-noise", "severity": 2}, marks=pytest.mark.slow),
        pytest.param("audit", SETTINGS, marks=pytest.mark.slow),
    ],
)
def test_a_verb_goes_on_with_smaller_batches(verb, settings, tmp_path):
    (x, y), error = samples(), RuntimeError("MPS backend out of memory (MPS allocated: 8.9 GB)")
    x = x.reshape(-1, 1, 2, 3)
    network, call = nn.Sequential(nn.Flatten(), Around(error, limit=5)), getattr(brinell, verb)
    with second_device():
        for limit in (5, 100):
            network[1].limit = limit
            call(network, (x, y), **settings, device=NAME, batch_size=16, out=tmp_path / str(limit))
    assert rules.rows_match(*(rules.rows_of(tmp_path / limit) for limit in ("5", "100")))


def test_an_attack_from_python_goes_on_with_smaller_batches():
    (x, y), error = (
        samples(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    )
    settings = {"attack": "apgd?steps=3", "eps": 0.1, "answers": "logits"}
    with second_device():
        inputs, labels = torch.from_numpy(x).to(NAME), torch.from_numpy(y).to(NAME)
        with pytest.warns(
            brinell.BrinellWarning, match="batches of 6 inputs: from there on they hold 3"
        ):
            adversarial = brinell.attack(
                Around(error, limit=4).to(NAME), inputs, labels, **settings
            ).x_adv.cpu()
    expected = brinell.attack(
        Around(error).eval(), torch.from_numpy(x), torch.from_numpy(y), **settings
    ).x_adv
    assert torch.equal(adversarial, expected)


@pytest.mark.slow
def test_training_without_memory_is_one_line(tmp_path):
    (x, y), error = (
        samples(64),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    )
    network, settings = Around(error, limit=10), {"eps": "0.1", "epochs": 1, "batch_size": 16}
    with (
        second_device(),
        pytest.raises(MemoryShortError, match="(?s)^[^\n]*2.00 GiB[^\n]*--batch-size[^\n]*$"),
    ):
        brinell.harden(
            network,
            (x[:8], y[:8]),
            train=(x[8:], y[8:]),
            **settings,
            device=NAME,
            out=tmp_path / "run",
        )


def test_memory_for_no_input_is_one_line(tmp_path):
    (x, y), error = (
        samples(4),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    )
    with (
        second_device(),
        pytest.raises(
            MemoryShortError, match="(?s)^[^\n]*of 1 inputs [^\n]*2.00 GiB[^\n]*--device cpu[^\n]*$"
        ),
    ):
        brinell.certify(
            Around(error), (x, y), **SMOOTH, batch_size=2, device=NAME, out=tmp_path / "run"
        )


# Operations


LACKS = (
    NotImplementedError(
        "The operator 'aten::_x' is not currently implemented for the MPS "
        "device. If you want this op"
    ),
    TypeError(
        "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
    ),
)


@pytest.mark.parametrize("error", LACKS, ids=["operation", "float64"])
@pytest.mark.parametrize("verb", ["certify", pytest.param("audit", marks=pytest.mark.slow)])
def test_the_processor_goes_on_with_what_a_device_cannot_do(error, verb, tmp_path):
    (x, y), settings = samples(4), SMOOTH if verb == "certify" else SETTINGS
    call = getattr(brinell, verb)
    with second_device():
        call(Around(error), (x, y), **settings, device=NAME, out=tmp_path / "second")
    call(Around(error), (x, y), **settings, device="cpu", out=tmp_path / "cpu")
    assert (
        tomllib.loads((tmp_path / "second" / "run.toml").read_text()).get("device", "cpu") == "cpu"
    )
    assert repr(rows_of(tmp_path / "second")) == repr(rows_of(tmp_path / "cpu"))  # NaN included


# Devices


def test_a_device_that_is_not_there():
    with pytest.raises(
        RequestError, match=r"^device 'cuda:7' cannot be used \(.*\): choose cpu, or auto$"
    ):
        choose_device("cuda:7")


def test_a_model_half_on_the_processor():
    with second_device():
        network = mlp()
        network[1].to(NAME)
        with pytest.raises(RequestError, match=r"^[^\n]*tensors of two devices[^\n]*$"):
            TorchModel(network, DOMAIN)


class Remembering(nn.Module):
    """A network with a tensor that is no buffer, or that is made on the processor."""

    def __init__(self, has_mean):
        super().__init__()
        self.network, self.mean = mlp(), torch.full((6,), 0.5) if has_mean else None

    def forward(self, x):
        return self.network(x - (torch.full((6,), 0.5) if self.mean is None else self.mean))


@pytest.mark.parametrize("has_mean", [True, False])
def test_a_tensor_that_stays_behind(has_mean):
    model = TorchModel(Remembering(has_mean), DOMAIN)
    with (
        second_device(),
        model.info.session(NAME),
        pytest.raises(ModelError, match="^[^\n]*tensors of two devices[^\n]*$"),
    ):
        ask(model, torch.rand(2, 6, device=NAME))


class Halves(nn.Module):
    """A network whose second half lies on another device, as a device map places it."""

    def __init__(self):
        super().__init__()
        self.network = mlp()
        self.network[3:].to(NAME)

    def forward(self, x):
        return self.network[3:](self.network[:3](x).to(NAME))


def places(module):
    return [parameter.device.type for parameter in module.parameters()]


@pytest.mark.parametrize("device", ["cpu", NAME])
def test_a_model_on_two_devices_stays_there(device):
    x = torch.rand(3, 6)
    with second_device():
        module = Halves()
        before, model = places(module), TorchModel(module, DOMAIN)
        with model.info.session(device):
            leaf = x.to(device).requires_grad_()
            answer = ask(model, leaf)
            (grad,) = torch.autograd.grad(answer.sum(), leaf)
            assert places(module) == before and answer.device.type == grad.device.type == device
        answers = answer.detach().cpu()
    assert torch.equal(answers, mlp()(x))


class Parallel(nn.DataParallel):
    """Data parallelism over two devices that are one."""

    def __init__(self, module):
        super().__init__(module)
        self.device_ids, self.calls = [0, 1], 0

    def forward(self, x):
        self.calls += 1
        return torch.cat([self.module(part) for part in x.chunk(2)])


def test_data_parallelism_over_several_devices_stays():
    module, x = mlp(), torch.rand(4, 6)
    parallel = Parallel(copy.deepcopy(module))
    model, plain_model = (
        TorchModel(parallel, DOMAIN, classes=3),
        TorchModel(module, DOMAIN, classes=3),
    )
    with model.info.session("cpu"):
        assert torch.allclose(ask(model, x), module(x)) and parallel.calls == 1
    assert (
        not model.info.notes
        and model.digest() == plain_model.digest()
        and model.info.module is parallel.module
    )


@pytest.mark.nightly
def test_the_script_for_a_gpu(root, tmp_path):
    command = [
        sys.executable,
        str(root / "scripts" / "gpu.py"),
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "table.md"),
    ]
    assert (
        subprocess.run(
            command, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        ).returncode
        == 0
    )
    table = (tmp_path / "table.md").read_text()
    assert (
        table.count("| 0 of 20 samples differ |") == 4
        and "FAILED" not in table
        and "no call of it" not in table
    )
