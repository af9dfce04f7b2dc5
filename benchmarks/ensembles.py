"""Ensembles of attacks side by side: AutoAttack of its authors, of torchattacks and of ART, the
attacks of foolbox and of Adversarial Library together, and ours.

    python benchmarks/ensembles.py [--reference CHECKOUT] [--adversarial-library CHECKOUT]
    [--subjects cnn4_pgd resnet4b] [--samples 100] [--only ART fast]

All get the same network (no parameter asks for a gradient), the first test images, right or wrong,
the Linf budget of the network, batches of one size and one seed, each in a separate process. The
success that an ensemble reports does not count: the inputs that it returns are judged again in
float32, on a network newly loaded, and an input counts as an adversarial example only within bounds
and budget. `violations` are returned inputs outside of them. Forwards and backwards are counted by
a hook on the module, for all alike; `cpu s` is processor time of the attack alone (ours with
records, stored inputs and report); `over bare` is that over the bare passes: the same batches with
nothing around them.

- reference: the standard version, of a checkout; left out without one, as is adversarial-library.
- torchattacks: its AutoAttack, version standard, one call a batch. It leaves APGD and FAB at 10
  steps where the others have 100.
- ART: its AutoAttack with all its defaults: APGD on the cross-entropy and on DLR, DeepFool, and
  Square of 5,000 steps, with 5 restarts of each APGD and of Square; the first step of APGD is 0.1
  whatever the budget.
- foolbox: it has no AutoAttack; its documentation (examples/multiple_attacks_pytorch_resnet18.py)
  takes, sample by sample, the best of FGSM, LinfPGD, LinfBasicIterativeAttack,
  LinfAdditiveUniformNoiseAttack and LinfDeepFoolAttack with their defaults.
- adversarial-library: it has no AutoAttack, but three of its four parts: APGD on the cross-entropy,
  APGD-T and targeted FAB, with their defaults, each on the samples that are left; Square is missing.
- standard, fast: ours.
"""

import contextlib
import io
import json
import math
import sys
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import ModuleType

import measure
import numpy as np
import torch
from torch import Tensor, nn

import brinell
from brinell.core.threat import Threat
from brinell.datasets._memory import from_arrays
from brinell.distances.linf import Linf
from brinell.models._torch_model import TorchModel
from brinell.store.run import Run

GROUP = "reference"
RUNS = {"--reference REFERENCE": "--subjects cnn4_pgd --samples 4"}
CALLS = 20_000
"""Bare calls at most; where more were made, every k-th is repeated and the time taken k times."""

# Each takes module, images, labels, eps and the options, and returns inputs of the shape of the
# images.


def reference(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: Namespace) -> Tensor:
    """The authors' own, from the working tree of a checkout."""
    sys.path.insert(0, options.reference)
    from autoattack import AutoAttack

    attack = AutoAttack(
        module, norm="Linf", eps=eps, seed=options.seed, device="cpu", verbose=False
    )
    return attack.run_standard_evaluation(x, y, bs=options.batch_size)


def torchattacks(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: Namespace) -> Tensor:
    """The AutoAttack of torchattacks."""
    import torchattacks

    attack = torchattacks.AutoAttack(
        module, norm="Linf", eps=eps, version="standard", n_classes=10, seed=options.seed
    )
    size = options.batch_size
    return torch.cat(
        [attack(part, labels) for part, labels in zip(x.split(size), y.split(size), strict=True)]
    )


def art(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: Namespace) -> Tensor:
    """The AutoAttack of the Adversarial Robustness Toolbox."""
    classifier = measure.art_classifier(module, x)
    from art.attacks.evasion import AutoAttack

    attack = AutoAttack(classifier, norm=np.inf, eps=eps, batch_size=options.batch_size)
    return torch.from_numpy(
        attack.generate(x.numpy().copy(), np.eye(10, dtype=np.float32)[y.numpy()])
    )


def foolbox(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: Namespace) -> Tensor:
    """The attacks of foolbox that its documentation runs together, all on all samples; the first
    find of each sample stays.
    """
    import foolbox
    from foolbox import attacks

    model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    names = (
        "FGSM",
        "LinfPGD",
        "LinfBasicIterativeAttack",
        "LinfAdditiveUniformNoiseAttack",
        "LinfDeepFoolAttack",
    )
    adversarial, fooled = x.clone(), torch.zeros(len(x), dtype=torch.bool)
    for attack in (getattr(attacks, name)() for name in names):
        for rows in torch.arange(len(x)).split(options.batch_size):
            _, clipped, success = attack(model, x[rows], y[rows], epsilons=eps)
            new = success & ~fooled[rows]
            adversarial[rows[new]], fooled[rows[new]] = clipped[new], True
    return adversarial


def adversarial_library(
    module: nn.Module, x: Tensor, y: Tensor, eps: float, options: Namespace
) -> Tensor:
    """The parts of AutoAttack that Adversarial Library has, from a working tree."""
    sys.path.insert(0, options.adversarial_library)
    sys.modules.setdefault("visdom", ModuleType("visdom"))  # for curves, which are not drawn here
    from adv_lib.attacks import apgd, apgd_targeted, fab

    attacks = (
        partial(apgd, eps=eps, norm=math.inf, loss_function="ce"),
        partial(apgd_targeted, eps=eps, norm=math.inf),
        partial(fab, norm=math.inf, ε=eps, targeted_restarts=True),
    )
    adversarial = x.clone()
    for attack in attacks:
        for rows in (
            measure.is_right(module, adversarial, y).nonzero()[:, 0].split(options.batch_size)
        ):
            examples = attack(module, x[rows], y[rows])
            legal = (examples - x[rows]).abs().flatten(1).amax(1) <= eps + 1e-6
            new = legal & ~measure.is_right(module, examples, y[rows])
            adversarial[rows[new]] = examples[new]
    return adversarial


def cascade(
    name: str, module: nn.Module, x: Tensor, y: Tensor, eps: float, options: Namespace
) -> Tensor:
    """One of ours, records, stored inputs and report included."""
    data, closest = from_arrays(x, y), x.clone()
    model = TorchModel(module, data.domain, classes=10, name="module")
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "samples": len(y),
            "seed": options.seed,
            "batch_size": options.batch_size,
            "device": "cpu",
        }
        brinell.audit(model, data, eps=repr(eps), attack=name, out=Path(folder) / "run", **settings)
        run = Run.open(Path(folder) / "run")
        for stage in run.manifest["stages"]:
            for sample, adversarial in run.adversarial(
                "module", stage["name"], range(len(y))
            ).items():
                closest[sample] = torch.from_numpy(adversarial)
    return closest


OURS = {name: partial(cascade, name) for name in ("standard", "fast")}
ENSEMBLES = {
    "reference": reference,
    "torchattacks": torchattacks,
    "ART": art,
    "foolbox": foolbox,
    "adversarial-library": adversarial_library,
} | OURS
CHECKOUTS = ("reference", "adversarial_library")
"""Ensembles that are run from a working tree, under these options."""


def child(options: Namespace) -> None:
    """Run one ensemble in this process; its inputs go to a file, what it cost to standard output."""
    subject = measure.subject(options.subjects[0])
    module, (x, y) = subject.module(), subject.first(options.samples)
    measure.is_right(module, x[: options.batch_size], y[: options.batch_size])
    # ART and foolbox draw from the global generators.
    np.random.seed(options.seed)  # noqa: NPY002, TID251
    torch.manual_seed(options.seed)  # noqa: TID251
    with (
        measure.counting(module) as passes,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        run = partial(ENSEMBLES[options.child], module, x.clone(), y.clone(), subject.eps, options)
        adversarial, seconds = measure.timed(run)
    np.save(options.inputs, adversarial.detach().numpy())
    stride = -(-len(passes.batches) // CALLS)
    _, bare = measure.timed(
        lambda: measure.replay(module, measure.Passes(passes.batches[::stride]), x, y)
    )
    print(
        json.dumps(
            {
                "forwards": passes.forwards,
                "backwards": passes.backwards,
                "cpu": seconds,
                "bare": bare * stride,
            }
        )
    )


def count_robust(
    subject: measure.Subject, adversarial: Tensor, x: Tensor, y: Tensor
) -> tuple[int, int]:
    """How many samples hold, and how many of the inputs lie outside bounds or budget."""
    threat = Threat(distance=Linf(), eps=torch.full((len(x),), subject.eps), domain=subject.domain)
    outside = ~(Linf().size(adversarial - x) <= threat.eps + threat.tolerance())
    outside |= ~(
        (adversarial >= -subject.domain.slack) & (adversarial <= 1 + subject.domain.slack)
    ).flatten(1).all(1)
    looked_at = torch.where(outside[:, None, None, None], x, adversarial)
    return int(measure.is_right(subject.module(), looked_at, y).sum()), int(outside.sum())


def line(name: str, key: str, options: Namespace) -> list[str]:
    """The cells of one ensemble on one network."""
    subject = measure.subject(key)
    with tempfile.TemporaryDirectory() as folder:
        inputs = f"{folder}/inputs.npy"
        words = [
            sys.executable,
            "-W",
            "ignore",
            __file__,
            "--child",
            name,
            "--inputs",
            inputs,
            "--subjects",
            key,
        ]
        names = (
            "samples",
            "batch_size",
            "seed",
            "threads",
            *(checkout for checkout in CHECKOUTS if getattr(options, checkout)),
        )
        words += [f"--{option.replace('_', '-')}={getattr(options, option)}" for option in names]
        try:
            _, _, output = measure.run_child(words, OMP_NUM_THREADS=str(options.threads))
        except SystemExit as error:
            return [f"did not run: {str(error).strip().splitlines()[-1]}", *[""] * 6]
        adversarial = torch.from_numpy(np.load(inputs, allow_pickle=False)).float()
    cost = json.loads(output.strip().splitlines()[-1])
    robust, violations = count_robust(subject, adversarial, *subject.first(options.samples))
    passes = (f"{cost[kind]:,}" for kind in ("forwards", "backwards"))
    seconds = (f"{cost['cpu']:.1f}", f"{cost['bare']:.1f}", f"{cost['cpu'] / cost['bare']:.2f}")
    return [f"{robust} of {options.samples}", str(violations), *passes, *seconds]


def main() -> None:
    """The table, or one line of it in a separate process."""
    counts, hidden = {"samples": 100, "batch_size": 100, "seed": 0}, {"child": "", "inputs": ""}
    options = measure.arguments(
        __doc__,
        **dict.fromkeys(CHECKOUTS, ""),
        subjects=["cnn4_pgd", "resnet4b"],
        only=list(ENSEMBLES),
        **counts,
        **hidden,
    )
    if options.child:
        return child(options)
    columns = "network,eps,ensemble,robust,violations,forwards,backwards,cpu s,bare s,over bare"
    note = (
        "The inputs that each returned were judged afresh in float32; ART and "
        "foolbox with their defaults."
    )
    table = measure.Table("Ensembles of other libraries beside ours", columns, note)
    for key in options.subjects:
        subject = measure.subject(key)
        for name in options.only:
            checkout = name.replace("-", "_")
            if checkout not in CHECKOUTS or getattr(options, checkout):
                table.add(subject.name, subject.eps_text, name, *line(name, key, options))
    return None


if __name__ == "__main__":
    main()
