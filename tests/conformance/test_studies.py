"""Every registered study keeps its record: on paper all of them, and in small runs those that leave a folder."""

import pytest

from _study_examples import EXAMPLES, Needs
from brinell.studies import register
from brinell.testing import studies as rules

OF_PEOPLE = {"review"}
"""Studies whose rows are answers of people: their own tests play these."""
OF_CLASSES = ["audit", "certify", "corrupt", "epsilon", "explain", "smooth", "study", "transfer"]
"""Studies of classifiers that need nothing but a model and data."""
OF_MORE = ["benchmark", "claim", "dense", "dense-transfer", "detect", "harden", "unrestricted"]
"""Studies that need more, of other answers, or without a page."""


def test_every_study_with_rows_has_an_example():
    studies = {verb for verb, study in register.studies().items() if study.layout is not None}
    assert set(EXAMPLES) | OF_PEOPLE == studies and sorted([*OF_CLASSES, *OF_MORE]) == sorted(EXAMPLES)


def test_every_record():
    for study in register.studies().values():
        rules.check_record(study)
        rules.check_settings(study)


@pytest.fixture(scope="session")
def finished(request, tmp_path_factory):
    """The finished example of the study that a test names; what it needs is made before."""
    verb, folder = request.param, tmp_path_factory.mktemp("study")
    return rules.finish(register.load(verb), EXAMPLES[verb] | Needs(folder)(verb), folder)


class Rules:
    """The rules, one by one."""

    def test_records_and_another_request(self, finished):
        rules.check_records(finished)
        rules.check_other_request(finished)

    def test_resume_and_command(self, finished):
        rules.check_command(finished)

    @pytest.mark.slow
    def test_shards_and_page(self, finished):
        rules.check_shards(finished)
        rules.check_page(finished)


@pytest.mark.parametrize("finished", OF_CLASSES, indirect=True)
class TestStudiesOfClasses(Rules):
    """Studies that need nothing but a model and data."""


@pytest.mark.parametrize("finished", OF_MORE, indirect=True)
class TestOtherStudies(Rules):
    """The others."""
