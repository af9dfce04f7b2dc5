"""Proofs of brinell certify beside those of auto_LiRPA: how many of the first images, in how much
processor time.

    python benchmarks/certify.py [--cases cnn_wide_kw:1/255 ...] [--samples 100] [--methods crown
    alpha-crown] [--peer CHECKOUT] python benchmarks/certify.py --budgets 9 [--cases ...]
        budgets up to eps in one go, beside eps alone, by all methods
    python benchmarks/certify.py --contradictions [--samples 20]  inputs that contradict a proof
    python benchmarks/certify.py --contradictions --cases resnet18 vit --samples 3 [--seconds 120]
    python benchmarks/certify.py --queries [--images 4] [--timeout 10] [--methods crown]

Only images that are classified correctly and that an attack (APGD, 30 steps, on cross-entropy and
on nine targets) does not break are bounded, by both sides. Both run in this process on one thread,
ours in float32 with rounding accounted for and again in float64 where that may have cost the proof,
the peer in float32, `--batch` images at a time. CHECKOUT is a source tree of auto_LiRPA.

brinell certify proves nothing where a counterexample is known, so it cannot contradict itself. With
--contradictions both sides try every budget, nine in each norm, from a quarter of the smallest
interesting one to four times the largest; the exit code is 1 if an attacked input lies within a
proven ball. The cases resnet18 (torchvision, unmodified) and vit (timm, one block) are trained on
CIFAR-10 for so many processor seconds first, and tried at three budgets in Linf. --queries asks
brinell certify about public ONNX networks: the first test images that a network gets right, at two
budgets in Linf, a query for an input of another class. Every counterexample is asked again in ONNX
Runtime and compared with the query.
"""

import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import measure
import numpy as np
import onnxruntime
import timm
import torch
import torchvision
from torch import Tensor, nn

import brinell
from brinell import plugins
from brinell.bounds._proofs import Proofs, Prover
from brinell.bounds._trace import trace
from brinell.core.domain import Domain

GROUP = "proofs"
RUNS = {
    "": "--cases cnn_wide_kw:1/255 --samples 4",
    "--budgets 9": "--cases cnn_wide_kw:1/255 --samples 4",
    "--contradictions": "--cases cnn_wide_kw --samples 2",
    "--queries": "--images 1 --timeout 1",
}
CASES = [
    "cnn_wide_kw:1/255",
    "cnn_wide_kw:2/255",
    "cnn4_pgd:1/10",
    "cnn4_pgd:3/20",
    "resnet2b:1/255",
    "resnet4b:1/255",
]
BUDGETS = {"linf": (1 / 1020, 0.2), "l2": (0.02, 4.0)}
"""Smallest and largest budget of contradictions by norm."""
SUBJECTS = (
    "cnn_wide_kw",
    "cnn4_pgd",
    "lenet5_clean",
    "lenet5_advtrained",
    "resnet2b",
    "resnet4b",
    "captum_cnn",
    "resnet20",
)
PEER_METHODS = {"crown": "CROWN", "alpha-crown": "CROWN-Optimized"}
TRAINED = {"resnet18": [0.0005, 0.001, 0.002], "vit": [0.001, 0.002, 0.004]}
"""Budgets of the networks that are trained here."""
MEAN, STD = (
    np.array(values)[:, None, None]
    for values in ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
)
QUERIES = {
    "mnist-net_256x4": (0.02, 0.05),
    "mnist_relu_9_200": (0.015, 0.03),
    "resnet_2b": (2 / 255, 8 / 255),
    "vit_pgd_2_3_16": (1 / 255, 4 / 255),
    "vit_ibp_3_3_8": (1 / 255, 4 / 255),
}


def prove(
    net: nn.Module,
    domain: Domain,
    x: Tensor,
    y: Tensor,
    levels: list[float],
    specs: Sequence[str],
    norm: str = "linf",
) -> Proofs:
    """Proofs by several methods in turn at several budgets."""
    prover, proofs = Prover.of(trace(net, x[:8]), domain, norm), Proofs.none(len(x))
    for spec in specs:
        name, _, options = plugins.parse(spec)
        limit = torch.full((len(x),), len(levels), dtype=torch.int64)
        proofs.extend(prover, name, plugins.build("bound", name, options), x, y, levels, limit)
    return proofs


def prove_by_peer(
    net: nn.Module,
    domain: Domain,
    x: Tensor,
    y: Tensor,
    eps: float,
    spec: str,
    batch: int,
    mode: str,
) -> Tensor:
    """(n,) bool: proven by the method of that name in auto_LiRPA."""
    import auto_LiRPA
    from auto_LiRPA.perturbations import PerturbationLpNorm

    options = {"conv_mode": mode, "optimize_bound_args": {"iteration": 20, "lr_alpha": 0.1}}
    bounded = auto_LiRPA.BoundedModule(
        net, torch.empty_like(x[:1]), bound_opts=options, device="cpu"
    )
    low, high = domain.bounds(x)
    proven = []
    for part, labels in zip(x.split(batch), y.split(batch), strict=True):
        classes = int(net(part[:1]).shape[1])
        rivals = torch.arange(classes).expand(len(part), classes)
        rivals = rivals[rivals != labels[:, None]].view(len(part), classes - 1)
        eye = torch.eye(classes)
        functions = eye[labels][:, None] - eye[rivals]
        ball = PerturbationLpNorm(
            norm=float("inf"), x_L=(part - eps).clamp(min=low), x_U=(part + eps).clamp(max=high)
        )
        box = auto_LiRPA.BoundedTensor(part, ball)
        lower, _ = bounded.compute_bounds(
            x=(box,), C=functions, method=PEER_METHODS[spec], bound_upper=False
        )
        proven.append((lower > 0).all(1))
    return torch.cat(proven)


def timed_peer(*arguments: Any) -> tuple[Tensor, float]:
    """Proofs of the peer and their seconds: in its faster mode where that takes the network,
    otherwise in the other one.
    """
    try:
        return measure.timed(partial(prove_by_peer, *arguments, "patches"))
    except AssertionError:
        return measure.timed(partial(prove_by_peer, *arguments, "matrix"))


def compare(options: Namespace) -> None:
    """A line for each case and method, or for each case over several budgets."""
    columns = (
        "network eps, clean, attacked, method, proven, s, auto_LiRPA proven, s, time "
        "of ours over theirs"
    )
    sweep = f"network eps, one budget s, {options.budgets} budgets s, ratio, proven, of pairs"
    table = measure.Table("Proofs", sweep if options.budgets else columns)
    for case in options.cases or CASES:
        name, _, text = case.partition(":")
        subject, eps = measure.subject(name), measure.parse_eps(text)
        net, domain, (x, y) = subject.module(), subject.domain, subject.first(options.samples)
        right = measure.is_right(net, x, y)
        attacked: Any = brinell.attack(
            net, x[right], y[right], ["apgd?steps=30", "apgd-t?steps=30"], eps=eps
        )
        survivors = right.nonzero()[:, 0][~attacked.success]
        run = (net, domain, x[survivors], y[survivors])
        if count := options.budgets:
            _, seconds_of_one = measure.timed(
                lambda run=run, eps=eps: prove(*run, [eps], options.methods)
            )
            levels = [eps * (k + 1) / count for k in range(count)]
            proofs, seconds_of_all = measure.timed(
                lambda run=run, levels=levels: prove(*run, levels, options.methods)
            )
            pairs = int((proofs.level + 1).sum()), count * len(survivors)
            table.add(
                f"{subject.name} {text}",
                f"{seconds_of_one:.1f}",
                f"{seconds_of_all:.1f}",
                f"{seconds_of_all / seconds_of_one:.2f}",
                *pairs,
            )
            continue
        for spec in options.methods:
            proofs, seconds = measure.timed(
                lambda run=run, eps=eps, spec=spec: prove(*run, [eps], [spec])
            )
            counts = int(right.sum()), len(survivors), spec, int((proofs.level >= 0).sum())
            peer = ["", "", ""]
            if options.peer and spec in PEER_METHODS:
                proven, peer_seconds = timed_peer(*run, eps, spec, options.batch)
                peer = [
                    str(int(proven.sum())),
                    f"{peer_seconds:.1f}",
                    f"{seconds / peer_seconds:.2f}",
                ]
            table.add(f"{subject.name} {text}", *counts, f"{seconds:.1f}", *peer)


def train(name: str, seconds: float) -> nn.Module:
    """A network of torchvision or timm after so many processor seconds of training on CIFAR-10."""
    if name == "resnet18":
        net: nn.Module = torchvision.models.resnet18(num_classes=10)
    else:
        net = timm.models.vision_transformer.VisionTransformer(
            img_size=32, patch_size=8, embed_dim=48, depth=1, num_heads=3, num_classes=10
        )
    x, y = measure.images("cifar10/cifar10_train_a.npz")
    optimiser, start = torch.optim.AdamW(net.parameters(), 1e-3), time.process_time()
    while time.process_time() - start < seconds:
        index = torch.randint(len(x), (128,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x[index]), y[index]).backward()
        optimiser.step()
    return net.eval()


def contradict(options: Namespace) -> int:
    """A line for each network and norm; the number of contradictions."""
    table = measure.Table(
        "Proofs and attacks", "network, norm, proven, broken, neither, contradictions, processor s"
    )
    total = 0
    for name in options.cases or SUBJECTS:
        if name in TRAINED:
            net, domain, text = (
                train(name, options.seconds),
                Domain(kind="image", shape=(3, 32, 32)),
                f"CIFAR-10 {name}",
            )
            x, y = measure.images("cifar10/cifar10_test.npz", slice(10 * options.samples))
            budgets = {"linf": TRAINED[name]}
        else:
            subject = measure.subject(name)
            net, domain, text = subject.module(), subject.domain, subject.name
            x, y = subject.first(options.samples)
            budgets = {norm: np.geomspace(*ends, 9).tolist() for norm, ends in BUDGETS.items()}
        right = measure.is_right(net, x, y).nonzero()[:, 0][: options.samples]
        x, y = x[right], y[right]
        for norm, levels in budgets.items():

            def work(
                net: nn.Module = net,
                x: Tensor = x,
                y: Tensor = y,
                norm: str = norm,
                levels: list[float] = levels,
            ) -> Any:
                attacks = ["apgd?steps=20", "apgd-t?steps=20"]
                broken = torch.stack(
                    [
                        brinell.attack(net, x, y, attacks, eps=eps, norm=norm).success
                        for eps in levels
                    ],
                    1,
                )
                level = prove(net, domain, x, y, levels, ["crown"], norm).level  # noqa: B023
                proven_levels = f"proven by image up to {level.tolist()} of {levels}"
                print(f"{text}: {proven_levels}", file=sys.stderr)  # noqa: B023
                return torch.arange(len(levels)) <= level[:, None], broken

            (proven, broken), seconds = measure.timed(work)
            counts = [
                int(mask.sum()) for mask in (proven, broken, ~proven & ~broken, proven & broken)
            ]
            total += counts[-1]
            table.add(text, norm, *counts, f"{seconds:.0f}")
    return total


def write_query(
    path: Path, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], label: int
) -> None:
    """A query for an input in a box that gets another class."""
    lines = [f"(declare-const X_{k} Real)" for k in range(len(low))] + [
        f"(declare-const Y_{k} Real)" for k in range(10)
    ]
    for k, (least, most) in enumerate(zip(low, high, strict=True)):
        lines += [f"(assert (>= X_{k} {least:.9f}))", f"(assert (<= X_{k} {most:.9f}))"]
    rivals = " ".join(f"(and (>= Y_{k} Y_{label}))" for k in range(10) if k != label)
    path.write_text("\n".join([*lines, f"(assert (or {rivals}))"]))


def answer(options: Namespace) -> None:
    """A line for each network and budget."""
    table = measure.Table(
        "Queries in VNN-LIB",
        ["network", "eps", "queries", "sat, all confirmed", "unsat", "unknown", "processor s"],
    )
    for name, budgets in QUERIES.items():
        file, mnist = str(measure.SHARED / "onnx" / f"{name}.onnx"), name.startswith("mnist")
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        entry = session.get_inputs()[0]
        images, labels = measure.images(
            "mnist/mnist_test.npz" if mnist else "cifar10/cifar10_test.npz", slice(200)
        )
        mean, std = (0.0, 1.0) if mnist else (MEAN, STD)
        x = images.double().numpy()

        def predict(
            values: np.ndarray[Any, Any], session: Any = session, entry: Any = entry
        ) -> int:
            """The class by ONNX Runtime."""
            inputs = values.astype(np.float32).reshape(1, *entry.shape[1:])
            return int(session.run(None, {entry.name: inputs})[0].argmax())

        right = [k for k in range(len(x)) if predict((x[k] - mean) / std) == int(labels[k])][
            : options.images
        ]
        for eps in budgets:
            verdicts, total = Counter[str](), 0.0
            for k in right:
                low, high = (
                    ((np.clip(x[k] + sign * eps, 0, 1) - mean) / std).ravel() for sign in (-1, 1)
                )
                with tempfile.TemporaryDirectory() as folder:
                    query = Path(folder) / "query.vnnlib"
                    write_query(query, low, high, int(labels[k]))
                    settings = {
                        "network": file,
                        "timeout": options.timeout,
                        "method": options.methods,
                    }
                    result, seconds = measure.timed(
                        partial(brinell.certify, query=str(query), **settings)
                    )
                verdicts[result.verdict] += 1
                total += seconds
                if result.verdict == "sat":
                    values = np.array(list(result.x.values()))
                    if not ((values >= low - 1e-8) & (values <= high + 1e-8)).all() or predict(
                        values
                    ) == int(labels[k]):
                        raise SystemExit(
                            f"{name}: the counterexample of image {k} at {eps:.4g} is none"
                        )
            table.add(
                name,
                f"{eps:.4f}",
                len(right),
                *(verdicts[verdict] for verdict in ("sat", "unsat", "unknown")),
                f"{total:.0f}",
            )


def main() -> int:
    """One table."""
    switches = {"contradictions": False, "queries": False}
    numbers = {
        "samples": 0,
        "batch": 1,
        "budgets": 0,
        "images": 4,
        "timeout": 10.0,
        "seconds": 120.0,
    }
    methods = ["crown", "alpha-crown"]
    options = measure.arguments(__doc__, cases=[], methods=methods, peer="", **numbers, **switches)
    options.samples = options.samples or (20 if options.contradictions else 100)
    if options.peer:
        sys.path.insert(0, options.peer)
    if options.contradictions:
        return int(contradict(options) > 0)
    (answer if options.queries else compare)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
