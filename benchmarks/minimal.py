"""Minimal-norm attacks compared with their peers: distance and number of passes.

    python benchmarks/minimal.py --adversarial-library CHECKOUT --foolbox CHECKOUT --art CHECKOUT [--attacks ...] [--seeds 0 1]

Each CHECKOUT is a working tree of a peer (Adversarial Library, Foolbox, the Adversarial Robustness Toolbox), which Brinell does
not depend on. Installed peers need no checkout, and missing peers are left out. Every side gets the same
model, the same images, the same number of steps, and as many values of c where there are some; forwards and backwards are
counted by a hook on the module, for all alike, and all results are judged alike: as an input that the module gets wrong, and by
its distance from the clean one.

Each seed takes different images: number 1 those that follow the images of number 0, among those that the model gets right.
`apgd-l1` has a budget, `--eps-l1`, in place of a distance: there, what is compared is how many samples are left.
"""

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import measure
import numpy as np
import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.core.contracts import Batch, Streams, Threat, reach_of
from brinell.core.ledger import Ledger
from brinell.core.threat import extent
from brinell.models._torch_model import TorchModel

PEERS = {"adversarial-library": "adv_lib", "foolbox": "foolbox", "art": "art"}
"""Each by the package that it is imported as."""
RESAMPLES = 2000
"""Of the samples, with replacement, for the interval of a ratio of medians."""

Run = Callable[[nn.Module, Tensor, Tensor, float], Tensor]
"""(module, x, y, eps) to adversarial inputs; what is not adversarial is judged as a failure. A minimal attack ignores eps."""


class Contest(NamedTuple):
    """One attack: in which norm, and how each side is called."""

    norm: str
    attack: str
    """Name of our attack, with the settings that `steps` and `searches` become."""
    settings: dict[str, Any]
    peers: dict[str, Run]


# --- the peers -------------------------------------------------------------------------------------------------------


def adversarial_library(name: str, **settings: Any) -> Run:
    """A function of Adversarial Library, called as its README does."""

    def run(module: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
        from adv_lib import attacks

        budget = {"eps": eps} if name == "apgd" else {}
        adversarial: Tensor = getattr(attacks, name)(module, x, y, **budget, **settings)
        return adversarial

    return run


def foolbox(name: str, **settings: Any) -> Run:
    """A minimization attack of Foolbox, run without a budget."""

    def run(module: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
        import foolbox as fb

        model = fb.PyTorchModel(module, bounds=(0, 1), device="cpu")
        adversarial: Tensor = getattr(fb.attacks, name)(**settings).run(model, x, fb.criteria.Misclassification(y))
        return adversarial

    return run


def art(name: str, **settings: Any) -> Run:
    """An evasion attack of ART, in one batch."""

    def run(module: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        with torch.no_grad():
            classes = module(x[:1]).shape[1]
        estimator = PyTorchClassifier(
            module, nn.CrossEntropyLoss(), tuple(x.shape[1:]), classes, clip_values=(0, 1), device_type="cpu"
        )
        attack = getattr(evasion, name)(estimator, batch_size=len(x), verbose=False, **settings)
        return torch.from_numpy(attack.generate(x.numpy(), y.numpy()))

    return run


def contests(steps: int, searches: int, our_steps: int, at_hand: set[str]) -> dict[str, Contest]:
    """All of them, with the peers that are at hand; `our_steps` are those of our side.

    ART's C&W searches along each step, which costs some seven passes in place of two; it gets as many fewer steps.
    """
    plain_settings, search_settings = {"steps": our_steps}, {"steps": our_steps, "searches": searches}
    of_foolbox = {"steps": steps, "binary_search_steps": searches}
    of_art = {"binary_search_steps": searches}
    all_of_them = {
        "cw": Contest(
            "l2",
            "cw",
            search_settings,
            {
                "adversarial-library": adversarial_library(
                    "carlini_wagner_l2", max_iterations=steps, binary_search_steps=searches
                ),
                "foolbox": foolbox("L2CarliniWagnerAttack", **of_foolbox),
                "art": art("CarliniL2Method", max_iter=max(1, steps // 4), **of_art),
            },
        ),
        "ddn": Contest(
            "l2",
            "ddn",
            plain_settings,
            {
                "adversarial-library": adversarial_library("ddn", steps=steps, levels=None),
                "foolbox": foolbox("DDNAttack", steps=steps),
            },
        ),
        "deepfool": Contest(
            "l2",
            "deepfool",
            {},
            {
                "adversarial-library": adversarial_library("df", steps=50),
                "foolbox": foolbox("L2DeepFoolAttack", steps=50),
                "art": art("DeepFool", max_iter=50),
            },
        ),
        "deepfool-linf": Contest(
            "linf",
            "deepfool",
            {},
            {
                "adversarial-library": adversarial_library("df", steps=50, norm=float("inf")),
                "foolbox": foolbox("LinfDeepFoolAttack", steps=50),
            },
        ),
        "ead": Contest(
            "l1",
            "ead",
            search_settings,
            {
                "foolbox": foolbox("EADAttack", decision_rule="L1", regularization=0.001, **of_foolbox),
                "art": art("ElasticNet", max_iter=steps, decision_rule="L1", **of_art),
            },
        ),
        "apgd-l1": Contest(
            "l1",
            "apgd",
            plain_settings,
            {
                "adversarial-library": adversarial_library("apgd", norm=1, loss_function="ce", n_iter=steps),
                "adversarial-library, from 3 eps": adversarial_library(
                    "apgd", norm=1, loss_function="ce", n_iter=steps, use_large_reps=True
                ),
            },
        ),
    }
    return {
        name: contest._replace(
            peers={library: run for library, run in contest.peers.items() if library.partition(",")[0] in at_hand}
        )
        for name, contest in all_of_them.items()
    }


# --- one side on one network -----------------------------------------------------------------------------------------


def own_run(contest: Contest, seed: int) -> Run:
    """Our attack behind a ledger; the closest adversarial inputs that it remembers."""
    attack = plugins.build("attack", contest.attack, contest.settings)
    distance = plugins.build("distance", contest.norm, {})

    def run(module: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
        model = TorchModel(module, DOMAINS[tuple(x.shape[1:])], name="module")
        batch = Batch(ids=torch.arange(len(x)), x=x, y=y)
        minimal = attack.family == "minimal"
        budget = torch.full((len(x),), extent(distance, model.domain) if minimal else eps)
        threat = Threat(distance=distance, eps=budget, domain=model.domain)
        reach = reach_of(attack, contest.norm)
        ledger = Ledger(model, batch, threat, access=attack.access, minimal=minimal, reach=reach, batch_size=len(x))
        attack(ledger.oracle(), batch, threat, Streams.of(seed, batch.ids))
        return ledger.best.closest

    return run


DOMAINS = {subject.shape: subject.domain for subject in map(measure.subject, (*measure.SUBJECTS, *measure.MORE_SUBJECTS))}


class Outcome(NamedTuple):
    """Result of one implementation."""

    sizes: np.ndarray
    """(n,) distances, infinite where nothing was found."""
    forwards: float
    """For each sample."""
    backwards: float


def outcome(run: Run, module: nn.Module, x: Tensor, y: Tensor, norm: str, eps: float, seed: int) -> Outcome:
    """Runs one implementation, counts its passes and evaluates its adversarial examples."""
    torch.manual_seed(seed)  # noqa: TID251  -- peers draw from the global generator
    with measure.counting(module) as passes, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adversarial = run(module, x.clone(), y.clone(), eps).detach()
    with torch.no_grad():
        wrong = (module(adversarial).argmax(1) != y) & (adversarial - adversarial.clamp(0, 1)).flatten(1).abs().amax(1).le(1e-6)
        wrong &= adversarial.flatten(1).any(1)  # where it found nothing, Foolbox returns zeros
    sizes = torch.where(wrong, plugins.build("distance", norm, {}).size(adversarial - x), torch.inf)
    return Outcome(sizes.numpy(), passes.forwards / len(x), passes.backwards / len(x))


def interval(
    statistic: Callable[[np.ndarray, np.ndarray], float], own_sizes: np.ndarray, peer_sizes: np.ndarray
) -> tuple[float, float]:
    """95 % bootstrap interval of a statistic of paired samples."""
    rng = np.random.default_rng(0)
    draws = (rng.integers(len(own_sizes), size=len(own_sizes)) for _ in range(RESAMPLES))
    with np.errstate(invalid="ignore"):
        values = [statistic(own_sizes[draw], peer_sizes[draw]) for draw in draws]
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def ratio(own_sizes: np.ndarray, peer_sizes: np.ndarray) -> float:
    """Median over median."""
    return float(np.median(own_sizes) / np.median(peer_sizes))


def lead(own_sizes: np.ndarray, peer_sizes: np.ndarray) -> float:
    """How many more samples are left of the first."""
    return float(np.isinf(own_sizes).sum() - np.isinf(peer_sizes).sum())


def compare(name: str, contest: Contest, subject: str, options: argparse.Namespace, table: measure.Table) -> None:
    """One attack on one network: all sides on the images of all seeds."""
    network = measure.subject(subject)
    module, n = network.module(), options.samples
    x, y = network.samples(n * (max(options.seeds) + 1), module)
    budgeted = name == "apgd-l1"
    sides: dict[str, list[Outcome]] = {}
    for seed in options.seeds:
        part = slice(n * seed, n * (seed + 1))
        for library, run in {"ours": own_run(contest, seed), **contest.peers}.items():
            result = outcome(run, module, x[part], y[part], contest.norm, options.eps_l1, seed)
            if budgeted:
                result = result._replace(sizes=np.where(result.sizes <= options.eps_l1 * (1 + 1e-5), result.sizes, np.inf))
            sides.setdefault(library, []).append(result)
    own_sizes = np.concatenate([result.sizes for result in sides["ours"]])
    for library, results in sides.items():
        sizes = np.concatenate([result.sizes for result in results])
        common = np.isfinite(sizes) & np.isfinite(own_sizes)
        statistic = lead if budgeted else ratio
        low, high = interval(statistic, own_sizes, sizes)
        against = f"{statistic(own_sizes, sizes):.3g} ({low:.3g} to {high:.3g})" if library != "ours" else ""
        by_seed = " ".join(f"{statistic(a.sizes, b.sizes):.3g}" for a, b in zip(sides["ours"], results, strict=True))
        table.add(
            network.name,
            name,
            library,
            f"{np.isfinite(sizes).mean():.1%}",
            "" if budgeted else f"{np.median(sizes):.4f}",
            "" if budgeted else f"{sizes[common].mean():.4f}",
            against,
            by_seed if library != "ours" else "",
            f"{np.mean([result.forwards for result in results]):.1f}",
            f"{np.mean([result.backwards for result in results]):.1f}",
        )


def main() -> None:
    """Every attack on every network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in PEERS:
        parser.add_argument(f"--{name}", type=Path, default=None, metavar="CHECKOUT", help="working tree of this peer")
    parser.add_argument("--subjects", nargs="+", default=["lenet5_clean", "cnn4_pgd", "resnet20", "resnet4b"])
    parser.add_argument("--attacks", nargs="+", default=["cw", "ddn", "deepfool", "deepfool-linf", "ead", "apgd-l1"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--eps-l1", type=float, default=12.0, help="budget of apgd-l1")
    for name, default in (("samples", 50), ("steps", 100), ("searches", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--our-steps", type=int, default=None, help="steps of ours where as many cost more passes than the peer's"
    )
    options = parser.parse_args()
    our_steps = options.our_steps or options.steps
    torch.set_num_threads(options.threads)
    checkouts = {name: getattr(options, name.replace("-", "_")) for name in PEERS}
    sys.path[:0] = [str(checkout) for checkout in checkouts.values() if checkout is not None]
    at_hand = {name for name, package in PEERS.items() if importlib.util.find_spec(package)}
    # Adversarial Library draws curves with visdom where it is asked to, and imports it in any case.
    sys.modules.setdefault("visdom", ModuleType("visdom"))
    command = " ".join(
        [
            "python benchmarks/minimal.py",
            *(f"--{name} CHECKOUT" for name in PEERS if checkouts[name]),
            "--subjects",
            *options.subjects,
        ]
        + ["--attacks", *options.attacks, f"--samples {options.samples} --steps {options.steps} --searches {options.searches}"]
        + [f"--our-steps {our_steps}"] * (our_steps != options.steps)
        + ["--seeds", *map(str, options.seeds), f"--eps-l1 {options.eps_l1:g}"]
    )
    columns = "network,attack,by,success,median distance,mean distance,ours against it,by seed,forwards,backwards".split(",")
    note = (
        "Means are over the samples that both fooled. Ours against it: the ratio of our median distance and its own, or by how "
        "many samples more are left of ours, with a 95 % interval over samples."
    )
    table = measure.Table("Minimal attacks beside their peers", command, columns, note)
    selected = contests(options.steps, options.searches, our_steps, at_hand)
    for subject in options.subjects:
        for name in options.attacks:
            compare(name, selected[name], subject, options, table)


if __name__ == "__main__":
    main()
