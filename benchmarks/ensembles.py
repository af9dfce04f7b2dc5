"""Ensembles of attacks side by side: AutoAttack of its authors, of torchattacks and of ART, foolbox's attacks together, and ours.

    python benchmarks/ensembles.py [--reference CHECKOUT] [--subjects cnn4_pgd resnet4b] [--samples 100] [--only ART fast]

All get the same network (no parameter asks for a gradient), the first test images, right or wrong, the Linf budget of the
network, batches of one size and one seed, each in a separate process. The success that an ensemble reports does not count:
the inputs that it returns are judged again in float32, on a network newly loaded, and an input counts as an adversarial
example only within bounds and budget. `violations` are returned inputs outside of them. Forwards and backwards are counted by
a hook on the module, for all alike; `cpu s` is processor time of the attack alone (ours with records, stored inputs and
report); `over bare` is that over the bare passes: the same batches with nothing around them.

- reference: the standard version, of a checkout.
- torchattacks: its AutoAttack, version standard, one call a batch. It leaves APGD and FAB at 10 steps where the others have 100.
- ART: its AutoAttack with all its defaults: APGD on the cross-entropy and on DLR, DeepFool, and Square of 5,000 steps, with 5
  restarts of each APGD and of Square; the first step of APGD is 0.1 whatever the budget.
- foolbox: it has no AutoAttack; its documentation (examples/multiple_attacks_pytorch_resnet18.py) takes, sample by sample, the
  best of FGSM, LinfPGD, LinfBasicIterativeAttack, LinfAdditiveUniformNoiseAttack and LinfDeepFoolAttack with their defaults.
- standard, fast: ours.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.threat import Threat
from brinell.distances.linf import Linf

CALLS = 20_000
"""Bare calls at most; where more were made, every k-th is repeated and the time taken k times."""

# Each takes module, images, labels, eps and the options, and returns inputs of the shape of the images.


def reference(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: argparse.Namespace) -> Tensor:
    """The authors' own, from the working tree of a checkout."""
    sys.path.insert(0, options.reference)
    from autoattack import AutoAttack

    attack = AutoAttack(module, norm="Linf", eps=eps, seed=options.seed, device="cpu", verbose=False)
    return attack.run_standard_evaluation(x, y, bs=options.batch_size)


def torchattacks(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: argparse.Namespace) -> Tensor:
    """The AutoAttack of torchattacks."""
    import torchattacks

    attack = torchattacks.AutoAttack(module, norm="Linf", eps=eps, version="standard", n_classes=10, seed=options.seed)
    size = options.batch_size
    return torch.cat([attack(part, labels) for part, labels in zip(x.split(size), y.split(size), strict=True)])


def art(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: argparse.Namespace) -> Tensor:
    """The AutoAttack of the Adversarial Robustness Toolbox."""
    from art.attacks.evasion import AutoAttack
    from art.estimators.classification import PyTorchClassifier

    # It imports multiprocess, a fork of the standard library's module, and uses it in parallel runs only.
    sys.modules.setdefault("multiprocess", multiprocessing)
    shape = tuple(x.shape[1:])
    model = PyTorchClassifier(module, nn.CrossEntropyLoss(), shape, nb_classes=10, clip_values=(0.0, 1.0), device_type="cpu")
    attack = AutoAttack(model, norm=np.inf, eps=eps, batch_size=options.batch_size)
    return torch.from_numpy(attack.generate(x.numpy().copy(), np.eye(10, dtype=np.float32)[y.numpy()]))


def foolbox(module: nn.Module, x: Tensor, y: Tensor, eps: float, options: argparse.Namespace) -> Tensor:
    """The attacks of foolbox that its documentation runs together, all on all samples; the first find of each sample stays."""
    import foolbox
    from foolbox import attacks

    model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    ensemble = [
        attacks.FGSM(),
        attacks.LinfPGD(),
        attacks.LinfBasicIterativeAttack(),
        attacks.LinfAdditiveUniformNoiseAttack(),
        attacks.LinfDeepFoolAttack(),
    ]
    adversarial, fooled = x.clone(), torch.zeros(len(x), dtype=torch.bool)
    for attack in ensemble:
        for rows in torch.arange(len(x)).split(options.batch_size):
            _, clipped, success = attack(model, x[rows], y[rows], epsilons=eps)
            new = success & ~fooled[rows]
            adversarial[rows[new]], fooled[rows[new]] = clipped[new], True
    return adversarial


def cascade(name: str, module: nn.Module, x: Tensor, y: Tensor, eps: float, options: argparse.Namespace) -> Tensor:
    """One of ours, records, stored inputs and report included."""
    import brinell
    from brinell.datasets._memory import ArrayDataset
    from brinell.models._torch_model import TorchModel
    from brinell.store.run import Run

    data = ArrayDataset(x, y)
    model = TorchModel(module, data.domain, classes=10, name="module")
    closest = x.clone()
    with tempfile.TemporaryDirectory() as folder:
        brinell.audit(
            model, data, eps=repr(eps), attack=name, samples=len(y), seed=options.seed, batch_size=options.batch_size,
            device="cpu", out=Path(folder) / "run",
        )  # fmt: skip
        run = Run.open(Path(folder) / "run")
        for stage in run.manifest["stages"]:
            for sample, adversarial in run.adversarial("module", stage["name"], range(len(y))).items():
                closest[sample] = torch.from_numpy(adversarial)
    return closest


def standard(*arguments: object) -> Tensor:
    """The protocol of AutoAttack, ours."""
    return cascade("standard", *arguments)


def fast(*arguments: object) -> Tensor:
    """Our cheap cascade."""
    return cascade("fast", *arguments)


ENSEMBLES = {
    "reference": reference, "torchattacks": torchattacks, "ART": art, "foolbox": foolbox, "standard": standard, "fast": fast,
}  # fmt: skip


def samples(subject: measure.Subject, n: int) -> tuple[Tensor, Tensor]:
    """The first n test images with their labels, right or wrong."""
    with np.load(measure.SHARED / subject.data) as arrays:
        images, labels = arrays["images"][:n], arrays["labels"][:n]
    x = torch.from_numpy(images).reshape(n, *images.shape[1:3], -1).movedim(-1, 1).float().div(255).contiguous()
    return x, torch.from_numpy(labels.astype(np.int64))


def child(options: argparse.Namespace) -> None:
    """Run one ensemble in this process; its inputs go to a file, what it cost to standard output."""
    subject = measure.subject(options.subjects[0])
    module, (x, y) = subject.module(), samples(subject, options.samples)
    with torch.no_grad():
        module(x[: options.batch_size])
    # ART and foolbox draw from the global generators.
    np.random.seed(options.seed)  # noqa: NPY002, TID251
    torch.manual_seed(options.seed)  # noqa: TID251
    with measure.counting(module) as passes, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        began = time.process_time()
        adversarial = ENSEMBLES[options.child](module, x.clone(), y.clone(), subject.eps, options)
        seconds = time.process_time() - began
    np.save(options.inputs, adversarial.detach().numpy())
    stride = -(-len(passes.batches) // CALLS)
    began = time.process_time()
    measure.replay(module, measure.Passes(passes.batches[::stride]), x, y)
    bare = (time.process_time() - began) * stride
    print(json.dumps({"forwards": passes.forwards, "backwards": passes.backwards, "cpu": seconds, "bare": bare}))


def count_robust(subject: measure.Subject, adversarial: Tensor, x: Tensor, y: Tensor) -> tuple[int, int]:
    """How many samples hold, and how many of the inputs lie outside bounds or budget."""
    module = subject.module()
    threat = Threat(distance=Linf(), eps=torch.full((len(x),), subject.eps), domain=subject.domain)
    outside = ~(Linf().size(adversarial - x) <= threat.eps + threat.tolerance())
    outside |= ~((adversarial >= -subject.domain.slack) & (adversarial <= 1 + subject.domain.slack)).flatten(1).all(1)
    looked_at = torch.where(outside[:, None, None, None], x, adversarial)
    with torch.no_grad():
        right = torch.cat([module(part) for part in looked_at.split(256)]).argmax(1) == y
    return int(right.sum()), int(outside.sum())


def line(name: str, key: str, options: argparse.Namespace) -> list[str]:
    """The cells of one ensemble on one network."""
    subject = measure.subject(key)
    with tempfile.TemporaryDirectory() as folder:
        inputs = f"{folder}/inputs.npy"
        words = [sys.executable, "-W", "ignore", __file__, "--child", name, "--inputs", inputs, "--subjects", key]
        words += [
            f"--{option}={getattr(options, option.replace('-', '_'))}" for option in ("samples", "batch-size", "seed", "threads")
        ]
        words += ["--reference", options.reference] if options.reference else []
        environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
        process = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["no word of why"])[-1]
            return [f"did not run: {reason}", *[""] * 6]
        adversarial = torch.from_numpy(np.load(inputs, allow_pickle=False)).float()
    cost = json.loads(process.stdout.strip().splitlines()[-1])
    robust, violations = count_robust(subject, adversarial, *samples(subject, options.samples))
    forwards, backwards = (f"{cost[kind]:,}" for kind in ("forwards", "backwards"))
    return [f"{robust} of {options.samples}", str(violations), forwards, backwards] + [
        f"{cost['cpu']:.1f}", f"{cost['bare']:.1f}", f"{cost['cpu'] / cost['bare']:.2f}",
    ]  # fmt: skip


def main() -> None:
    """The table, or one line of it in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", default="", help="working tree of the reference AutoAttack; left out without one")
    parser.add_argument("--subjects", nargs="+", default=["cnn4_pgd", "resnet4b"])
    parser.add_argument("--only", nargs="+", choices=ENSEMBLES, default=list(ENSEMBLES), help="leave the others out")
    for name, default in (("samples", 100), ("batch-size", 100), ("seed", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("child", "inputs"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        child(options)
        return
    command = (
        f"python benchmarks/ensembles.py --samples {options.samples} --batch-size {options.batch_size} --seed {options.seed}"
    )
    columns = "network,eps,ensemble,robust,violations,forwards,backwards,cpu s,bare s,over bare".split(",")
    note = "The inputs that each returned were judged afresh in float32; ART and foolbox with their defaults."
    table = measure.Table("Ensembles of other libraries beside ours", f"{command} --reference CHECKOUT", columns, note)
    for key in options.subjects:
        subject = measure.subject(key)
        for name in options.only:
            if name != "reference" or options.reference:
                table.add(subject.name, subject.eps_text, name, *line(name, key, options))


if __name__ == "__main__":
    main()
