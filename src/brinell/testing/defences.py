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
    rule = "costs no forward or no backward, so it learns nothing"
    demand(plugin.__name__, min(defence.cost()) >= 1, rule)

    for kind in (kind for kind in KINDS if kind in defence.domains):
        domain = Domain(kind=kind, shape=SHAPES[kind])
        if isinstance(defence, PerturbsWeights):
            _moves_weights_and_puts_them_back(defence, domain)
            continue
        is_text = isinstance(defence.safer(), str)
        demand(plugin.__name__, is_text, "does not say by a text what is safer")
        for name in NORMS & defence.distances:
            _crafts_and_learns(defence, domain, plugins.build("distance", name))


def _network(domain: Domain) -> nn.Module:
    """A linear network of inputs of a domain."""
    features = torch.Size(domain.shape).numel()
    # The user's generator stays where it is.
    with seeded(0):
        return nn.Sequential(nn.Flatten(), nn.Linear(features, CLASSES))


def _batch(domain: Domain) -> Batch:
    """Random inputs of a domain."""
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
        generator = torch.Generator().manual_seed(seed)
        with contained(subject, f" ({domain.kind})"):
            crafted: object = defence.craft(network, batch, threat, generator)
        has_shape = isinstance(crafted, Tensor) and crafted.shape == batch.x.shape
        demand(subject, has_shape, "gives inputs of another shape")
        assert isinstance(crafted, Tensor)
        return crafted

    x_adv = craft(0)
    demand(subject, torch.equal(batch.x, clean), "wrote into the batch that it was given")
    is_within = bool(domain.excess(x_adv) <= domain.slack)
    demand(subject, is_within, "gives inputs outside the bounds of the data, or NaN")
    demand(subject, not x_adv.requires_grad, "gives inputs with a gradient: detach them")
    demand(subject, torch.equal(craft(0), x_adv), "gives other inputs for the same generator")
    rule = "drew from a global random generator; draw from the one it is handed"
    demand(subject, generator_states() == states, rule)
    has_no_gradients = all(weight.grad is None for weight in network.parameters())
    demand(subject, has_no_gradients, "left gradients at the weights while crafting")

    loss: object = defence.loss(network, batch, x_adv)
    is_by_sample = isinstance(loss, Tensor) and loss.shape == (ROWS,)
    demand(subject, is_by_sample, "gives not one loss for each sample")
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
        is_larger = bool(loss().detach() > lower)
        demand(subject, is_larger, "moves the weights to where the loss is no larger")

    equal = all(
        torch.equal(parameter.detach(), old)
        for parameter, old in zip(parameters, before, strict=True)
    )
    demand(subject, equal, "does not put the weights back")
