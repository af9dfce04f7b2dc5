"""Minimal-norm attacks compared with their peers: distance and number of passes.

    python benchmarks/minimal.py --adversarial-library CHECKOUT --foolbox CHECKOUT --art CHECKOUT
    [--attacks ...] [--seeds 0 1]

Each CHECKOUT is a working tree of a peer (Adversarial Library, Foolbox, the Adversarial Robustness
Toolbox), which Brinell does not depend on. Installed peers need no checkout, and missing peers are
left out. Every side gets the same model, the same images and the same number of steps, and C&W
`--searches` values of c; forwards and backwards are counted by a hook on the module, for
all alike, and all results are judged alike: as an input that the module gets wrong, and by its
distance from the clean one. With `--our-steps` ours makes other steps, where as many cost more
passes than the peer's.

Each seed takes different images: number 1 those that follow the images of number 0, among those
that the model gets right. `apgd-l1` has a budget, `--eps-l1`, in place of a distance: there, what
is compared is how many samples are left.
"""

import importlib.util
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import measure
import numpy as np
import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.core.contracts import Streams, reach_of
from brinell.core.threat import extent
from brinell.models._torch_model import TorchModel

GROUP = "passes"
RUNS = {"": "--subjects cnn4_pgd --samples 2 --steps 4 --searches 2 --seeds 0"}
PACKAGES = {
    "adversarial-library": "adv_lib",
    "foolbox": "foolbox",
    "art": "art",
    "sigma-zero": "sigma_zero_attack",
}
"""By peer, the package that it is imported as."""
RESAMPLES = 2000
"""Of the samples, with replacement, for the interval of a ratio of medians."""

Run = Callable[[nn.Module, Tensor, Tensor, float], Tensor]
"""(module, x, y, eps) to adversarial inputs; what is not adversarial is judged as a failure. A
minimal attack ignores eps."""


class Contest(NamedTuple):
    """One attack: in which norm, and how each side is called."""

    norm: str
    attack: str
    """Name of our attack, with the settings that `steps` and `searches` become."""
    settings: dict[str, Any]
    peers: dict[str, Run]


# --- the peers
# ------------------------------------------------------------------------------------------


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
        adversarial: Tensor = getattr(fb.attacks, name)(**settings).run(
            model, x, fb.criteria.Misclassification(y)
        )
        return adversarial

    return run


def art(name: str, **settings: Any) -> Run:
    """An evasion attack of ART, in one batch."""

    def run(module: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
        from art.attacks import evasion

        attack = getattr(evasion, name)(
            measure.art_classifier(module, x), batch_size=len(x), verbose=False, **settings
        )
        return torch.from_numpy(attack.generate(x.numpy(), y.numpy()))

    return run


def sigma_zero(steps: int) -> Run:
    """Sigma-zero of its authors, with as many steps as their function's default."""

    def run(module: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
        from sigma_zero_attack import sigma_zero

        adversarial: Tensor = sigma_zero(module, x, y, steps=steps)
        return adversarial.detach()

    return run


def contests(steps: int, searches: int, our_steps: int) -> dict[str, Contest]:
    """All of them; `our_steps` are those of our side.

    ART's C&W searches along each step, which costs some seven passes in place of two; it gets as
    many fewer steps.
    """
    ours = {"steps": our_steps}
    binary, library = {"binary_search_steps": searches}, adversarial_library
    apgd = {"norm": 1, "loss_function": "ce", "n_iter": steps}
    return {
        "ddn": Contest(
            "l2",
            "ddn",
            ours,
            {
                "adversarial-library": library("ddn", steps=steps, levels=None),
                "foolbox": foolbox("DDNAttack", steps=steps),
                "adversarial-library, C&W": library(
                    "carlini_wagner_l2", max_iterations=steps, **binary
                ),
                "foolbox, C&W": foolbox("L2CarliniWagnerAttack", steps=steps, **binary),
                "art, C&W": art("CarliniL2Method", max_iter=max(1, steps // 4), **binary),
                "adversarial-library, DeepFool": library("df", steps=50),
                "foolbox, DeepFool": foolbox("L2DeepFoolAttack", steps=50),
            },
        ),
        "fmn-linf": Contest(
            "linf",
            "fmn",
            ours,
            {
                "adversarial-library, DeepFool": library("df", steps=50, norm=float("inf")),
                "foolbox, DeepFool": foolbox("LinfDeepFoolAttack", steps=50),
            },
        ),
        "sigma-zero": Contest("l0", "sigma-zero", ours, {"sigma-zero": sigma_zero(steps)}),
        "apgd-l1": Contest(
            "l1",
            "apgd",
            ours,
            {
                "adversarial-library": library("apgd", **apgd),
                "adversarial-library, from 3 eps": library("apgd", use_large_reps=True, **apgd),
            },
        ),
    }


# --- one side on one network
# -----------------------------------------------------------------------------------------


def own_run(contest: Contest, seed: int, subject: measure.Subject) -> Run:
    """Our attack behind a ledger; the closest adversarial inputs that it remembers."""
    attack = plugins.build("attack", contest.attack, contest.settings)
    minimal = attack.family == "minimal"

    def run(module: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
        model = TorchModel(module, subject.domain, name="module")
        budget = (
            extent(plugins.build("distance", contest.norm, {}), model.domain) if minimal else eps
        )
        settings = {
            "access": attack.access,
            "minimal": minimal,
            "reach": reach_of(attack, contest.norm),
            "batch_size": len(x),
        }
        ledger = measure.open_ledger(model, x, y, contest.norm, budget, **settings)
        return measure.run_attack(attack, ledger, Streams.of(seed, ledger.batch.ids)).best.closest

    return run


class Outcome(NamedTuple):
    """Result of one implementation."""

    sizes: np.ndarray
    """(n,) distances, infinite where nothing was found."""
    forwards: float
    """For each sample."""
    backwards: float


def outcome(
    run: Run, module: nn.Module, x: Tensor, y: Tensor, norm: str, eps: float, seed: int
) -> Outcome:
    """Runs one implementation, counts its passes and evaluates its adversarial examples."""
    torch.manual_seed(seed)  # noqa: TID251  -- peers draw from the global generator
    with measure.counting(module) as passes, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adversarial = run(module, x.clone(), y.clone(), eps).detach()
    wrong = ~measure.is_right(module, adversarial, y)
    wrong &= (adversarial - adversarial.clamp(0, 1)).flatten(1).abs().amax(1).le(1e-6)
    wrong &= adversarial.flatten(1).any(1)  # where it found nothing, Foolbox returns zeros
    sizes = torch.where(wrong, plugins.build("distance", norm, {}).size(adversarial - x), torch.inf)
    return Outcome(sizes.numpy(), passes.forwards / len(x), passes.backwards / len(x))


Statistic = Callable[[np.ndarray, np.ndarray], float]


def interval(
    statistic: Statistic, own_sizes: np.ndarray, peer_sizes: np.ndarray
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


def compare(
    name: str, contest: Contest, subject: str, options: Namespace, table: measure.Table
) -> None:
    """One attack on one network: all sides on the images of all seeds."""
    network = measure.subject(subject)
    module, n = network.module(), options.samples
    x, y = network.samples(n * (max(options.seeds) + 1), module)
    budgeted = name == "apgd-l1"
    peers = {
        library: run
        for library, run in contest.peers.items()
        if importlib.util.find_spec(PACKAGES[library.partition(",")[0]])
    }
    sides: dict[str, list[Outcome]] = {}
    for seed in options.seeds:
        part = slice(n * seed, n * (seed + 1))
        for library, run in {"ours": own_run(contest, seed, network), **peers}.items():
            result = outcome(run, module, x[part], y[part], contest.norm, options.eps_l1, seed)
            if budgeted:
                result = result._replace(
                    sizes=np.where(
                        result.sizes <= options.eps_l1 * (1 + 1e-5), result.sizes, np.inf
                    )
                )
            sides.setdefault(library, []).append(result)
    own_sizes = np.concatenate([result.sizes for result in sides["ours"]])
    statistic = lead if budgeted else ratio
    for library, results in sides.items():
        sizes = np.concatenate([result.sizes for result in results])
        common = np.isfinite(sizes) & np.isfinite(own_sizes)
        means = ["", ""] if budgeted else [f"{np.median(sizes):.4f}", f"{sizes[common].mean():.4f}"]
        against = ["", ""]
        if library != "ours":
            low, high = interval(statistic, own_sizes, sizes)
            by_seed = " ".join(
                f"{statistic(a.sizes, b.sizes):.3g}"
                for a, b in zip(sides["ours"], results, strict=True)
            )
            against = [f"{statistic(own_sizes, sizes):.3g} ({low:.3g} to {high:.3g})", by_seed]
        passes = [
            f"{np.mean([getattr(result, kind) for result in results]):.1f}"
            for kind in ("forwards", "backwards")
        ]
        table.add(
            network.name,
            name,
            library,
            f"{np.isfinite(sizes).mean():.1%}",
            *means,
            *against,
            *passes,
        )


def main() -> None:
    """Every attack on every network."""
    attacks = ["ddn", "fmn-linf", "sigma-zero", "apgd-l1"]
    subjects = ["lenet5_clean", "cnn4_pgd", "resnet20", "resnet4b"]
    counts = {"samples": 50, "steps": 100, "searches": 9, "our_steps": 0}
    checkouts = {name: "" for name in PACKAGES}
    options = measure.arguments(
        __doc__,
        subjects=subjects,
        attacks=attacks,
        seeds=[0, 1],
        eps_l1=12.0,
        **counts,
        **checkouts,
    )
    sys.path[:0] = [path for name in PACKAGES if (path := getattr(options, name.replace("-", "_")))]
    # Adversarial Library draws curves with visdom where it is asked to, and imports it in any case.
    sys.modules.setdefault("visdom", ModuleType("visdom"))
    note = (
        "Means are over the samples that both fooled. Ours against it: the ratio "
        "of our median distance and its own, or by how "
        "many samples more are left of ours, with a 95 % interval over samples."
    )
    columns = (
        "network,attack,by,success,median distance,mean distance,ours against it,by "
        "seed,forwards,backwards"
    )
    table = measure.Table("Minimal attacks beside their peers", columns, note)
    selected = contests(options.steps, options.searches, options.our_steps or options.steps)
    for subject in options.subjects:
        for name in options.attacks:
            compare(name, selected[name], subject, options, table)


if __name__ == "__main__":
    main()
