"""Attacks on the same pictures with the same seeds: what each of them breaks, and differences with intervals over pictures."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DRAWS = 10_000
"""Bootstrap samples of the pictures."""


def collect(attacks: Sequence[str], seeds: int, run: Callable[[str, int], Array], file: Path | None) -> dict[str, Array]:
    """Losses of the untouched pictures as "none" (1, pictures), and of each attack (seeds, pictures), seed after seed.

    Args:
        attacks: their names.
        seeds: number of seeds.
        run: from an attack and a seed to losses (2, pictures) without the attack and under it.
        file: keeps the losses; what it holds already is not computed again.
    """
    losses = json.loads(file.read_text()) if file is not None and file.exists() else {}
    for seed in range(seeds):
        for attack in attacks:
            by_seed = losses.setdefault(attack, [])
            if len(by_seed) <= seed:
                losses["none"], last = run(attack, seed).tolist()
                by_seed.append(last)
                if file is not None:
                    file.write_text(json.dumps(losses))
    return {"none": np.array([losses["none"]])} | {attack: np.array(losses[attack][:seeds]) for attack in attacks}


def share_with_interval(losses: Array, total: Array) -> tuple[float, float, float]:
    """Share of losses (seeds, pictures) among (pictures,) pixels or objects, averaged over seeds, with its 95 % interval.

    Negative losses are differences of two attacks. The same pictures are drawn for every call.
    """
    mean = losses.mean(0)
    rows = np.random.default_rng(0).integers(0, len(total), (DRAWS, len(total)))
    counted = total[rows].sum(1)
    low, high = np.quantile(mean[rows].sum(1)[counted > 0] / counted[counted > 0], (0.025, 0.975))
    return float(mean.sum() / total.sum()), float(low), float(high)


def compare(losses: dict[str, Array], total: Array, noun: str) -> None:
    """Print the share of each attack, and its difference to the last one, paired by picture."""
    *others, last = losses
    for name, values in losses.items():
        share, low, high = share_with_interval(values, total)
        by_seed = ", ".join(f"{seed.sum() / total.sum():.4f}" for seed in values)
        print(f"{name}: {noun} {share:.4f} ({low:.4f} to {high:.4f}); by seed {by_seed}", flush=True)
    for name in others:
        share, low, high = share_with_interval(losses[name] - losses[last].mean(0), total)
        ratio = losses[name].mean(0).sum() / losses[last].mean(0).sum()
        print(f"{name} minus {last}: {share:+.4f} ({low:+.4f} to {high:+.4f}), ratio {ratio:.3f}", flush=True)


def with_steps(attack: str, steps: int) -> str:
    """The attack with a number of steps."""
    return f"{attack}{'&' if '?' in attack else '?'}steps={steps}"
