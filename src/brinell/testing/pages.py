"""The rules of pages, measured in a browser: the result first, a length that a person reads, and nothing that sticks out."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
ANSWER_WITHIN = {1280: 900, 390: 1400}
"""By width of the window, of a desk and of a telephone, the pixels from the top within which the whole result stands."""
LONGEST = {1280: 5000}
"""By width of the window the largest height of a page before anything is unfolded."""
MEASURES = """() => {
  const wide = document.documentElement.clientWidth;
  const shown = node => node.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true });
  const name = node => `<${node.tagName.toLowerCase()}> "${(node.textContent || "").trim().replace(/\\s+/g, " ").slice(0, 40)}"`;
  const inside = (inner, outer) => inner.left >= outer.left - 1.5 && inner.right <= outer.right + 1.5;
  const wider = [...document.querySelectorAll("main *")].filter(node =>
    shown(node) && !node.parentElement.closest(".scroll, svg") && node.getBoundingClientRect().right > wide + 1);
  const outside = [...document.querySelectorAll("svg.figure text")].filter(text =>
    shown(text) && !inside(text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect()));
  const runsOff = [...document.querySelectorAll(".scroll")].filter(region =>
    shown(region) && region.scrollWidth > region.clientWidth + 1 && !region.querySelector(".many"));
  return {
    width: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    answers: [...document.querySelectorAll("[data-answer]")].map(node => [
      shown(node) ? node.innerText.trim().length : 0, Math.ceil(node.getBoundingClientRect().bottom + scrollY)]),
    wider: wider.slice(0, 3).map(name),
    runsOff: runsOff.slice(0, 3).map(node => `${node.getAttribute("aria-label")} (${node.scrollWidth} in ${node.clientWidth})`),
    outside: outside.slice(0, 3).map(name),
  };
}"""
"""Measures an open page."""


def can_measure() -> bool:
    """True if there is a browser to measure pages in."""
    return CHROMIUM.exists() and find_spec("playwright") is not None


def page_faults(page: Path) -> list[str]:
    """What is wrong with a page on a desk and on a telephone, as it opens; nothing without a browser.

    The page opens without a complaint. One element, marked `data-answer`, holds the result and stands whole within the first
    pixels (`ANSWER_WITHIN`). The page is not longer than `LONGEST` before anything is unfolded. No element is wider than the
    window, a table runs off only if its columns are very many (`class="many"`), and no label leaves its figure.
    """
    if not can_measure():
        return []
    from playwright.sync_api import sync_playwright

    faults: list[str] = []
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-background-networking"])
        for width in ANSWER_WITHIN:
            tab = browser.new_page(viewport={"width": width, "height": 900})
            tab.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
            tab.on("pageerror", lambda error: faults.append(str(error)))
            tab.goto(page.as_uri())
            faults.extend(f"at {width} pixels {fault}" for fault in _faults(width, tab.evaluate(MEASURES)))
        browser.close()
    return faults


def _faults(width: int, measures: dict[str, Any]) -> list[str]:
    """What is wrong with a page of these measures."""
    answers, most = measures["answers"], ANSWER_WITHIN[width]
    faults = []
    if len(answers) != 1 or not answers[0][0]:
        faults.append(f"{len(answers)} elements hold the result, with text: one must (data-answer)")
    faults += [f"the result ends at {bottom} pixels, beyond {most}" for _, bottom in answers if bottom > most]
    if measures["height"] > LONGEST.get(width, measures["height"]):
        faults.append(f"it is {measures['height']} pixels long, above {LONGEST[width]}: fold a part")
    if measures["width"] > width:
        faults.append(f"it is {measures['width']} pixels wide")
    faults += [f"{text} is wider than the window" for text in measures["wider"]]
    faults += [f"the table {table} runs off" for table in measures["runsOff"]]
    return faults + [f"{text} leaves its figure" for text in measures["outside"]]
