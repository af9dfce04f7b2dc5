"""Surrogates of an audit: what they must give, their relation to the models under test, and their
mean.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from brinell.core.errors import ModelError, RequestError, short
from brinell.core.model import Access, Model, ModelInfo, ask
from brinell.models._answers import random_inputs


def check_gradients(model: Model) -> None:
    """Refuse a surrogate that gives no gradients on random inputs, or takes inputs of another
    shape.
    """
    if model.access < Access.GRADIENTS:
        raise RequestError(
            f"the surrogate {model.name} gives {model.access.name.lower()} only: "
            "name one that gives gradients"
        )

    x = random_inputs(model.domain, 4).requires_grad_()
    grad = None
    try:
        with torch.enable_grad(), model.info.session(torch.device("cpu")):
            logits = ask(model, x)
            # Of one class a softmax is constant, and has no gradient.
            value = logits.softmax(1)[:, 0].sum() if logits.shape[1] > 1 else logits.sum()
            if value.requires_grad:
                (grad,) = torch.autograd.grad(value, x, allow_unused=True)
    except (ModelError, RuntimeError) as error:
        shape = "x".join(map(str, model.domain.shape))
        raise RequestError(
            f"the surrogate {model.name} cannot be asked about inputs of {shape} "
            f"({error}): name a network for this data"
        ) from None
    if grad is None or not bool(grad.any()):
        raise RequestError(
            f"the surrogate {model.name} gives no gradients to follow: name a "
            "differentiable network"
        )


def check_class_names(model: Model, names: Sequence[str], data: str) -> None:
    """Refuse a surrogate of a policy file whose classes are other ones than those of the data."""
    learned = model.info.class_names
    if learned and names and tuple(learned) != tuple(names):
        raise RequestError(
            f"{model.name} tells {short(', '.join(learned))} apart, and {data} "
            f"has {short(', '.join(names))}: train a policy on "
            "this data by brinell train agent, or leave out policy="
        )


def surrogate_notes(surrogates: Sequence[Any], models: Sequence[Any]) -> list[str]:
    """Notes on surrogates that are models under test; refuses those with other classes, and two of
    one name or content.

    Both are sources of a plan, with a name and facts.
    """
    notes = []
    names = [surrogate.name for surrogate in surrogates]
    digests = [surrogate.facts["digest"] for surrogate in surrogates]
    for surrogate in surrogates:
        name, facts = surrogate.name, surrogate.facts
        if names.count(name) > 1 or digests.count(facts["digest"]) > 1:
            raise RequestError(
                f"the surrogate {name} is named twice: name each once, and tell "
                "them apart by the option name="
            )

        for model in models:
            if facts["classes"] != model.facts["classes"]:
                raise RequestError(
                    f"the surrogate {name} tells {facts['classes']} classes "
                    f"apart, and {model.name} {model.facts['classes']}: name a "
                    "network with the classes of the model under test"
                )
            if facts["digest"] == model.facts["digest"]:
                notes.append(
                    f"the surrogate {name} is the model under test itself: "
                    "attacks follow its own gradients, so the figures of "
                    f"{model.name} are white-box"
                )
    return notes


class MeanModel:
    """The mean of the logits of several models (Liu et al. 2017, Delving into transferable
    adversarial examples).

    Of three fusions, that of logits makes the examples that transfer best (Dong et al. 2018,
    Boosting adversarial attacks with momentum, section 3.3).
    """

    info = ModelInfo(answers="logits")

    def __init__(self, models: Sequence[Model]) -> None:
        if len({model.classes for model in models}) > 1:
            counts = ", ".join(f"{model.name} {model.classes}" for model in models)
            raise RequestError(
                f"models with different numbers of classes cannot be attacked as one: {counts}"
            )
        self._models = tuple(models)
        self.name = " and ".join(model.name for model in models)
        self.access = Access(min(model.access for model in models))
        self.domain, self.classes = models[0].domain, models[0].classes

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits."""
        return torch.stack([model.predict(x) for model in self._models]).mean(0)

    def digest(self) -> str:
        """The digests of the models."""
        return " ".join(model.digest() for model in self._models)


def mean_of(models: Sequence[Model]) -> Model:
    """One model unchanged, or the mean of several."""
    return models[0] if len(models) == 1 else MeanModel(models)
