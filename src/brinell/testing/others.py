"""The rules of distances, data sets and models."""

from functools import partial

import numpy as np
import torch

from brinell.core.contracts import Access, Dataset, Distance, Model, Streams, check_complete
from brinell.core.norms import per_sample
from brinell.core.threat import COUNTS
from brinell.testing import form


def check_distance(distance: Distance) -> None:
    """Projection, ascent and sampling agree with the norm.

    Raises:
        ContractError: the first rule that is broken.
    """
    name = distance.name
    streams = Streams.of(0, torch.arange(16))
    delta = streams.normal(3, 4, 4)
    size = distance.size(delta)

    demand = partial(form.demand, f"distance {name}")
    is_positive = size.shape == (16,) and bool((size > 0).all())
    demand(is_positive, "gives no positive size to each perturbation")
    is_zero = bool((distance.size(torch.zeros_like(delta)) == 0).all())
    demand(is_zero, "gives the zero perturbation a size")

    # Balls that hold the perturbation, and balls that do not.
    eps = size * torch.linspace(0.1, 1.5, 16)
    projected = distance.project(delta.clone(), eps)
    is_inside = bool((distance.size(projected) <= eps * (1 + 1e-5)).all())
    demand(is_inside, "projects to outside of the ball")
    is_left = torch.allclose(projected[eps >= size], delta[eps >= size])
    demand(is_left, "moves what is inside the ball already")
    is_left = torch.allclose(distance.project(projected.clone(), eps), projected, atol=1e-6)
    demand(is_left, "moves a projected point again")

    steepest = distance.ascent(delta)
    is_unit = torch.allclose(distance.size(steepest), torch.ones(16), rtol=1e-4)
    demand(is_unit, "steps by another length than 1")
    is_finite = bool(torch.isfinite(distance.ascent(torch.zeros_like(delta))).all())
    demand(is_finite, "makes no finite step out of a zero gradient")

    # One of the first three is the steepest in L2, Linf and L1.
    flat = delta.flatten(1)
    largest = flat.abs().argmax(1, keepdim=True)
    single = torch.zeros_like(flat).scatter(1, largest, 1.0) * flat.sign()
    rivals = [delta, delta.sign(), single.reshape(delta.shape)]
    if name in COUNTS:  # a count is not scaled, and says nothing about how large a change is
        rivals = [distance.project(rival.sign(), torch.ones(16)) for rival in rivals]
    else:
        rivals = [rival / per_sample(distance.size(rival), rival) for rival in rivals]
    rivals += [distance.direction(streams.fold(i), (3, 4, 4)) for i in range(8)]
    rise = (steepest * delta).flatten(1).sum(1)
    is_steepest = all(
        bool((rise >= (rival * delta).flatten(1).sum(1) - 1e-4).all()) for rival in rivals
    )
    demand(is_steepest, "knows a steeper step than its ascent")

    sample = distance.sample(streams, (3, 4, 4))
    demand(bool((distance.size(sample) <= 1 + 1e-5).all()), "samples outside of the unit ball")
    direction = distance.direction(streams, (3, 4, 4))
    is_unit = torch.allclose(distance.size(direction), torch.ones(16), rtol=1e-4)
    demand(is_unit, "draws directions of another size than 1")

    doubled = distance.size(delta * per_sample(torch.full((16,), 2.0), delta))
    scales = name in COUNTS or torch.allclose(doubled, 2 * size, rtol=1e-4)
    demand(scales, "does not scale with the perturbation")


def check_dataset(dataset: Dataset) -> None:
    """Inputs lie in their bounds and on their levels, labels fit, and reading is repeatable.

    Raises:
        ContractError: the first rule that is broken.
    """
    check_complete(Dataset, dataset)
    labels = dataset.labels()
    domain = dataset.domain

    demand = partial(form.demand, f"data {dataset.name}")
    has_labels = len(labels) == len(dataset) > 0 and labels.dtype == np.int64
    demand(has_labels, "has not one int64 label per sample")
    has_names = labels.min() >= 0 and labels.max() < len(dataset.classes)
    demand(has_names, "has labels without a class name")

    indices = [0, len(dataset) - 1, len(dataset) // 2]
    x = dataset.load(indices)
    has_shape = x.dtype == torch.float32 and x.shape == (3, *domain.shape)
    demand(has_shape, "loads another type or shape than its domain says")
    demand(bool(domain.excess(x) <= domain.slack), "leaves its bounds")
    demand(torch.allclose(domain.round(x), x, atol=domain.slack), "is not on its storage levels")
    is_equal = torch.equal(dataset.load(indices[::-1]).flip(0), x)
    demand(is_equal, "loads other inputs in another order")
    is_stable = dataset.digest() == dataset.digest() and len(dataset.digest()) >= 16
    demand(is_stable, "has no stable digest")


def check_model(model: Model) -> None:
    """Check that answers are finite logits, the same alone as in company, and change nothing.

    Raises:
        ContractError: the first rule that is broken.
    """
    check_complete(Model, model)
    demand = partial(form.demand, f"model {model.name}")

    low, high = model.domain.bounds()
    # Inputs anywhere within the bounds.
    x = low + (high - low) * Streams.of(0, torch.arange(4)).uniform(*model.domain.shape)
    before = model.digest()
    original = x.clone()
    with torch.no_grad():
        logits = model.predict(x)
        demand(torch.equal(x, original), "writes into its inputs")
        repeat = model.predict(x)
        # Statistics of a batch would show here.
        single = torch.cat([model.predict(row[None]) for row in x])

    rule = f"answers {tuple(logits.shape)}, not (4, {model.classes})"
    demand(logits.shape == (4, model.classes), rule)
    demand(bool((logits < torch.inf).all()), "answers NaN or infinity")
    demand(torch.equal(logits, repeat), "answers differently twice")
    is_equal = torch.allclose(logits, single, rtol=1e-3, atol=1e-4)
    demand(is_equal, "answers differently in other company")
    demand(model.digest() == before, "changes when asked")

    if model.access == Access.GRADIENTS:
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(model.predict(leaf).sum(), leaf)
        demand(bool(torch.isfinite(grad).all()), "has no finite input gradient")
