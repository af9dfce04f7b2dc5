"""A report in Markdown, for a pull request, an issue or a model card."""

from collections.abc import Iterable, Iterator

from brinell.core.outward import markdown as markup_free
from brinell.reports.numbers import full_text
from brinell.reports.values import Facts, Prose, Report, Table


def markdown(report: Report) -> str:
    """Headline, sentences, notes, tables that are not folded, and steps."""
    headline, *further = map(safe, report.sentences)
    parts = [f"## {safe(report.title)}", safe(report.subject), f"**{headline}**", *further]
    parts += [f"> {safe(note.text)}" for note in report.notes]

    for block in report.blocks:
        match block:
            case Table(folded=False, page=True):
                parts += [f"### {safe(block.title)}", "\n".join(table_lines(block))]
            case Facts(folded=False):
                parts.append(
                    "\n".join(
                        f"- {safe(name)}: {safe(full_text(value))}" for name, value in block.facts
                    )
                )
            case Prose(folded=False):
                parts += [
                    f"### {safe(block.title)}",
                    "\n".join(f"- {safe(sentence)}" for sentence in block.sentences),
                ]

    steps = "\n".join(f"- {safe(step.text)} `{safe(step.command)}`" for step in report.steps)
    return "\n\n".join(filter(None, [*parts, steps])) + "\n"


def table_lines(table: Table) -> Iterator[str]:
    """A table in Markdown."""
    yield _row(table.columns)
    yield "|" + " --- |" * len(table.columns)
    yield from (_row(map(full_text, row)) for row in table.rows)


def safe(text: str) -> str:
    """A text without markup, without joints at which lines do not break."""
    return markup_free(text.replace("\u2060", ""))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(safe(cell).replace("|", "\\|") for cell in cells) + " |"
