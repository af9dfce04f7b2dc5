"""What all trainers share: the loop around their rounds, the count of episodes, and what goes into a checkpoint."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from brinell.core.errors import ContractError, RequestError
from brinell.rl.interface import Environment, Policy, Progress, State, Turn

EPISODES = 100
"""Over how many episodes returns are averaged."""


class Trainer(Protocol):
    """An algorithm at work on one environment. It advances by rounds, and may be left and taken up between any two.

    One that is made with a `State` takes up where that was taken, bit by bit; its environment must be in the state that it had
    then. One that is made without begins episodes in all slots.
    """

    @property
    def environment(self) -> Environment:
        """Where it acts."""

    @property
    def tally(self) -> "Tally":
        """What it has done so far."""

    @property
    def policy(self) -> Policy:
        """How it would act now, without exploring. It shares the network, so it changes with further rounds."""

    def advance(self) -> None:
        """One round: some steps of all slots, then the updates that they pay for."""

    def state(self) -> State:
        """Everything that goes into a checkpoint, except the environment."""


def train(trainer: Trainer, *, steps: int | None = None, seconds: float | None = None, every: int = 1000) -> Iterator[Progress]:
    """Advance by whole rounds until `steps` or `seconds` are spent, or the environment runs out of work.

    Where it stops changes nothing: at each report the trainer can be saved, and trained on once it is loaded.

    Args:
        trainer: what to advance.
        steps: of single slots, those done before this call included; None for no such end.
        seconds: of wall time in this call; None for no such end.
        every: steps from one report to the next. There is always a report at the end.
    """
    began, tally = time.monotonic(), trainer.tally
    reported = tally.steps
    while bool(trainer.environment.alive.any()) and (steps is None or tally.steps < steps):
        if seconds is not None and time.monotonic() - began >= seconds:
            break
        trainer.advance()
        if tally.steps >= reported + every:
            reported = tally.steps
            yield tally.progress(time.monotonic() - began)
    if tally.steps != reported:
        yield tally.progress(time.monotonic() - began)


class Tally:
    """Steps, episodes and returns of all slots."""

    def __init__(self, alive: Tensor) -> None:
        self.steps = self.updates = self.episodes = 0
        self.loss: float | None = None
        self.terms: dict[str, float] = {}
        self._ended: deque[tuple[float, float]] = deque(maxlen=EPISODES)
        # Double: a return is a sum of thousands of rewards.
        self._running = torch.zeros(2, len(alive), dtype=torch.float64, device=alive.device)

    def count(self, reward: Tensor, alive: Tensor, ended: Tensor) -> bool:
        """Note one step of all slots: what it paid, who took part, whose episode it ended. Whether it ended any."""
        self.steps += int(alive.sum())
        self._running[0] += reward
        self._running[1] += alive
        which = ended.nonzero()[:, 0]
        if not len(which):
            return False
        self.episodes += len(which)
        self._ended.extend((value, length) for value, length in self._running[:, which].T.tolist())
        self._running[:, which] = 0
        return True

    def learned(self, losses: Sequence[Tensor], terms: Mapping[str, Sequence[Tensor]]) -> None:
        """Note the gradient steps of a round by their losses, and the means of what else was watched.

        Raises:
            ContractError: a loss is not finite, so the features, the rewards or the network are not.
        """
        self.updates += len(losses)
        self.loss = float(torch.stack(list(losses)).mean())
        self.terms = {name: float(torch.stack(list(values)).mean()) for name, values in terms.items()}
        if not -torch.inf < self.loss < torch.inf:
            raise ContractError(
                f"the loss became {self.loss} at step {self.steps}: a feature, a reward or an output is not finite; "
                "mend that, or lower the learning rate"
            )

    def progress(self, seconds: float = 0.0) -> Progress:
        """One point of the curves."""
        returns, lengths = zip(*self._ended, strict=True) if self._ended else ((), ())
        mean_return, mean_length = (sum(of) / len(of) if of else None for of in (returns, lengths))
        return Progress(seconds, self.steps, self.updates, self.episodes, mean_return, mean_length, self.loss, dict(self.terms))

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        ended = torch.tensor(list(self._ended), dtype=torch.float64).reshape(-1, 2)
        return {"ended": ended, "running": self._running}

    def numbers(self) -> dict[str, Any]:
        """For a checkpoint."""
        names = ("steps", "updates", "episodes", "loss", "terms")
        return {name: getattr(self, name) for name in names}

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """From a checkpoint."""
        for name, value in numbers.items():
            setattr(self, name, value)
        self._ended = deque(((value, length) for value, length in tensors["ended"].tolist()), maxlen=EPISODES)
        self._running.copy_(tensors["running"])


def seeded(seed: int, device: torch.device) -> torch.Generator:
    """The generator of one training run."""
    return torch.Generator(device).manual_seed(seed)


def device_of(network: nn.Module) -> torch.device:
    """Where the network's parameters are."""
    return next(network.parameters()).device


def require(settings: Any, at_most: float = float("inf"), **least: float | None) -> None:
    """Hold settings to their ranges: each from its least value, or above 0 where that is None, to `at_most`, and finite.

    Raises:
        ValueError: a setting is out of range.
    """
    for name, low in least.items():
        value = getattr(settings, name)
        fits = value > 0 if low is None else value >= low
        if not fits or value > at_most or value == float("inf"):
            bounds = "above 0" if low is None else f"at least {low}" if at_most == float("inf") else f"from {low} to {at_most:g}"
            raise ValueError(f"{name} is {value}; it must be {bounds}, and finite")


# --- checkpoints -----------------------------------------------------------------------------------------------------


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, their names beginning with `prefix` and a slash."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of `under`: those whose names begin so, without the beginning."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def turn_tensors(turn: Turn) -> dict[str, Tensor]:
    """A turn by names."""
    allowed, most = ({str(branch): one for branch, one in enumerate(tensors)} for tensors in (turn.allowed, turn.most))
    return under("features", turn.features) | under("allowed", allowed) | under("most", most)


def first_turn(environment: Environment, tensors: Mapping[str, Tensor] | None) -> Turn:
    """The turn to begin with: that of a checkpoint, as `turn_tensors` named it, or that of fresh episodes in all slots.

    Raises:
        RequestError: the checkpoint is of another number of slots.
    """
    if tensors is None:
        return environment.reset(torch.ones_like(environment.alive))
    tensors = {name: tensor.to(environment.alive.device) for name, tensor in tensors.items()}
    allowed, most = within("allowed", tensors), within("most", tensors)
    branches = (tuple(one[str(branch)] for branch in range(len(one))) for one in (allowed, most))
    turn = Turn(within("features", tensors), *branches)
    theirs, ours = len(turn.allowed[0]), len(environment.alive)
    if theirs != ours:
        raise RequestError(f"the checkpoint is of {theirs} slots and the environment has {ours}; go on with {theirs}")
    return turn


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimizer remembers of each parameter, by the parameter's number."""
    state = optimizer.state_dict()["state"]
    return {f"{index}/{name}": tensor for index, memory in state.items() for name, tensor in memory.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer its memory back; its settings stay as they are."""
    memory: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, what = name.partition("/")
        memory.setdefault(int(index), {})[what] = tensor.clone()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})


def load_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights.

    Raises:
        RequestError: they are another network's.
    """
    try:
        network.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise RequestError(f"the checkpoint is of another network: {' '.join(str(error).split())}") from None


def check_origin(state: State, algorithm: str, settings: Any) -> None:
    """Refuse a state of another algorithm or of other settings.

    Raises:
        RequestError: what differs.
    """
    if state.numbers.get("algorithm") != algorithm:
        raise RequestError(f"the checkpoint is of {state.numbers.get('algorithm')}, not of {algorithm}; name that algorithm")
    theirs = state.numbers["settings"]
    other = [
        f"{name} was {theirs.get(name)} and is {value}" for name, value in asdict(settings).items() if theirs.get(name) != value
    ]
    if other:
        raise RequestError(f"the checkpoint was made with other settings: {'; '.join(other)}; go on with those it was made with")


def origin(algorithm: str, settings: Any) -> dict[str, Any]:
    """What `check_origin` compares."""
    return {"algorithm": algorithm, "settings": asdict(settings)}
