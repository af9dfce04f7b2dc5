"""Sentences that interpret an unrestricted attack, each computed from its tables."""

from brinell.pages.format import count, interval_text, percent
from brinell.studies.unrestricted.analysis import UnrestrictedResult, VariantResult


def reading(result: UnrestrictedResult) -> list[tuple[str, str]]:
    """For each model and search with a clear attempt: its name, and sentences on its outcomes."""
    clear = [variant for variant in result.results if variant.total.clear.k]
    return [(variant_name(variant), _outcomes(variant, judges=bool(result.judges))) for variant in clear]


def variant_name(variant: VariantResult) -> str:
    """The model and the search."""
    return f"{variant.model}, {f'with noise up to {variant.noise:g}' if variant.noise else 'latent alone'}"


def _outcomes(variant: VariantResult, *, judges: bool) -> str:
    """What became of the clear attempts, and how the nearest training samples speak of the errors."""
    total = variant.total
    confirmed = "the auxiliary classifier and every judge see" if judges else "the auxiliary classifier sees"
    errors = [f"on {count(total.adversarial.k)} it errs after the search while {confirmed} the intended class"]
    if total.contested.k:
        errors.append(f"on {count(total.contested.k)} it errs while a judge sees another class")
    if total.generalisation.k:
        errors.append(f"on {count(total.generalisation.k)} it errs without a search")
    text = (
        f"{count(total.clear.k)} of {count(total.clear.n)} plain samples are clear. Of these the model classifies "
        f"{count(total.plain_accuracy.k)} correctly before the search and {count(total.searched_accuracy.k)} after it: "
        f"{'; '.join(errors)}."
    )
    nearest = next((witness for witness in variant.witnesses if witness.neighbour), None)
    if nearest is None or not nearest.found.n:
        return text
    share = nearest.found
    size = f"{percent(share.value)} ({interval_text(share.low, share.high)}, {count(share.k)} of {count(share.n)})"
    return (
        f"{text} The {nearest.name}, is of the intended class for {size} of the inputs on which the model errs after the search: "
        "whether the others still show the class is for a person to judge."
    )
