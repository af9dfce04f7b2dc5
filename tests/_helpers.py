"""Shared helpers of the tests: small models with known answers, and audits in a temporary folder."""

import math
import multiprocessing
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.analysis.curve import dense_table
from brinell.cli import run as cli
from brinell.core.contracts import reach_of
from brinell.core.domain import Domain
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, ModelInfo
from brinell.core.oracle import Batch
from brinell.core.record import COLUMNS, Records
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.datasets._memory import from_arrays
from brinell.datasets.npz import Npz
from brinell.engine.plan import Plan
from brinell.engine.progress import SilentProgress
from brinell.engine.request import Request
from brinell.models.torch import TorchModule
from brinell.reports.examples import closest_rows, draw_examples
from brinell.reports.values import Example
from brinell.store.rows import take
from brinell.store.run import Run
from brinell.studies import audits
from brinell.studies.audit.repetition import RepeatedRun
from brinell.studies.audits import plan_audit
from brinell.studies.differences import FolderComparison
from brinell.studies.register import study_of
from brinell.studies.verification.result import VerifyResult
from brinell.studies.verification.run import claims_of, repeat_study

VECTOR = Domain(kind="vector", shape=(2,))


class Recorder:
    """A model that writes down every input that it is shown, and so can be asked what it cost."""

    name = "recorder"
    info = ModelInfo()
    access = Access.GRADIENTS

    def __init__(
        self, function: Any, domain: Domain = VECTOR, classes: int = 2, name: str = "recorder"
    ) -> None:
        self.function, self.domain, self.classes, self.name = function, domain, classes, name
        self.calls: list[Tensor] = []

    def __deepcopy__(self, memo: Any) -> "Recorder":
        """A copy that writes into the same list."""
        twin = Recorder(self.function, self.domain, self.classes, self.name)
        twin.__dict__.update(self.__dict__)
        return twin

    def predict(self, x: Tensor) -> Tensor:
        self.calls.append(x.detach().clone())
        return self.function(x)

    def digest(self) -> str:
        return f"recorder {self.name} of {self.classes} classes"

    @property
    def queries(self) -> int:
        return sum(len(x) for x in self.calls)


def asked_elsewhere(run: Run, name: str = "recorder") -> int:
    """How many inputs a process of its own was asked about, which no recorder of this one sees."""
    checks = {check["code"]: check for check in run.manifest["checks"][name]}
    count = re.search(r"(\d+) inputs of the run", checks["fresh-copy"]["text"])
    return int(count[1]) if count else 0


def distance(name: str) -> Any:
    return plugins.build("distance", name, {})


def batch_of(x: Any, y: Any) -> Batch:
    x = torch.as_tensor(x, dtype=torch.float32)
    return Batch(ids=torch.arange(len(x)), x=x, y=torch.as_tensor(y))


def threat_of(eps: Any, norm: str = "linf", domain: Domain = VECTOR, n: int = 1) -> Threat:
    eps = torch.as_tensor(eps, dtype=torch.float32)
    return Threat(
        distance=distance(norm), eps=eps.expand(n).clone() if eps.ndim == 0 else eps, domain=domain
    )


def threshold(boundary: float, steep: float = 10.0) -> Any:
    """Logits of a model that says class 1 where the first value is above `boundary`: the Linf
    margin is |x0 - at|.
    """

    def logits(x: Tensor) -> Tensor:
        z = steep * (x.flatten(1)[:, 0] - boundary)
        return torch.stack([-z, z], 1)

    return logits


def sphere(features: int, seed: int, samples: int = 3) -> tuple[Any, Tensor, Tensor]:
    """Logits of a model that says class 1 outside of a sphere around 0, inputs inside of it, and
    their L2 margins.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator)
    x *= (0.5 + 0.4 * torch.rand(samples, 1, generator=generator)) / x.norm(dim=1, keepdim=True)

    def logits(points: Tensor) -> Tensor:
        gap = points.flatten(1).norm(dim=1) - 1
        return torch.stack([-gap, gap], 1)

    return logits, x, 1 - x.norm(dim=1)


def mlp(features: int = 6, classes: int = 3, seed: int = 0) -> nn.Module:
    """A small network with weights from a separate generator, undecided at the middle of the unit
    cube."""
    rng = torch.Generator().manual_seed(seed)
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, classes)
    ).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.7)
        module[1].bias.copy_(0.1 - module[1].weight.sum(1) / 2)
        module[3].bias.copy_(-module[3].weight.sum(1) / 10)
    return module


def ledger_settings(attack: Any, norm: str) -> dict[str, Any]:
    """Settings of a ledger for an attack."""
    return {
        "access": attack.access,
        "minimal": attack.family == "minimal",
        "reach": reach_of(attack, norm),
    }


def run_attack(
    attack: Any,
    model: Any,
    x: Any,
    y: Any,
    eps: Any,
    norm: str = "linf",
    *,
    seed: int = 0,
    **settings: Any,
) -> Ledger:
    """One attack on one batch; what came of it stands in the ledger."""
    batch = batch_of(x, y)
    threat = threat_of(eps, norm, model.domain, n=len(batch))
    ledger = Ledger(model, batch, threat, **ledger_settings(attack, norm) | settings)
    attack(ledger.oracle(), batch, threat, Streams.of(seed, batch.ids).fold("test"))
    return ledger


def plan_of(models: Any, x: Any, y: Any, *, domain: Domain | None = None, **request: Any) -> Plan:
    """A plan over arrays and models in memory."""
    models = models if isinstance(models, tuple) else (models,)
    dataset = from_arrays(
        np.asarray(x, dtype=np.float32), np.asarray(y), domain=domain or models[0].domain
    )
    return plan_audit(
        Request(data="in-memory:test", model=("in-memory",), **({"eps": "0:0.2:3"} | request)),
        dataset=dataset,
        models=models,
    )


def run_plan(plan: Plan, out: Any, *, resume: bool = False, progress: Any = None) -> Run:
    progress = progress or SilentProgress()
    return audits.run_audit(plan, out, progress, command="from a test", resume=resume)


def run_audit(
    out: Any, models: Any, x: Any, y: Any, *, resume: bool = False, **request: Any
) -> Run:
    return run_plan(plan_of(models, x, y, **request), out, resume=resume)


def draw_closest(run: Run, model: str) -> dict[int, Example]:
    """The closest adversarial example of every sample whose clean input the run keeps."""
    clean, records = run.clean(), run.rows
    closest = take(records, closest_rows(records, model, str(run.manifest["distance"])))
    pictured = take(closest, np.isin(closest.sample_id, list(clean)))
    return draw_examples(run, pictured, model, clean)


def verify(run: Run, plan: Plan) -> VerifyResult:
    """The verification of a run by its plan, with the page that a run must have."""
    study = study_of(run.path)
    study.write_page(run.path)
    comparison = FolderComparison(claims_of(study, run.path))
    return repeat_study(study, run.path, comparison, RepeatedRun(run, plan, comparison))


def rows_of(records: Records, *, without: tuple[str, ...] = ("seconds",)) -> list[tuple[Any, ...]]:
    """The rows in sorted order, nulls as None, without measured times."""
    names = [name for name in COLUMNS if name not in without]
    columns = [getattr(records, name).tolist() for name in names]
    return sorted(
        zip(*columns, strict=True),
        key=lambda row: tuple((value is None, str(value)) for value in row),
    )


def cells_of(records: Records, column: str = "outcome") -> dict[tuple[str, str, int], Any]:
    """(model, attack, sample) to one column. Two rows of one cell are an error."""
    keys = zip(
        records.model.tolist(), records.attack.tolist(), records.sample_id.tolist(), strict=True
    )
    cells = dict(zip(keys, getattr(records, column).tolist(), strict=True))
    assert len(cells) == len(records), "two rows of one model, attack and sample"
    return cells


def states_of(run: Run) -> dict[tuple[str, str, int, float], str]:
    """(model, attack, sample, eps) to broken, robust, failed, skipped or missing; clean rows at eps
    0 by their outcome.
    """
    table = dense_table(run.rows, run.manifest)
    keys = zip(
        *(table[name].tolist() for name in ("model", "attack", "sample_id")),
        table["eps"].round(9).tolist(),
        strict=True,
    )
    return dict(zip(keys, table["state"].tolist(), strict=True))


def assert_same_rows(first: Records, second: Records) -> None:
    """The same rows in the same order; float32 columns up to the rounding of a batch of another
    size, seconds aside.
    """
    assert len(first) == len(second)
    for name, column in COLUMNS.items():
        a, b = getattr(first, name), getattr(second, name)
        if column.kind == "float32":
            assert np.ma.getmaskarray(a).tolist() == np.ma.getmaskarray(b).tolist(), name
            np.testing.assert_allclose(
                np.ma.filled(a, 0), np.ma.filled(b, 0), rtol=1e-4, atol=1e-6, err_msg=name
            )
        elif name != "seconds":
            assert a.tolist() == b.tolist(), name


def load_network(
    root: Any, shared: Any, data: str, factory: str, weights: str, n: int
) -> tuple[Any, Tensor, Tensor]:
    """A network of the shared data, and those of the first n samples that it gets right."""
    dataset = Npz(path=str(shared / data / f"{data}_test.npz"))()
    module = f"{root / 'examples' / 'models' / data}.py:{factory}"
    model = TorchModule(path=module, weights=str(shared / f"{weights}.safetensors"))(dataset.domain)
    x, y = dataset.load(range(n)), torch.from_numpy(dataset.labels()[:n])
    with torch.no_grad():
        correct = model.predict(x).argmax(1) == y
    return model, x[correct], y[correct]


COUNT = '''
import os
import signal

import torch
from torch import nn


def count():
    """Calls in this process, of all instances; what happens at which is said by the environment."""
    calls = int(os.environ.get("TEST_CALLS", 0)) + 1
    os.environ["TEST_CALLS"] = str(calls)
    if calls == int(os.environ.get("TEST_KILL_AT", 0)):
        os.kill(os.getpid(), signal.SIGKILL)
    if calls == int(os.environ.get("TEST_INTERRUPT_AT", 0)):
        raise KeyboardInterrupt
'''
"""The beginning of a model's file: `count()` ends the process at a given call."""
MODEL = (
    COUNT
    + '''

class Parabola(nn.Module):
    def __init__(self, at=0.5, classes=2):
        super().__init__()
        self.at = nn.Parameter(torch.tensor(at))
        self.classes = classes

    def forward(self, x):
        count()
        x = x.flatten(1)
        z = 10 * (x[:, 0] + (x[:, 1] - 0.5) ** 2 - self.at)
        return torch.stack([-z, z] + [0 * z - 50] * (self.classes - 2), 1)


def parabola(at="0.5", classes="2"):
    return Parabola(float(at), int(classes))


class After(Parabola):
    """The parabola, and then something done to its answer."""

    def __init__(self, then):
        super().__init__()
        self.then = then

    def forward(self, x):
        logits = super().forward(x)
        return {
            "nan": lambda: logits * float("nan"),
            "late-nan": lambda: torch.where(logits[:, 1:] > 0, torch.tensor(float("nan")), logits),
            "softmax": lambda: logits.softmax(1),
            "one": lambda: logits[:, :1],
            "dict": lambda: {"probabilities": logits.softmax(1), "votes": logits},
            "flat": lambda: logits.flatten(),
        }[self.then]()


def after(then):
    return After(then)


def breaks():
    raise ValueError("no weights today")


def no_module():
    return 7
'''
)


def audit_command(work: Any) -> list[str]:
    """The command of an audit of the parabola in a `workspace` at two budgets; an attack is still
    to be named.
    """
    return [
        "audit",
        "--data",
        f"npz:{work / 'data.npz'}",
        "--model",
        f"torch:{work / 'model.py'}:parabola",
        "--eps",
        "0.05, 0.1",
    ]


def workspace(folder: Any, n: int = 16, **arrays: Any) -> Any:
    """A data file and a model file, as a user has them: data.npz and model.py."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.uniform(0.2, 0.55, n), rng.uniform(0.3, 0.7, n)], 1).astype(np.float32)
    np.savez(folder / "data.npz", **({"x": x, "y": np.zeros(n, dtype=np.int64)} | arrays))
    (folder / "model.py").write_text(MODEL)
    return folder


def run_in_process(arguments, **environment):
    """Exit code of the command line in a forked process: negative where a signal ended it."""

    def body():
        os.environ.update(environment)
        os._exit(cli(arguments))

    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    process.join(120)
    return process.exitcode


def slope(domain):
    """(values,): the slope of a linear model, another one for each value."""
    return torch.cos(torch.arange(math.prod(domain.shape)) * 2.3) + 0.05


def unrefused(check: Callable[..., None], rules: Any, **settings: Any) -> list[str]:
    """Violators, each with a pattern of the rule that it breaks, that a checker does not refuse by
    that rule in one line."""
    faults = []
    for violator, rule in rules:
        name = getattr(violator, "__name__", type(violator).__name__)
        try:
            check(violator, **settings)
        except ContractError as refusal:
            if not re.search(rule, str(refusal)) or "\n" in str(refusal):
                faults.append(f"{name}: {refusal}")
        else:
            faults.append(f"{name}: not refused by the rule {rule!r}")
    return faults
