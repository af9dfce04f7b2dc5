"""Pages in Debian's chromium: nothing is cut off, everything has a name and contrast enough, at two
widths, light and dark.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from _pages import LABELS, LETTERS

CHROMIUM = Path("/usr/bin/chromium")
VIEWS = ((390, "light"), (1280, "dark"))
"""Widths in pixels, and colour schemes: each of both, and all four where a page's colours are
not those of others."""
ALL_VIEWS = (*VIEWS, (390, "dark"), (1280, "light"))
CHECKS = (Path(__file__).parent / "_browser.js").read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    if not CHROMIUM.exists():
        pytest.skip("Debian's chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Any, page: Path, **settings: Any) -> Iterator[Any]:
    """A tab with a page; at the end nothing may have been complained about, the page's policy
    included.
    """
    tab = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | settings))
    complaints: list[str] = []
    tab.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(page.as_uri())
    yield tab
    tab.close()
    assert not complaints


def unfold(tab: Any) -> None:
    """Open what is folded."""
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")


def check(tab: Any, label: str) -> None:
    """Nothing is wrong with a page as it is shown."""
    problems: list[str] = tab.evaluate(CHECKS)
    problems += [fault for letter in LETTERS for fault in tab.evaluate(LABELS, letter)]
    assert not problems, f"{label}: {'; '.join(problems[:20])}"


def check_everywhere(browser: Any, page: Path, views: Sequence[tuple[int, str]] = VIEWS) -> None:
    """No problem on a phone and on a desk, as it opens and unfolded, and none on paper."""
    for width, scheme in views:
        with open_page(
            browser, page, viewport={"width": width, "height": 900}, color_scheme=scheme
        ) as tab:
            check(tab, f"{width} px, {scheme}")
            unfold(tab)
            check(tab, f"{width} px, {scheme}, unfolded")
    with open_page(
        browser, page, viewport={"width": 700, "height": 900}, color_scheme="dark"
    ) as tab:
        tab.emulate_media(media="print")
        check(tab, "on paper")
        assert tab.pdf(format="A4").startswith(b"%PDF")
