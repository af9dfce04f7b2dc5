"""The search of a latent space where everything is linear, so that it can be said beforehand what
there is to find."""

from types import SimpleNamespace

import pytest
import torch

from _helpers import VECTOR, Recorder, batch_of, threat_of
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.studies.unrestricted import UnrestrictedRequest
from brinell.studies.unrestricted.search import nearest_wrong, quantise, search, sees

COARSE = Domain(kind="vector", shape=(2,), levels=11)


def draw(z, y):
    """A latent of two values to an input around the middle: x = 0.5 + 0.1 z."""
    return 0.5 + 0.1 * z


def above(threshold_at, axis=0, steep=50.0):
    """Class 1 above `threshold_at` on an axis, class 0 below."""

    def logits(x):
        lead = steep * (x[:, axis] - threshold_at)
        return torch.stack([-lead, lead], 1)

    return logits


def never_in_doubt(x):
    """An auxiliary classifier that sees class 0 in everything."""
    return torch.stack([5 + 0 * x[:, 0], 0 * x[:, 0]], 1)


def look(model, z0, *, name=never_in_doubt, domain=VECTOR, draws=draw, **settings):
    z0 = torch.as_tensor(z0, dtype=torch.float32)
    y = torch.zeros(len(z0), dtype=torch.int64)
    recorder = Recorder(model, domain)
    batch = batch_of(quantise(draws(z0, y), domain), y)
    ledger = Ledger(
        recorder, batch, threat_of(1.0, domain=domain, n=len(batch)), minimal=True, batch_size=3
    )
    x, z = search(ledger.oracle(), draws, name, z0, y, domain, **{"steps": 200} | settings)
    success = (model(x).argmax(1) == 1) & sees(name(x), y, settings.get("class_probability", 0.9))
    return SimpleNamespace(x=x, z=z, success=success, steps=ledger.costs.forwards), ledger, recorder


def test_it_finds_the_latent_that_flips_the_target_where_there_is_one():
    result, ledger, _ = look(above(0.55), [[-1.0, 2.0], [0.4, 0.0], [1.0, -3.0]])
    assert result.success.all() and (result.x[:, 0] > 0.55).all() and ledger.fooled.all()
    # Nothing pulls at the second value, and a search ends at the first input that counts: no
    # farther than a step beyond.
    torch.testing.assert_close(result.z[:, 1], torch.tensor([2.0, 0.0, -3.0]))
    assert (result.x[:2, 0] < 0.55 + 0.1 * 2 * 0.05).all()
    # The third is beyond already: one look.
    assert result.steps.tolist()[2] == 1 and result.z[2].tolist() == [1.0, -3.0]
    torch.testing.assert_close(result.x, draw(result.z, None))


def test_it_finds_nothing_where_there_is_nothing():
    # The model errs outside the bounds of the data alone, which inputs cannot leave.
    result, ledger, recorder = look(
        above(1.01), [[0.0, 0.0], [4.9, 0.0]], steps=60, rate=1.0, penalty=0.0
    )
    assert not result.success.any() and not ledger.fooled.any()
    assert result.steps.tolist() == [60, 60] and max(float(x.max()) for x in recorder.calls) == 1.0


def test_a_class_that_is_lost_does_not_count():
    # The auxiliary classifier draws the same line as the model: wherever the model errs, the class
    # has changed.
    result, ledger, _ = look(above(0.55), [[0.0, 0.0]], name=above(0.55), steps=80)
    assert not result.success.any()
    # With a line of its own farther on there is a strip between the two, and the loss keeps the
    # search in it.
    result, ledger, _ = look(
        above(0.55), [[0.0, 0.0]], name=above(0.62), class_probability=0.9, steps=80
    )
    assert result.success.all() and 0.55 < float(result.x[0, 0]) < 0.62


def test_how_sure_the_auxiliary_classifier_has_to_be():
    logits = torch.tensor([[2.0, 0.0], [0.1, 0.0], [0.0, 1.0]])
    y = torch.zeros(3, dtype=torch.int64)
    assert sees(logits, y).tolist() == [True, True, False]
    assert sees(logits, y, 0.8).tolist() == [True, False, False]


def test_the_small_noise_reaches_what_the_generator_does_not_draw_and_no_farther():
    def fixed(z, y):
        return 0.4 + 0 * z

    assert not look(above(0.45), [[0.0, 0.0]], draws=fixed)[0].success.any()
    assert not look(above(0.45), [[0.0, 0.0]], draws=fixed, noise=0.04)[0].success.any()
    result, _, recorder = look(above(0.45), [[0.0, 0.0]], draws=fixed, noise=0.1)
    assert result.success.all() and float(result.x[0, 0]) > 0.45
    assert max(float((x - 0.4).abs().max()) for x in recorder.calls) <= 0.1 + 1e-6


def test_the_latent_is_held_back_beyond_its_radius():
    result, _, _ = look(above(0.9), [[0.0, 0.0]], radius=0.5, penalty=1e4, steps=300)
    assert not result.success.any() and float(result.z.abs().max()) < 0.8
    free, _, _ = look(above(0.9), [[0.0, 0.0]], radius=0.5, penalty=0.0, steps=300)
    assert free.success.all() and float(free.z[0, 0]) > 4.0


def test_every_evaluation_of_the_target_is_counted_and_none_is_made_after_the_end():
    result, ledger, recorder = look(above(0.55), [[-1.0, 0.0], [0.4, 0.0], [1.0, 0.0], [0.2, 0.0]])
    assert (
        ledger.costs.forwards.tolist() == ledger.costs.backwards.tolist() == result.steps.tolist()
    )
    assert recorder.queries == int(result.steps.sum())
    assert ledger.best.first_success.tolist() == result.steps.tolist()


def test_a_sample_ends_where_it_would_end_alone():
    z0 = torch.linspace(-2, 1, 7)[:, None].repeat(1, 2)
    batched, _, _ = look(above(0.55), z0, name=above(0.7), noise=0.02)
    for i in range(len(z0)):
        separate, _, _ = look(above(0.55), z0[i : i + 1], name=above(0.7), noise=0.02)
        torch.testing.assert_close(separate.x[0], batched.x[i])
        assert separate.steps[0] == batched.steps[i]


def test_what_the_target_is_shown_can_be_stored():
    result, ledger, recorder = look(above(0.55), [[-1.0, 0.3]], domain=COARSE)
    for x in recorder.calls:
        torch.testing.assert_close(x * 10, (x * 10).round(), atol=1e-5, rtol=0)
    assert result.success.all() and float(result.x[0, 0]) == pytest.approx(0.6)


def test_the_gradient_passes_the_rounding_and_stops_at_the_bounds():
    x = torch.tensor([[0.23, 1.4]], requires_grad=True)
    quantised = quantise(x, COARSE)
    torch.testing.assert_close(quantised, torch.tensor([[0.2, 1.0]]))
    quantised.sum().backward()
    assert x.grad.tolist() == [[1.0, 0.0]]


def test_the_untargeted_loss_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
    torch.testing.assert_close(
        nearest_wrong(logits, torch.tensor([0, 2])), torch.log(torch.tensor([0.3, 0.2]))
    )


BAD_SETTINGS = [{"steps": 0}, {"noise": -0.1}, {"class_probability": 1.0}]


def test_settings_that_make_no_sense_are_refused(subtests):
    for bad in BAD_SETTINGS:
        with subtests.test(str(bad)):
            with pytest.raises(ValueError, match=next(iter(bad))):
                UnrestrictedRequest(**bad)
