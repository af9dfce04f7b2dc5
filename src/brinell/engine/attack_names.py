"""Names of attacks and of cascades, and what they stand for; importable without torch."""

from typing import Any

from brinell import plugins
from brinell.core.errors import RequestError
from brinell.core.suggestions import suggestion

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "apgd-ce": ("apgd", {"loss": "ce"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "apgd-t": ("apgd", {"loss": "dlr", "targets": 9}),
    "bim": ("pgd", {"random_start": False}),
    "fab-t": ("fab", {"targets": 9}),
}
"""Names that the field uses for one attack with certain settings."""

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
        "boundary-walk?steps=8&restarts=3&stop_at_eps=true&share=0.125",
        "boundary-walk?steps=10&restarts=5&stop_at_eps=true&when=suspected",
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
        "ray-s?steps=10000&stop_at_eps=true&when=detached",
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
    "sparse": ("sparse-pgd?steps=100", "sparse-rs?steps=1000"),
    "patch": ("patch-apgd", "sparse-rs?steps=1000"),
    "rand": ("apgd-ce?eot=20", "apgd-dlr?eot=20"),
}
"""Named sequences of stages: AutoAttack's three versions, that of the per-class study,
Brinell's, one without gradients, and one for L0 and pixels, and one for patches."""
ALIASES = {"autoattack": "standard"}
CASCADE_DESCRIPTIONS = {
    "fast": "the default: AutoAttack's verdict in a fraction of its time, and its full "
    "budget where gradients mislead",
    "standard": "AutoAttack's standard version: APGD-CE, APGD-T, FAB-T and Square; compares "
    "with RobustBench",
    "slides": "APGD-CE, APGD-DLR, FAB and Square, as the per-class study ran them",
    "plus": "AutoAttack's plus version: five restarts, and targeted and untargeted FAB",
    "black-box": "Square alone, for models that give scores and no gradients",
    "sparse": "for few values or pixels: sparse-PGD, then Sparse-RS on what it leaves",
    "patch": "for one square of any content: Patch-APGD, then Sparse-RS on what it leaves",
    "rand": "AutoAttack's version for models that draw random numbers: APGD by the mean "
    "of 20 answers",
}


def check_attack_name(name: str) -> str:
    """The name of the plugin that an attack's name stands for."""
    plugin, _ = PRESETS.get(name, (name, {}))
    plugin_names = plugins.names("attack")
    if plugin not in plugin_names and not plugins.is_scratch(plugin):
        hint = suggestion(
            name, [*plugin_names, *PRESETS, *CASCADES, *ALIASES], "`brinell plugins` lists them"
        )
        raise RequestError(f"there is no attack {name!r}{hint}")
    return plugin
