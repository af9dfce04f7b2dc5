"""Escapes text for a terminal, a table or a page, so foreign text cannot act as a control sequence
or markup.
"""

import unicodedata

ACTING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that move a cursor, change colours, reverse the order of writing or
are not to be seen."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "|")
"""With these a cell begins that a spreadsheet calculates."""


def printable(text: str) -> str:
    """`text` with each character that acts on a terminal escaped as in JSON; line breaks stay."""
    if text.isascii() and text.replace("\n", " ").isprintable():
        return text
    return "".join(
        _escape(character)
        if character != "\n" and unicodedata.category(character) in ACTING
        else character
        for character in text
    )


def _escape(character: str) -> str:
    r"""A character as JSON escapes it: \uXXXX for each of its 16-bit units."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def cell(value: object) -> object:
    """A cell of a table: None as an empty one.

    A text that a spreadsheet would calculate stands behind an apostrophe.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = printable(value).replace("\n", " ")
    return f"'{text}" if text.startswith(FORMULA) and not _number(text) else text


def _number(text: str) -> bool:
    """True if a text is a number, which a spreadsheet may read as one."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def markdown(text: str) -> str:
    """`text` in one line of Markdown, in which it opens no tag, link or picture."""
    return printable(" ".join(text.split())).replace("<", "&lt;").replace("](", "] (")
