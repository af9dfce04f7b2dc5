"""ECG records in PhysioNet's format, written by its own library."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

SYMBOLS = ["N", "+", "L", "A", "V", "/", "F"]


def write_record(
    folder: Path,
    name: str,
    *,
    fs: float = 360,
    symbols: Sequence[str] = SYMBOLS,
    leads: Sequence[str] = ("MLII",),
    units: str = "mV",
    annotated: bool = True,
    height: float = 1.0,
    down: str = "",
    spacing: float = 1.0,
    comments: Sequence[str] = (),
) -> None:
    """A triangle of 0.1 s at each second from 1 on, `height` high and growing by a tenth from beat
    to beat; a baseline of 0.5.

    Beats whose symbol is in `down` are upside down and do not grow, nor do the others then. Marks
    are `spacing` seconds from each other, the first at 1 s.
    """
    t = np.arange(int((len(symbols) + 2) * fs)) / fs
    x = np.full((len(t), len(leads)), 0.5)
    for number in range(len(symbols)):
        amplitude = (
            height + 0.1 * number if not down else -height if symbols[number] in down else height
        )
        x += amplitude * np.clip(1 - np.abs(t - 1 - number) / 0.05, 0, None)[:, None]
    wfdb = pytest.importorskip("wfdb")
    folder.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the library asks of pandas
        form = {"fmt": ["16"] * len(leads), "comments": list(comments), "write_dir": str(folder)}
        wfdb.wrsamp(name, fs, [units] * len(leads), list(leads), p_signal=x, **form)
        if annotated:
            samples = np.array(
                [round((1 + spacing * number) * fs) for number in range(len(symbols))]
            )
            wfdb.wrann(name, "atr", samples, symbol=list(symbols), fs=fs, write_dir=str(folder))
