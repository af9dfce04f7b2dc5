"""Right and wrong uses of the Python calls, for `mypy`: it accepts the first, and an ignored error
that is none is one.
"""

# ruff: noqa: B018
import numpy as np
import torch

import brinell
from brinell.engine.progress import SilentProgress

net = torch.nn.Linear(2, 2)
x, y = np.zeros((4, 2)), np.zeros(4, dtype=np.int64)
run = brinell.audit(net, x, y, eps=8 / 255)

# Right
brinell.audit(net, (x, y), eps=[0.1, 0.2], norm=2, samples=100, device=torch.device("cpu"))
brinell.audit(
    {"a": net, "b": "digits-cnn"}, "digits", attack=["fgsm", "pgd?steps=3"], progress=False
)
low: float | None = run.robust(8 / 255).low
folder: str = run.folder
brinell.attack(net, torch.zeros(4, 2), torch.zeros(4), "apgd", eps=0.1).success
brinell.audit(net, brinell.data(x, y, classes=["a", "b"], kind="vector"))
place = brinell.transfer(model=[net], data=x, y=y).sources[0].rank
rank: float = place.low if place else 1.0
brinell.transfer(["SET", "net"], eps="8/255", out="t")
brinell.explain(net, x, y, method=["rlab"], steps=4).methods[0].queries
brinell.harden(net, x, y, train=(x, y), optimizer="sgd", recipe="trades+awp").weights
brinell.epsilon((x, y), train=(x, y), norm=("linf", "l2"), allow=0.1).facts.notes
passed: bool = brinell.gate(run, robust=0.4, baseline="EARLIER").passed
brinell.verify(run.folder, net, (x, y), replay=3).problems
brinell.compare([run, "digits-cnn"], at=0.1).models[0].rank
brinell.export(run, "csv", out="figures").files
brinell.corrupt(net, x, y, kind="published-fog", severity=(1, 2)).payload()
brinell.benchmark(net, (x, y), distortions="fog", patch=4, resume=True).levels
brinell.audit(
    net, x, y, detector=["mahalanobis"], detector_data="digits?split=train", fpr=0.1
).models[0].detectors
brinell.train_agent(out="policy.safetensors", steps=0).training_queries
people: list[str] = brinell.review(
    (x, y), norm="l2", eps=[0.1, 0.2], trials=60, resume=True
).reviewers
brinell.unrestricted(net, x, y, generator="GENERATOR", judge=["digits-cnn"]).results[
    0
].total.clear.k
brinell.audit(net, x, y, detector="background", detector_data=(x, y), progress=SilentProgress())
brinell.train_generator(x, y, out="GENERATOR", minutes=1, progress=True).payload()
brinell.train_metric((x, y), out="METRIC", test=(x, y)).payload()
brinell.report(run).payload()

# Wrong
brinell.audit(1, (x, y))  # type: ignore[arg-type]
brinell.audit(net, 3.0)  # type: ignore[arg-type]
brinell.audit(net)  # type: ignore[call-arg]
run.robuts(0.1)  # type: ignore[attr-defined]
run.robust(0.1).lowest  # type: ignore[attr-defined]
number: int = run.folder  # type: ignore[assignment]
brinell.attack(net, x, y, "apgd", worst="yes")  # type: ignore[arg-type]
brinell.explain(net, x, y, explain="middle")  # type: ignore[arg-type]
brinell.harden(net, x, y, optimizer="adam")  # type: ignore[arg-type]
brinell.epsilon()  # type: ignore[call-arg]
text: str = brinell.gate(run, robust=0.4)  # type: ignore[assignment]
brinell.gate(run, robust="high")  # type: ignore[arg-type]
brinell.export(run, "excel")  # type: ignore[arg-type]
brinell.corrupt(net, x, y, severity="worst")  # type: ignore[arg-type]
brinell.train_agent(steps=0)  # type: ignore[call-arg]
brinell.data(x, y, kind="picture")  # type: ignore[arg-type]
brinell.verify(run, replay="all")  # type: ignore[arg-type]
brinell.compare([run, 3])  # type: ignore[list-item]
brinell.benchmark({"a": net}, (x, y))  # type: ignore[arg-type]
brinell.audit(net, x, y, progress=print)  # type: ignore[arg-type]
brinell.audit(net, x, y, epss=0.1)  # type: ignore[call-arg]
brinell.audit(net, x, y, precision="half")  # type: ignore[arg-type]
brinell.audit(net, x, y, batch_size="large")  # type: ignore[arg-type]
brinell.audit(net, x, y, fpr="low")  # type: ignore[arg-type]
brinell.audit(net, x, y, certify=0.1j)  # type: ignore[arg-type]
brinell.audit(net, x, y, on=3)  # type: ignore[arg-type]
brinell.harden(net, x, y, trains=(x, y))  # type: ignore[call-arg]
