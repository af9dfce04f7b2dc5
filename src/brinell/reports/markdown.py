"""A report in Markdown, for a pull request, an issue or a model card."""

from collections.abc import Iterator

from brinell.core.outward import markdown as markup_free
from brinell.reports.numbers import detail_text, full_text, main_text
from brinell.reports.values import Facts, Prose, Report, Table


def markdown(report: Report) -> str:
    """Headline, sentences, notes, tables that are not folded, and steps."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"## {safe(report.title)}"
    yield ""
    yield safe(report.subject)
    yield ""
    for index, sentence in enumerate(report.sentences):
        yield f"**{safe(sentence)}**" if index == 0 else safe(sentence)
        yield ""
    for note in report.notes:
        yield f"> {safe(note.text)}"
        yield ""
    for block in report.blocks:
        if isinstance(block, Table) and block.page and not block.folded:
            yield f"### {safe(block.title)}"
            yield ""
            yield from table_lines(block)
            yield ""
        elif isinstance(block, Facts) and not block.folded:
            yield from (f"- {safe(name)}: {safe(full_text(value))}" for name, value in block.facts)
            yield ""
        elif isinstance(block, Prose) and not block.folded:
            yield f"### {safe(block.title)}"
            yield ""
            yield from (f"- {safe(sentence)}" for sentence in block.sentences)
            yield ""
    for step in report.steps:
        yield f"- {safe(step.text)} `{safe(step.command)}`"


def table_lines(table: Table) -> Iterator[str]:
    """A table in Markdown."""
    yield _row(table.columns)
    yield "|" + " --- |" * len(table.columns)
    yield from (_row([_text(value) for value in row]) for row in table.rows)


def _text(value: object) -> str:
    detail = detail_text(value)
    return f"{main_text(value)} ({detail})" if detail else main_text(value)


def safe(text: str) -> str:
    """A text without markup, without joints at which lines do not break."""
    return markup_free(text.replace("\u2060", ""))


def _row(cells: object) -> str:
    return "| " + " | ".join(safe(str(cell)).replace("|", "\\|") for cell in cells) + " |"  # type: ignore[attr-defined]
