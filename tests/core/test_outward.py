"""Text from outside has no effect on a terminal, in a spreadsheet or on a page."""

import json

import pytest

from brinell.core.outward import cell, markdown, printable


def test_plain_text_stays() -> None:
    for text in ("", "cat", "Größe 3,5 µm\n第二行", "APGD-T, 9 targets — 30 %"):
        assert printable(text) == text


def test_what_acts_is_shown_as_its_number(subtests: pytest.Subtests) -> None:
    for code in [
        0,
        7,
        8,
        9,
        13,
        0x1B,
        0x7F,
        0x9B,
        0x200E,
        0x202E,
        0x2066,
        0x2028,
        0xFEFF,
        0xD800,
        0xE0041,
    ]:
        with subtests.test(code=code):
            text = f"a{chr(code)}b"
            assert (
                printable(text).isascii()
                and printable(text).startswith("a\\u")
                and printable(text).isprintable()
            )
            assert json.loads(f'"{printable(text)}"') == text, "so that JSON stays what it was"


def test_an_escape_sequence_changes_no_line() -> None:
    assert printable("\x1b[2K\x1b]0;title\x07cat") == "\\u001b[2K\\u001b]0;title\\u0007cat"


def test_no_cell_is_a_formula(subtests: pytest.Subtests) -> None:
    for text in ["=1+1", "@SUM(A1)", "+cmd", "-cmd", "|cmd", "=HYPERLINK(1)"]:
        with subtests.test(text=text):
            assert cell(text) == "'" + text


def test_numbers_and_gaps_stay() -> None:
    assert [cell(value) for value in (None, 0.5, -3, "-1.5", "cat", True)] == [
        "",
        0.5,
        -3,
        "-1.5",
        "cat",
        True,
    ]


def test_markdown_opens_no_tag_or_picture() -> None:
    assert markdown("<img src=x>\n![a](http://b) c") == "&lt;img src=x> ![a] (http://b) c"
