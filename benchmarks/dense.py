"""Segmentation under attack on real networks: figures at few passes, over nine budgets, beside SEA's own code, and black-box.

    python benchmarks/dense.py figures --net deeplabv3_mnv2_dm05_pascal --attack "sea?steps=5" --eps 4/255,8/255
    python benchmarks/dense.py figures --side 513 --pictures 4 --eps 0:8/255:9 --attack "apgd-map?steps=10"
    python benchmarks/dense.py peer --checkout CHECKOUT --steps 5 --eps 1/510,1/255,4/255
    python benchmarks/dense.py black-box --eps 8 --pictures 10
    python benchmarks/dense.py polyps --pictures 48

Pictures, masks and weights are those of `dense` in BRINELL_SHARED; pictures are spread evenly over those of val2017, as in its
README. CHECKOUT is a copy of nmndeep/robust-segmentation, of which semseg/utils/attacker.py is used. Seconds are those of the
processor.
"""

import argparse
import contextlib
import importlib.util
import io
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from paired import collect, compare, with_steps
from torch import Tensor, nn

import brinell
from brinell.core.segmentation import confusion
from brinell.studies.dense.segmentation_analysis import miou, share_right

FOLDER = measure.SHARED / "dense"
NETS = ("deeplabv3_mnv2_dm05_pascal", "deeplabv3_mnv2_pascal")
PEER_LOSSES = ("mask-ce-avg", "segpgd-loss", "js-avg", "mask-norm-corrlog-avg")
"""The losses of SEA by the names of its code."""
BLACK_BOX_ATTACKS = ("rlab?refine=0&clean_up=false", "rlab?refine=0&clean_up=false&distortions=signed-patch", "square")
"""Attacks by answers alone; the last one is what the others are compared with."""


def module_of(file: Path) -> Any:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


def load_pictures(side: int, many: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[str]]:
    """Pictures and masks spread evenly over val2017, and the names of the classes."""
    data = module_of(FOLDER / "data_dense.py").segmentation(FOLDER / "segmentation", side=side)
    total = int((data["split"] == "val2017").sum())
    rows = [int(index * total / many) for index in range(many)]
    return data["images"][rows], data["masks"][rows], [str(name) for name in data["classes"]]


def load_net(name: str) -> nn.Module:
    """A network of the shared data."""
    net: nn.Module = module_of(FOLDER / "segmentation" / "model_seg.py").load(name)
    return net


def report(result: Any, seconds: float) -> None:
    """Print the figures of a study, and its passes for each picture."""
    for accuracy, figure in zip(result.pixel_accuracy, result.miou, strict=True):
        costs = [attack for attack in result.attacks if attack.eps == accuracy.eps]
        backwards = sum(attack.backwards for attack in costs) / result.n
        intervals = f"({accuracy.low:.4f} to {accuracy.high:.4f}) / ({figure.low:.4f} to {figure.high:.4f})"
        print(
            f"{result.model} eps {accuracy.eps:.4g} ({255 * accuracy.eps:.3g}/255): accuracy {accuracy.value:.4f}, "
            f"mIoU {figure.value:.4f} {intervals}, {backwards:.1f} gradients a picture"
        )
    print(f"{seconds:.0f} s", flush=True)


def run_study(net: nn.Module, data: Any, **settings: Any) -> tuple[Any, float]:
    """A study in a temporary folder, and its processor seconds."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = brinell.dense(net, data, out=Path(folder) / "study", **settings)
    return result, time.process_time() - start


def figures(arguments: argparse.Namespace) -> None:
    """Print pixel accuracy and mean IoU by budget."""
    x, masks, classes = load_pictures(arguments.side, arguments.pictures)
    data = brinell.data(x, masks=masks, classes=classes)
    for net in arguments.net:
        attacks = list(arguments.attack)
        report(*run_study(load_net(net), data, eps=arguments.eps, attack=attacks, norm=arguments.norm, seed=arguments.seed))


def load_peer(checkout: Path) -> Any:
    """SEA's module of attacks; the few helpers of autoattack that it imports stand in if that is not installed."""
    try:
        importlib.import_module("autoattack.other_utils")
    except ImportError:  # the benchmark autoattack.py of this folder has the name, too
        package, helpers = types.ModuleType("autoattack"), types.ModuleType("autoattack.other_utils")
        helpers.L0_norm = lambda x: (x != 0).float().flatten(1).sum(1)  # type: ignore[attr-defined]
        helpers.L1_norm = helpers.L2_norm = None  # type: ignore[attr-defined]
        helpers.Logger = lambda path: types.SimpleNamespace(log=lambda text: None)  # type: ignore[attr-defined]
        sys.modules |= {"autoattack": package, "autoattack.other_utils": helpers}
    return module_of(checkout / "semseg" / "utils" / "attacker.py")


def attack_by_peer(
    attacker: Any, net: Callable[[Tensor], Tensor], x: Tensor, mask: Tensor, eps: float, steps: int
) -> list[Tensor]:
    """(classes, classes) counts of the answers to the input of each of SEA's losses."""
    counts = []
    target = mask.where(mask != 255, torch.tensor(-1))
    for loss in PEER_LOSSES:
        with contextlib.redirect_stdout(io.StringIO()):
            moved, _, _ = attacker.apgd_largereps(
                net, x, target, eps=eps, n_iter=steps, loss=loss, track_loss="ce-avg", use_rs=True, early_stop=True
            )
        assert float((moved - x).abs().max()) <= eps + 1e-6
        with torch.no_grad():
            counts.append(confusion(net(moved).argmax(1), mask, 21)[0])
    return counts


def peer(arguments: argparse.Namespace) -> None:
    """SEA's code beside ours at as many gradients: per budget alone, without what smaller budgets found."""
    attacker = load_peer(arguments.checkout)
    x, masks, classes = load_pictures(arguments.side, arguments.pictures)
    inputs, truth = torch.from_numpy(x.copy()).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(masks.astype(np.int64))
    for name in arguments.net:
        net, passes = load_net(name), [0]
        net.register_forward_hook(lambda module, args, answer, passes=passes: passes.__setitem__(0, passes[0] + 1))
        for text in arguments.eps.split(","):
            eps = float(np.prod([float(part) ** power for part, power in zip(text.split("/"), (1, -1), strict=False)]))
            passes[0], start = 0, time.process_time()
            torch.manual_seed(arguments.seed)  # noqa: TID251 - the peer draws from the global generator
            counts = [
                attack_by_peer(attacker, net, inputs[row, None], truth[row, None], eps, arguments.steps) for row in range(len(x))
            ]
            worst = sum(min(of_losses, key=lambda one: share_right(one.numpy()) or 0.0) for of_losses in counts)
            value = np.asarray(worst)
            seconds = time.process_time() - start
            print(
                f"SEA, {name} eps {255 * eps:.3g}/255: accuracy {share_right(value):.4f}, mIoU {miou(value):.4f}, "
                f"{passes[0] / len(x):.1f} forwards a picture, {seconds:.0f} s",
                flush=True,
            )
            attack = f"sea?steps={arguments.steps}"
            report(*run_study(net, brinell.data(x, masks=masks, classes=classes), eps=text, attack=attack, seed=arguments.seed))


def black_box(arguments: argparse.Namespace) -> None:
    """RLAB beside Square by the share of valid pixels that each makes wrong."""
    x, masks, classes = load_pictures(arguments.side, arguments.pictures)
    data, net, queries = brinell.data(x, masks=masks, classes=classes), load_net(arguments.net[0]), arguments.queries
    valid = (masks != 255).sum((1, 2))

    def run(attack: str, seed: int) -> np.ndarray[Any, Any]:
        """(2, pictures): pixels that are wrong without an attack and under it."""
        settings = {"norm": "l2", "eps": arguments.eps, "queries": queries, "select": "first", "seed": seed}
        result, seconds = run_study(net, data, attack=with_steps(attack, queries - 1), **settings)
        shares = np.array([[1 - (share or 0.0) for share in picture.accuracy] for picture in result.pictures])
        print(f"{attack} seed {seed}: {shares[:, -1].round(4).tolist()}")
        report(result, seconds)
        return (shares.T[[0, -1]] * valid).round()

    compare(collect(arguments.attack, arguments.seeds, run, arguments.results), valid, "wrong pixels")


def polyps(arguments: argparse.Namespace) -> None:
    """The certified network: attacked and certified pixel accuracy by L2 radius."""
    folder = FOLDER / "segmentation_certified"
    data = module_of(FOLDER / "data_dense.py").segmentation(folder)
    net = module_of(folder / "model_lip.py").load()
    rows = slice(0, arguments.pictures)
    dataset = brinell.data(data["images"][rows], masks=data["masks"][rows], classes=[str(name) for name in data["classes"]])
    settings = {"norm": "l2", "eps": "0.05,0.1,0.25,0.5,1", "lipschitz": float(net.lipschitz), "attack": arguments.attack}
    result, seconds = run_study(net, dataset, **settings)
    report(result, seconds)
    for figure in result.certified:
        print(f"certified within {figure.eps:g}: {figure.value:.4f} ({figure.low:.4f} to {figure.high:.4f})")
    print(f"{result.contradictions} contradictions on {result.n} pictures and {len(result.certified)} radii")


COMMANDS = {one.__name__.replace("_", "-"): one for one in (figures, peer, black_box, polyps)}


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--net", action="append")
    parser.add_argument("--side", type=int, default=257)
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--attack", action="append")
    parser.add_argument("--eps", default="4/255,8/255")
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, help="keeps the figures of black-box, which then goes on where it ended")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.net = arguments.net or [NETS[0]]
    arguments.attack = arguments.attack or (BLACK_BOX_ATTACKS if arguments.command == "black-box" else ["sea?steps=5"])
    COMMANDS[arguments.command](arguments)


if __name__ == "__main__":
    main()
