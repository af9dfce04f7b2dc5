"""Small networks trained on labelled data, as surrogates of a model seen by its answers alone.

They are trained by the loop of the recipes, with the recipe `plain`: cross-entropy on clean inputs.
Of an unbalanced data set each class has positions in proportion to the root of its share, so that
rare classes are learned too.
"""

from collections.abc import Iterator

import numpy as np
import torch

from brinell import plugins
from brinell.core.contracts import Dataset
from brinell.core.record import Array
from brinell.rlab.networks import FORMS, SmallNetwork, fitting, initialised
from brinell.rlab.train import Candidate
from brinell.training.checks import Checker, is_correct
from brinell.training.data import TrainingSamples
from brinell.training.loop import Loop, Settings
from brinell.training.recipe import Recipe, TrainedNetwork

MOST_INPUTS = 50_000
"""Inputs that they are trained on at most, evenly spread over the data."""
CHECKED = 64
"""Inputs of the checks of the loop."""
CHECKS = 10
"""Checks of a training, about."""
MEASURED = 512
"""Inputs by which the scale of the inputs is measured."""


def balanced(labels: Array, count: int, rng: np.random.Generator) -> Array:
    """(count,) positions among labels (n,), each class in proportion to the root of its share.

    Each round of a class is without repetition.
    """
    classes, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shares = np.sqrt(counts) / np.sqrt(counts).sum()
    numbers = np.floor(shares * count).astype(np.int64)
    # The classes that rounding cost most get the remaining positions.
    numbers[np.argsort(numbers - shares * count)[: count - numbers.sum()]] += 1

    parts = []
    for index, number in enumerate(numbers):
        members = np.flatnonzero(inverse == index)
        # A class is gone through as a whole before any sample repeats.
        rounds = [rng.permutation(members) for _ in range(-(-number // len(members)))]
        parts += [np.concatenate(rounds)[:number]] if rounds else []
    return rng.permutation(np.concatenate(parts))


def train_surrogates(
    dataset: Dataset,
    learned: Array,
    checked: Array,
    classes: int,
    *,
    count: int,
    steps: int,
    eps: float,
    norm: str,
    seed: int,
    batch_size: int,
    device: torch.device,
) -> Iterator[Candidate]:
    """Train up to `count` networks of different forms and seeds, one after another.

    Their facts are form and seed, the accuracy on the inputs at the positions `checked` (k,), and
    the passes. They learn on those at the positions `learned` (n,). Each has the next seed; eps and
    norm are those of the loop's checks.
    """
    forms = FORMS[dataset.domain.kind]
    spread = np.linspace(0, len(learned) - 1, min(len(learned), MOST_INPUTS))
    learned = learned[spread.astype(np.int64)]
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    distance = plugins.build("distance", norm)
    size = min(batch_size, len(learned))
    domain = dataset.domain

    for number in range(count):
        form = fitting(domain, classes, forms[number % len(forms)])
        if form is None:
            return
        rng = np.random.default_rng(seed + number)
        # Epochs long enough that the loop checks about `CHECKS` times.
        size_of_epoch = max(len(learned), size * max(1, steps // CHECKS))
        positions = learned[balanced(labels[learned], size_of_epoch, rng)]

        module = initialised(domain, classes, form, seed + number)
        samples = TrainingSamples.of(dataset, positions, device)
        module[0].measure(samples.load(torch.arange(min(MEASURED, len(samples)), device=device)))  # type: ignore[operator]
        module.to(device)
        test = TrainingSamples.of(dataset, checked, device)
        x = test.load(torch.arange(len(test), device=device))

        trained = TrainedNetwork(module, module)
        checker = Checker(
            x=x[:CHECKED],
            y=test.labels[:CHECKED],
            distance=distance,
            domain=domain,
            batch_size=batch_size,
            seed=seed,
        )
        settings = Settings(
            eps=eps,
            epochs=steps * size / len(samples),
            batch_size=batch_size,
            weight_decay=1e-2,
            average=0.98,
            seed=seed + number,
        )
        recipe = Recipe.of("plain").fit(domain, distance)
        loop = Loop(trained, samples, [samples], checker, recipe, distance, settings)
        module.load_state_dict(loop.run())

        correct = is_correct(trained, x, test.labels)
        facts = {
            **form.model_dump(),
            "seed": seed + number,
            "steps": loop.state.step,
            "inputs": len(learned),
            "accuracy": float(correct.float().mean()) if len(correct) else None,
            "forwards": loop.state.forwards,
            "backwards": loop.state.backwards,
        }
        yield Candidate(SmallNetwork(module, form, domain, classes, dataset.classes), facts)
