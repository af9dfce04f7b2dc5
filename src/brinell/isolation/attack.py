"""The proxy of an attack in a child process, which reaches the oracle over the pipe and nothing else.

The ledger judges the attack like any other. Queries and answers are the same as for an attack in this process, so the records are
the same.
"""

from dataclasses import asdict, is_dataclass
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, Field
from torch import Tensor

from brinell.core.contracts import Domain, Extras, Family, Oracle, Remark, Streams, Threat
from brinell.core.criterion import NotRejected, Targeted
from brinell.core.errors import RequestError, option
from brinell.core.oracle import Batch
from brinell.core.settings import MOST_COUNT
from brinell.isolation.oracle import OracleProxy, child_loss
from brinell.isolation.process import GROUP_SECONDS, Facts, Line, PluginProcess, Properties
from brinell.isolation.proxy import IsolatedPlugin
from brinell.manifest import Content, Listing, TableOf, misfit

Passes = Annotated[int, Field(ge=0, le=MOST_COUNT**2)]


class AttackProperties(Properties):
    """The child's description of an attack."""

    distances: Listing[Line]
    """The distances that it supports."""
    family: Family
    """Family of the attack: minimal ones give the whole curve in one run."""
    targeted: bool
    """True if it supports target classes."""
    reach: TableOf[Annotated[float, Field(ge=1, le=1e6)]]
    """Largest multiple of eps at which it queries, by distance."""


def _checked_legend(legend: dict[str, Any]) -> dict[str, Any]:
    """A legend of the plug-in's own. The pages show placements of patches as figures, and a file may not claim them."""
    if legend.get("kind") == "patches":
        raise misfit("claims placements of patches, which are those of rlab")
    return legend


class Completion(Content):
    """The child's message at the end of a group."""

    remarks: Listing[Annotated[tuple[Line, Line], Field(strict=False)]]
    """Remarks of the attack, each a code and a sentence."""
    legend: Annotated[Facts, AfterValidator(_checked_legend)]
    """Meaning of the extra numbers per sample."""


class CostAnswer(Content):
    """The declared cost of the attack."""

    cost: Annotated[tuple[Passes, Passes], Field(strict=False)]
    """Largest number of forwards and of backwards per sample."""


class OddAnswer(Content):
    """Notes of the attack on inputs."""

    odd: Listing[Line]
    """Notes, each a sentence."""


class IsolatedAttack(IsolatedPlugin):
    """An attack in a child process, with the members of `core.contracts.Attack`."""

    form: ClassVar[type[Properties]] = AttackProperties

    def __init__(self, process: PluginProcess, properties: dict[str, Any], source: str) -> None:
        super().__init__(process, properties, source)
        self.targeted, self.family = bool(properties["targeted"]), cast(Family, properties["family"])
        self.distances = frozenset(properties["distances"])
        self._costs: dict[int, tuple[int, int]] = {}

    def cost(self, classes: int) -> tuple[int, int]:
        """Largest number of forwards and backwards per sample, as the attack declares."""
        if classes not in self._costs:
            forwards, backwards = self._process.ask("cost", {"classes": classes}, form=CostAnswer).fields["cost"]
            self._costs[classes] = (forwards, backwards)
        return self._costs[classes]

    def reach(self, distance: str) -> float:
        """Largest multiple of eps at which the attack queries."""
        return float(self._properties["reach"].get(distance, 1.0))

    def check(self, domain: Domain) -> None:
        """Let the attack check the domain; raises its error."""
        self._process.ask("check", {"domain": domain.to_json()})

    def try_on(self, x: Tensor, domain: Domain) -> list[str]:
        """Notes of the attack on these inputs."""
        frame = self._process.ask("try_on", {"domain": domain.to_json()}, {"x": x}, form=OddAnswer)
        return list(frame.fields["odd"])

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> Extras:
        """Send the group to the child, answer its queries, and return the extras that it sends at the end."""
        proxy = OracleProxy(oracle, batch, self.cost(oracle.classes)[0])
        criterion = threat.criterion
        arrays = {"x": batch.x, "y": batch.y, "eps": threat.eps, "keys": rng.keys}
        arrays |= {"targets": criterion.classes} if isinstance(criterion, Targeted) else {}
        fields = _distance(threat.distance) | {
            "domain": threat.domain.to_json(),
            "classes": oracle.classes,
            "reject": criterion.reject if isinstance(criterion, NotRejected) else None,
        }
        ask_loss = child_loss(self._process)
        frame = self._process.ask(
            "attack",
            fields,
            arrays,
            form=Completion,
            seconds=GROUP_SECONDS,
            reply=lambda query: proxy.answer(query, ask_loss),
        )
        return Extras([Remark(*remark) for remark in frame.fields["remarks"]], frame.arrays, frame.fields["legend"])


def _distance(distance: Any) -> dict[str, Any]:
    """Name and settings with which the child builds the distance; refuses distances that are not Brinell's."""
    module = type(distance).__module__
    if not module.startswith("brinell.distances.") or not is_dataclass(distance):
        raise RequestError(
            f"the attack is a file and runs in a process of its own, which takes the distances of Brinell, and {distance.name} "
            f"is a file as well: leave one of both out, or add {option('in_process')}"
        )
    return {"distance": module.rpartition(".")[2].replace("_", "-"), "settings": asdict(cast(Any, distance))}
