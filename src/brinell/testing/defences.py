"""The rules that every defence keeps. `check_defence` names the first one that is broken."""

from typing import Any

import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.core.contracts import KINDS, Distance, Domain, Kind, PerturbsWeights, Threat
from brinell.core.oracle import Batch
from brinell.core.streams import seeded
from brinell.testing.form import check_form, check_settings, contained, demand, generator_states

SHAPES: dict[Kind, tuple[int, ...]] = {
    "image": (1, 8, 8),
    "signal": (2, 16),
    "video": (1, 2, 4, 4),
    "vector": (6,),
}
NORMS = frozenset({"linf", "l2"})
ROWS, CLASSES, EPS = 6, 3, 0.1
SYNONYMS = {
    "seed": "the generator that it is handed",
    "eps": "the threat that it is handed",
    "epsilon": "the threat that it is handed",
    "num_steps": "steps",
    "iterations": "steps",
    "alpha": "step_size",
}


def check_defence(plugin: type[Any], **settings: Any) -> None:
    """Run every rule over a defence, on each kind of input and in each distance that it declares.

    Args:
        plugin: the defence's class.
        settings: settings to check it with, where not its defaults.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("domains", "distances", "budgeted"), SYNONYMS)
    defence = plugin(**settings)
    check_settings(defence)
    forwards, backwards = defence.cost()
    demand(
        plugin.__name__,
        min(forwards, backwards) >= 1,
        "costs no forward or no backward, so it learns nothing",
    )
    for kind in (kind for kind in KINDS if kind in defence.domains):
        domain = Domain(kind=kind, shape=SHAPES[kind])
        if isinstance(defence, PerturbsWeights):
            _moves_weights_and_puts_them_back(defence, domain)
            continue
        demand(
            plugin.__name__,
            isinstance(defence.safer(), str),
            "does not say by a text what is safer",
        )
        for name in NORMS & defence.distances:
            _crafts_and_learns(defence, domain, plugins.build("distance", name, {}))


def _network(domain: Domain) -> nn.Module:
    with seeded(0):
        return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(domain.shape).numel(), CLASSES))


def _batch(domain: Domain) -> Batch:
    rng = torch.Generator().manual_seed(1)
    x = torch.rand(ROWS, *domain.shape, generator=rng)
    return Batch(ids=torch.arange(ROWS), x=x, y=torch.arange(ROWS) % CLASSES)


def _crafts_and_learns(defence: Any, domain: Domain, distance: Distance) -> None:
    """Check crafted inputs and losses."""
    subject = f"defence {type(defence).__name__}"
    network = _network(domain)
    batch = _batch(domain)
    threat = Threat(distance=distance, eps=torch.full((ROWS,), EPS), domain=domain)
    clean = batch.x.clone()
    states = generator_states()

    def craft(seed: int) -> Tensor:
        """Crafted inputs."""
        with contained(subject, f" ({domain.kind})"):
            crafted: object = defence.craft(
                network, batch, threat, torch.Generator().manual_seed(seed)
            )
        demand(
            subject,
            isinstance(crafted, Tensor) and crafted.shape == batch.x.shape,
            "gives inputs of another shape",
        )
        assert isinstance(crafted, Tensor)
        return crafted

    x_adv = craft(0)
    demand(subject, torch.equal(batch.x, clean), "wrote into the batch that it was given")
    demand(
        subject,
        bool(domain.excess(x_adv) <= domain.slack),
        "gives inputs outside the bounds of the data, or NaN",
    )
    demand(subject, not x_adv.requires_grad, "gives inputs with a gradient: detach them")
    demand(subject, torch.equal(craft(0), x_adv), "gives other inputs for the same generator")
    demand(
        subject,
        generator_states() == states,
        "drew from a global random generator; draw from the one it is handed",
    )
    demand(
        subject,
        all(weight.grad is None for weight in network.parameters()),
        "left gradients at the weights while crafting",
    )
    loss: object = defence.loss(network, batch, x_adv)
    demand(
        subject,
        isinstance(loss, Tensor) and loss.shape == (ROWS,),
        "gives not one loss for each sample",
    )
    assert isinstance(loss, Tensor)
    demand(subject, bool(torch.isfinite(loss).all()), "gives a loss that is not finite")
    demand(subject, loss.requires_grad, "gives a loss without a way back to the weights")
    loss.mean().backward()  # type: ignore[no-untyped-call]
    gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
    demand(subject, any(bool(gradient.any()) for gradient in gradients), "moves no weight")


def _moves_weights_and_puts_them_back(defence: PerturbsWeights, domain: Domain) -> None:
    """Check that perturbed weights are restored."""
    subject = f"defence {type(defence).__name__}"
    network = _network(domain)
    batch = _batch(domain)
    parameters = list(network.parameters())
    before = [parameter.detach().clone() for parameter in parameters]

    def loss() -> Tensor:
        """(n,) loss of the network on the batch."""
        return nn.functional.cross_entropy(network(batch.x), batch.y)

    lower = loss().detach()
    with defence.perturbed(parameters, loss):
        demand(
            subject,
            bool(loss().detach() > lower),
            "moves the weights to where the loss is no larger",
        )
    equal = all(
        torch.equal(parameter.detach(), old)
        for parameter, old in zip(parameters, before, strict=True)
    )
    demand(subject, equal, "does not put the weights back")
