"""Stages: attacks with their settings, and the orders in which they run."""

from dataclasses import dataclass, fields, replace
from typing import Any

from brinell import plugins
from brinell.core.contracts import Access, Attack, follows_surrogates
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.engine.adaptive import Source, When
from brinell.engine.attack_names import ALIASES, CASCADES, PRESETS, check_attack_name

ATTACK_TITLES = {
    "boundary-walk": "Boundary walk",
    "hop-skip-jump": "HopSkipJump",
    "patch-apgd": "Patch-APGD",
    "pgd-estimated": "PGD with estimates",
    "simba": "SimBA",
    "ray-s": "RayS",
    "sparse-rs": "Sparse-RS",
    "square": "Square",
}
"""Attacks whose names are not written in capitals."""
GRADIENT_TITLES = {
    "repaired": "around what breaks the gradient (BPDA)",
    "surrogate": "along the surrogate's gradient",
}
CONDITION_TITLES = {
    "masked": "if gradients are masked",
    "blind": "if the gradient is missing or wrong",
    "random": "if answers are random",
    "detached": "if scores do not tell how near the decision is",
    "suspected": "if an attack that does not climb from the clean input found more",
}
"""Texts for the gradient and the condition of a stage, as its title shows them."""
COUNTED_SETTINGS = {"targets": 1, "steps": 1, "restarts": 2}
"""Settings that a title shows, with the smallest number that it shows."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Rule that selects which of the robust samples a stage attacks.

    Except for `when`, the rule depends on each sample alone, not on the others. Shares are of the
    clean margin, the lead of the true class on the clean input: 0 is the boundary.
    """

    within: float | None = None
    """Only samples of whose clean margin earlier stages left at most this share."""
    last: float | None = None
    """Only samples that the previous stage attacked, and of whose clean margin it left at most
    this share."""
    share: float = 1.0
    """Only this share of the samples, drawn by their ids, which estimates how the attack would
    do on all."""
    alone: bool = False
    """Every sample, as if no stage had run before (`alone=true`); for comparisons of attacks."""
    when: When | None = None
    """Only under a condition, such as `when=masked` (gradients mislead)."""

    def __post_init__(self) -> None:
        for name, share in (("within", self.within), ("last", self.last), ("share", self.share)):
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"{name} is {share:g}: it is a share from 0 to 1")

    def spared_samples(
        self, clean: Array, nearest: Array, last: Array, *, draw: Array, waits: bool
    ) -> Array:
        """(n,) bool: the samples that are not attacked.

        Args:
            clean: (n,) lead of the true class on the clean input, positive where it is right.
            nearest: (n,) largest lead of a wrong class so far, negative short of the boundary.
            last: (n,) the same for the previous stage; both as in `State`.
            draw: (n,) a number from 0 to 1 for each sample, which `share` is compared with.
            waits: True if the condition of `when` is not met.
        """
        # A lead short of the boundary is negative, as is the share of the clean margin that it is
        # compared with: a sample below that is too far from being broken.
        spared = (draw >= self.share) | waits
        for share, lead in ((self.within, nearest), (self.last, last)):
            if share is not None:
                spared |= lead < -share * clean
        return spared


@dataclass(frozen=True, kw_only=True)
class Queries:
    """How a stage asks the model."""

    eot: int = 1
    """Number of answers to each input whose mean (and mean gradient) the stage uses, for random
    models (EOT)."""
    gradient: Source = "own"
    """The gradient that the attack follows."""

    def __post_init__(self) -> None:
        if self.eot < 1:
            raise ValueError(
                f"eot is {self.eot}: it is the number of answers that are averaged, 1 or more"
            )


@dataclass(frozen=True)
class Stage:
    """One attack of a run, under the name that the records give it."""

    name: str
    plugin: str
    attack: Attack
    turn: Turn = Turn()
    eot: int = 1
    gradient: str = "own"
    label: str = ""
    """Readable name, without the samples that the stage is restricted to."""

    kept_to: str = ""
    """Its restrictions in words: samples, condition and gradient; empty if there are none."""

    short: str = ""
    """Short name, such as "APGD-T, 9 targets, 30 steps"; stages with different turns may share
    it."""

    @property
    def title(self) -> str:
        """Readable name with the restrictions; unique within a run."""
        return ", ".join(filter(None, (self.label, self.kept_to)))

    @property
    def waits(self) -> bool:
        """True if the stage runs only under a condition or with another gradient."""
        return self.turn.when is not None or self.gradient != "own"

    @property
    def climbs(self) -> bool:
        """True if the attack ascends a loss along gradients."""
        return self.attack.access == Access.GRADIENTS and self.attack.family == "budgeted"

    @property
    def follows_surrogates(self) -> bool:
        """True if the stage follows the gradients of surrogates."""
        return self.gradient == "surrogate" or follows_surrogates(self.attack)

    def settings(self) -> dict[str, Any]:
        """All settings of the attack, defaults included, with the content of files that they refer
        to.
        """
        return plugins.settings_of(self.attack)


def build_stages(specs: tuple[str, ...]) -> tuple[Stage, ...]:
    """Build the stages of a run, in order."""
    if not specs:
        raise RequestError(
            f"no attack is named: give at least one {option('attack')}, such as apgd-ce"
        )
    stages = tuple(
        _build_stage(stage_spec)
        for spec in specs
        for stage_spec in CASCADES.get(ALIASES.get(spec, spec), (spec,))
    )
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(
                f"attack {name} is named twice: a stage runs once; change its "
                "settings or leave one out"
            )

    # Of stages that read alike the full names tell them apart.
    titles = [stage.title for stage in stages]
    return tuple(
        stage
        if titles.count(stage.title) == 1
        else replace(stage, label=f"{stage.label} ({stage.name})")
        for stage in stages
    )


def attacks_title(specs: tuple[str, ...], stages: tuple[Stage, ...]) -> str:
    """Readable name of the attacks `specs` of a run with these `stages`, such as "fast cascade" or
    "APGD-CE, 100 steps".
    """
    short = {stage.name: stage.short for stage in stages}
    return " + ".join(short.get(spec, f"{spec} cascade") for spec in specs)


def _build_stage(spec: str) -> Stage:
    name, path, options = plugins.parse(spec)
    if path:
        raise RequestError(
            f"attack {spec!r} has a path {path!r}: settings are written {name}?key=value"
        )

    # The options of the stage are taken out of those of its attack: what is left in `options`
    # must be settings of the attack.
    queries: Queries = plugins.build_class("attack", spec, Queries, _taken(options, Queries))
    turn: Turn = plugins.build_class("attack", spec, Turn, _taken(options, Turn))
    plugin = check_attack_name(name)
    _, preset = PRESETS.get(name, (name, {}))
    attack: Attack = plugins.build("attack", plugin, preset | options)

    additions = []
    if options.get("stop_at_eps") == "true":
        additions.append("stop at eps")
        # Else the label, which names the options, would say it too.
        del options["stop_at_eps"]
    if queries.gradient in GRADIENT_TITLES:
        additions.append(GRADIENT_TITLES[queries.gradient])
    label = _label(name, attack, options, queries.eot)
    return Stage(
        name=spec,
        plugin=plugin,
        attack=attack,
        turn=turn,
        eot=queries.eot,
        gradient=queries.gradient,
        label=label,
        kept_to=", ".join([*additions, *_restrictions(turn)]),
        short=", ".join([label, *additions]),
    )


def _taken(options: dict[str, str], kind: type[Any]) -> dict[str, str]:
    """The options that are fields of a class, which are taken out of the others."""
    return {field.name: options.pop(field.name) for field in fields(kind) if field.name in options}


def _label(name: str, attack: Attack, options: dict[str, str], eot: int) -> str:
    """The readable name of an attack: its title, numbers that matter, and settings that were given."""
    # Short names are acronyms; of an attack in a file, file.py:Name, the name is shown.
    is_short = name in PRESETS or (len(name) <= 4 and name.isalpha())
    plain = name.upper() if is_short else name.rpartition(":")[2]
    parts = [ATTACK_TITLES.get(name, plain)]
    settings = plugins.settings_of(attack)
    for field, minimum in COUNTED_SETTINGS.items():
        count = settings.get(field)
        if isinstance(count, int) and count >= minimum:
            noun = field if count != 1 else field.removesuffix("s")
            parts.append(f"{count} {noun}")

    # Settings that the user gave are said, as they may change what the figure means.
    for key, value in options.items():
        words = key.replace("_", " ")
        if key == "loss":
            parts.append(f"{value} loss")
        elif key not in COUNTED_SETTINGS:
            parts.append({"true": words, "false": f"no {words}"}.get(value, f"{words} {value}"))
    if eot > 1:
        parts.append(f"EOT over {eot} answers")
    return ", ".join(parts)


def _restrictions(turn: Turn) -> list[str]:
    """The rule of a stage in words, one for each part."""
    texts = {
        f"if ≤ {100 * (turn.within or 0):g} % of the margin is left": turn.within is not None,
        f"if the stage before left ≤ {100 * (turn.last or 0):g} %": turn.last is not None,
        f"on {100 * turn.share:g} % of the samples": turn.share < 1,
        "on every sample": turn.alone,
        CONDITION_TITLES.get(turn.when or "", ""): turn.when is not None,
    }
    return [text for text, applies in texts.items() if applies]
