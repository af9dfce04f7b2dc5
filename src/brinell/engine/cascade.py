"""Stages: attacks with their settings, and the orders in which they run."""

from dataclasses import dataclass, replace
from typing import Any, cast

from brinell import plugins
from brinell.core.contracts import Attack
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.engine.adaptive import SOURCES, WHEN
from brinell.engine.isolation import Isolated

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "apgd-ce": ("apgd", {"loss": "ce"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "apgd-t": ("apgd", {"loss": "dlr", "targets": 9}),
    "bim": ("pgd", {"random_start": False}),
    "fab-t": ("fab", {"targets": 9}),
}
"""Names that the field uses for one attack with certain settings."""

SPELLED = {
    "bandits": "Bandits",
    "hop-skip-jump": "HopSkipJump",
    "pgd-estimated": "PGD with estimates",
    "simba": "SimBA",
    "sparse-rs": "Sparse-RS",
    "square": "Square",
}
"""Attacks whose names are not written in capitals."""
FOLLOWED = {"repaired": "around what breaks the gradient (BPDA)", "surrogate": "along the surrogate's gradient"}
AWAITED = {
    "masked": "if gradients are masked",
    "blind": "if the gradient is missing or wrong",
    "random": "if answers are random",
    "suspected": "if an attack without gradients found more",
}
"""What a title says of the gradient, and of the condition that a stage waits for."""
COUNTED = {"targets": 1, "steps": 1, "restarts": 2}
"""Settings that a title counts, from which number on."""

CASCADES: dict[str, tuple[str, ...]] = {
    "fast": (
        "fgsm",
        "apgd-ce?steps=20",
        "apgd-dlr?steps=20",
        "apgd-t?loss=margin&targets=3&steps=20&within=0.35",
        "apgd-t?steps=30&within=0.25",
        "apgd-ce?within=0.05",
        "apgd-t?within=0.06",
        "apgd-t?targets=3&restarts=5&within=0.006",
        "fab-t?targets=1&steps=50&stop_at_eps=true&share=0.125",
        "square?steps=100",
        "square?steps=300&last=0.6",
        "square?steps=3000&patience=200&within=0.3&last=0.35",
        "apgd-t?loss=margin&targets=3&steps=30&share=0.25&when=suspected",
        "square?steps=500&patience=200&share=0.25&when=suspected",
        "apgd-t?loss=margin&targets=3&steps=30&gradient=surrogate",
        "apgd-t?loss=margin&targets=3&steps=30&gradient=repaired",
        "apgd-ce?gradient=repaired",
        "apgd-t?gradient=repaired",
        "pgd-estimated?when=blind",
        "apgd-ce?eot=20&when=random",
        "apgd-dlr?eot=20&when=random",
        "fab-t?stop_at_eps=true&when=masked",
        "square?rescale_schedule=false&when=masked",
        "apgd-ce?when=masked",
        "apgd-t?when=masked",
    ),
    "standard": ("apgd-ce", "apgd-t", "fab-t?stop_at_eps=true", "square?rescale_schedule=false"),
    "slides": ("apgd-ce", "apgd-dlr", "fab?stop_at_eps=true", "square?rescale_schedule=false"),
    "plus": (
        "apgd-ce?restarts=5",
        "apgd-dlr?restarts=5",
        "fab?restarts=5&stop_at_eps=true",
        "square",
        "apgd-t",
        "fab-t?stop_at_eps=true",
    ),
    "black-box": ("square?steps=5000",),
    "rand": ("apgd-ce?eot=20", "apgd-dlr?eot=20"),
}
"""Orders of stages under one name: AutoAttack's three versions, the per-class study's, ours, and one without gradients."""
ALSO = {"autoattack": "standard"}
"""Cascades by the other names that people know them by."""
ABOUT = {
    "fast": "the default: AutoAttack's verdict in a fraction of its time, and its full budget where gradients mislead",
    "standard": "AutoAttack's standard version: APGD-CE, APGD-T, FAB-T and Square; compares with RobustBench",
    "slides": "APGD-CE, APGD-DLR, FAB and Square, as the per-class study ran them",
    "plus": "AutoAttack's plus version: five restarts, and targeted and untargeted FAB",
    "black-box": "Square alone, for models that give scores and no gradients",
    "rand": "AutoAttack's version for models that draw random numbers: APGD by the mean of 20 answers",
}
"""What each cascade is for, in a clause."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Which of the samples that are still robust a stage attacks.

    But for `when`, a sample's turn depends on that sample alone, never on its company. Shares are of the clean margin, the lead
    of the true class on the clean input: 0 is the boundary.
    """

    within: float | None = None
    """Only samples that earlier stages brought this near to the boundary: at most this share of the clean margin was left."""
    last: float | None = None
    """Only samples that the stage just before attacked, and of whose clean margin it left at most this share."""
    share: float = 1.0
    """Only this share of the samples, drawn by their ids: a look at how an attack would do on all."""
    alone: bool = False
    """Every sample, as if no stage had run before (`alone=true`): to compare attacks and not to save time."""
    when: str | None = None
    """Only under one of the conditions of `engine.adaptive.When`, such as `when=masked`: gradients that mislead."""

    def spared(self, clean: Array, nearest: Array, last: Array, *, draw: Array, waits: bool) -> Array:
        """(n,) bool: the samples that are not attacked.

        Args:
            draw: (n,) a number from 0 to 1 for each sample.
            clean: (n,) lead of the true class on the clean input, in logits.
            nearest: (n,) largest lead of a wrong class that any earlier stage came to.
            last: (n,) the same of the stage just before; minus infinity where it did not attack.
            waits: whether the stage waits for a condition that does not hold.
        """
        far = (draw >= self.share) | waits
        for share, lead in ((self.within, nearest), (self.last, last)):
            if share is not None:
                far |= lead < -share * clean
        return far


@dataclass(frozen=True)
class Stage:
    """One attack of a run, under the name that the records give it."""

    name: str
    plugin: str
    attack: Attack
    turn: Turn = Turn()
    eot: int = 1
    """Answers to each input that are averaged, and their gradients with them, because the model draws random numbers (EOT)."""

    gradient: str = "own"
    """Whose gradient the attack follows, one of `engine.adaptive.Source`."""

    label: str = ""
    """Its name for people without the samples that it is kept to."""

    kept_to: str = ""
    """The samples that it is kept to, what it waits for and whose gradient it follows, in words; empty for none."""

    short: str = ""
    """What it does and no more, such as "APGD-T, 9 targets, 30 steps"; stages with other turns may share it."""

    @property
    def title(self) -> str:
        """Its name for people, the samples that it is kept to included; no two stages of a run share one."""
        return ", ".join(filter(None, (self.label, self.kept_to)))

    @property
    def waits(self) -> bool:
        """Whether it runs only where a check gives reason to."""
        return self.turn.when is not None or self.gradient != "own"

    def settings(self) -> dict[str, Any]:
        """All settings of the attack, defaults included, and what the files hold that they name."""
        return self.attack.written() if isinstance(self.attack, Isolated) else plugins.written(self.attack)


def build_stages(specs: tuple[str, ...], *, isolate: bool = False) -> tuple[Stage, ...]:
    """The stages of a run, in order; with `isolate` attacks that are not Brinell's own are in processes of their own.

    Raises:
        RequestError: unknown attack or setting, the same stage twice, none at all, or none to isolate.
    """
    if not specs:
        raise RequestError(f"no attack is named: give at least one {option('attack')}, such as apgd-ce")
    stages = tuple(_build(one, isolate) for spec in specs for one in CASCADES.get(ALSO.get(spec, spec), (spec,)))
    if isolate and not any(isinstance(stage.attack, Isolated) for stage in stages):
        raise RequestError(
            f"{option('isolate')} is for attacks that are files, as file.py:Class, and these come with Brinell: leave it out"
        )
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"attack {name} is named twice: a stage runs once; change its settings or leave one out")
    titles = [stage.title for stage in stages]
    return tuple(
        stage if titles.count(stage.title) == 1 else replace(stage, label=f"{stage.label} ({stage.name})") for stage in stages
    )


def called(specs: tuple[str, ...], stages: tuple[Stage, ...]) -> str:
    """What people call the attacks `specs` of a run with these `stages`, such as "fast cascade" or "APGD-CE, 100 steps"."""
    short = {stage.name: stage.short for stage in stages}
    return " + ".join(short.get(spec, f"{spec} cascade") for spec in specs)


def _build(spec: str, isolate: bool) -> Stage:
    name, path, options = plugins.parse(spec)
    if path:
        raise RequestError(f"attack {spec!r} has a path {path!r}: settings are written {name}?key=value")
    turn = Turn(
        within=_share(spec, "within", options),
        last=_share(spec, "last", options),
        share=1.0 if (share := _share(spec, "share", options)) is None else share,
        alone=_flag(spec, "alone", options),
        when=_one_of(spec, "when", options, WHEN),
    )
    gradient = _one_of(spec, "gradient", options, SOURCES) or "own"
    eot = _eot(spec, options.pop("eot", "1"))
    plugin, preset = PRESETS.get(name, (name, {}))
    known = plugins.names("attack")
    if plugin not in known and "." not in plugin and "/" not in plugin:
        near = plugins.nearest(name, [*known, *PRESETS, *CASCADES, *ALSO])
        raise RequestError(f"there is no attack {name!r}{near}; `brinell plugins` lists them")
    apart = isolate and not plugins.is_built_in("attack", plugin)
    attack = cast(Attack, Isolated(plugin, preset | options)) if apart else plugins.build("attack", plugin, preset | options)
    ends = options.get("stop_at_eps") == "true"
    label = _label(name, attack, {key: value for key, value in options.items() if not (ends and key == "stop_at_eps")}, eot)
    follows = [*["stop at eps"] * ends, *([FOLLOWED[gradient]] if gradient in FOLLOWED else [])]
    kept_to = ", ".join([*follows, *_kept_to(turn)])
    return Stage(spec, plugin, attack, turn, eot, gradient, label, kept_to, ", ".join([label, *follows]))


def _label(name: str, attack: Attack, options: dict[str, str], eot: int) -> str:
    """What people call the attack, how often it does what, and settings that were chosen."""
    short = name in PRESETS or (len(name) <= 4 and name.isalpha())
    parts = [SPELLED.get(name) or (name.upper() if short else name.rpartition(":")[2])]
    for field, least in COUNTED.items():
        if isinstance(count := getattr(attack, field, None), int) and count >= least:
            parts.append(f"{count} {field if count != 1 else field[:-1]}")
    for key, value in options.items():
        if key == "loss":
            parts.append(f"{value} loss")
        elif key not in COUNTED:
            words = key.replace("_", " ")
            parts.append({"true": words, "false": f"no {words}"}.get(value, f"{words} {value}"))
    return ", ".join([*parts, *[f"EOT over {eot} answers"] * (eot > 1)])


def _kept_to(turn: Turn) -> list[str]:
    """The samples that a stage is kept to, and what it waits for."""
    told = {
        f"if ≤ {100 * (turn.within or 0):g} % of the margin is left": turn.within is not None,
        f"if the stage before left ≤ {100 * (turn.last or 0):g} %": turn.last is not None,
        f"on {100 * turn.share:g} % of the samples": turn.share < 1,
        "on every sample": turn.alone,
        AWAITED.get(turn.when or "", ""): turn.when is not None,
    }
    return [text for text, said in told.items() if said]


def _share(spec: str, name: str, options: dict[str, str]) -> float | None:
    text = options.pop(name, None)
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        what = "the share of the samples" if name == "share" else "the share of the clean margin that may be left"
        raise RequestError(f"{name} is {text!r} in {spec!r}: it is {what}, 0 to 1")
    return share


def _flag(spec: str, name: str, options: dict[str, str]) -> bool:
    text = options.pop(name, "false")
    if text not in ("true", "false"):
        raise RequestError(f"{name} is {text!r} in {spec!r}: it is true or false")
    return text == "true"


def _one_of(spec: str, key: str, options: dict[str, str], known: frozenset[str]) -> str | None:
    text = options.pop(key, None)
    if text is not None and text not in known:
        raise RequestError(f"{key} is {text!r} in {spec!r}: it is one of {', '.join(sorted(known))}")
    return text


def _eot(spec: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise RequestError(f"eot is {text!r} in {spec!r}: it is the number of answers that are averaged, 1 or more")
    return int(text)
