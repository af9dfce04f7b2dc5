"""Studies that need more than a classifier and data, have other answers, or no page keep their
records in small runs."""

import pytest

from _pages import page_faults
from _study_examples import EXAMPLES, OF_CLASSES, finished
from brinell.testing import studies as rules

__all__ = ["finished"]
each = pytest.mark.parametrize("finished", sorted(set(EXAMPLES) - set(OF_CLASSES)), indirect=True)


@each
def test_records_and_another_request(finished):
    rules.check_records(finished)
    rules.check_other_request(finished)


@each
def test_resume_and_command(finished):
    rules.check_command(finished)


@pytest.mark.slow
@each
def test_page(finished):
    assert page_faults(finished.folder / "report.html") == []
