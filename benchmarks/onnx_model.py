"""The same networks as modules of torch and as files of ONNX: equal records, and what each costs.

    python benchmarks/onnx_model.py [--subjects cnn4_pgd resnet20] [--n 48]

Each network is exported with a dynamic first axis and audited both ways by the same attack without
gradients, one thread each. Both run in turns, query by query, so that a machine that is slow for a
while is slow for both; `cpu` is the processor time of the thread that asks. Below 1 means that ONNX
Runtime is faster. The largest difference of scores is taken over every input that the attack asked
about, both models being shown those of the module's run; verdicts and queries are those of the two
runs.

The new exporter needs onnxscript. This file is not called onnx.py: that name would hide the library
from scripts of this folder.
"""

import sys
import tempfile
from argparse import Namespace
from pathlib import Path

import measure
import torch
from measure import Subject, Table, spread
from torch import Tensor, nn
from turns import Work, ratios, repeated

from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.streams import Streams
from brinell.models._torch_model import TorchModel
from brinell.models.onnx import Onnx

GROUP = "kinds"
RUNS = {"": "--n 8 --repetitions 1"}
BUDGETS = {"CIFAR-10 resnet20": 4 / 255}
"""Budgets of subjects whose default budget is too small for an attack without gradients."""


class QueryModule(nn.Module):
    """A model as a module, so that a hook can record its queries."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.seen = model, list[Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        """The model's logits."""
        return self.model.predict(x)


class ModuleModel:
    """A model that asks through its module."""

    def __init__(self, model: Model) -> None:
        self.name, self.domain, self.classes, self.access = (
            model.name,
            model.domain,
            model.classes,
            model.access,
        )
        self.module, self.digest, self.info = QueryModule(model), model.digest, model.info

    def predict(self, x: Tensor) -> Tensor:
        """Through the module, whose hooks see it."""
        answer: Tensor = self.module(x)
        return answer


def export(subject: Subject, folder: Path) -> tuple[ModuleModel, ModuleModel]:
    """The network as a module, and as a file of ONNX."""
    module = subject.module()
    file = folder / f"{subject.factory.rpartition(':')[2]}.onnx"
    axis = ({0: torch.export.Dim("n")},)
    example = (torch.rand(4, *subject.shape),)
    torch.onnx.export(
        module, example, file, dynamo=True, external_data=False, dynamic_shapes=axis, verbose=False
    )
    return ModuleModel(TorchModel(module, subject.domain)), ModuleModel(
        Onnx(path=str(file))(subject.domain)
    )


def attacked(
    model: ModuleModel, spec: str, x: Tensor, y: Tensor, eps: float, batch_size: int
) -> Ledger:
    """One run of an attack."""
    attack = measure.build_attack(spec)
    settings = {
        "access": attack.access,
        "batch_size": batch_size,
        "minimal": attack.family == "minimal",
    }
    ledger = measure.open_ledger(model, x, y, "linf", eps, **settings)
    return measure.run_attack(attack, ledger, Streams.of(0, ledger.batch.ids).fold(spec))


def line(
    table: Table,
    subject: Subject,
    targets: tuple[ModuleModel, ModuleModel],
    spec: str,
    options: Namespace,
) -> bool:
    """One attack on one network both ways; whether the two agree."""
    x, y = subject.samples(options.n, targets[0].module)
    settings = (spec, x, y, BUDGETS.get(subject.name, subject.eps), options.batch_size)
    queries: list[Tensor] = []
    handle = targets[0].module.register_forward_pre_hook(
        lambda _, inputs: queries.append(inputs[0].detach().clone())
    )
    first = attacked(targets[0], *settings)
    handle.remove()
    second = attacked(targets[1], *settings)
    answers = [
        (ledger.fooled, ledger.costs.forwards, ledger.best.first_success)
        for ledger in (first, second)
    ]
    equalities = [torch.equal(*pair) for pair in zip(*answers, strict=True)]
    with torch.no_grad():
        difference = max(
            float((targets[0].predict(x) - targets[1].predict(x)).abs().max()) for x in queries
        )
    works = {
        name: Work(model.module, lambda model=model: attacked(model, *settings))  # type: ignore[misc]
        for name, model in zip(("torch", "onnx"), targets, strict=True)
    }
    times = repeated(works, options.repetitions, options.threads)
    fooled = f"{int(first.fooled.sum())} and {int(second.fooled.sum())} of {len(x)}"
    verdicts = (
        int(first.costs.forwards.sum()),
        "equal" if all(equalities) else "NOT EQUAL",
        f"{difference:.1e}",
    )
    over = [spread(ratios(times["onnx"], times["torch"], clock)) for clock in ("wall", "cpu")]
    table.add(
        subject.name,
        spec,
        fooled,
        *verdicts,
        spread([timing.wall for timing in times["torch"]], 2),
        *over,
    )
    return all(equalities) and difference <= 1e-4


def main() -> int:
    """All networks and attacks; 1 where torch and ONNX Runtime disagree."""
    attacks = ["square?steps=100", "hop-skip-jump?steps=1&starts=20"]
    counts = {"n": 48, "batch_size": 128, "repetitions": 3}
    options = measure.arguments(
        __doc__, subjects=["cnn4_pgd", "resnet20"], attacks=attacks, **counts
    )
    agree = True
    columns = (
        "model, attack, fooled, forwards, verdicts and queries, scores apart, torch "
        "s, onnx / torch wall, cpu"
    )
    table = Table("ONNX Runtime beside torch", columns)
    with tempfile.TemporaryDirectory() as folder:
        for subject in map(measure.subject, options.subjects):
            targets = export(subject, Path(folder))
            for spec in options.attacks:
                agree &= line(table, subject, targets, spec, options)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
