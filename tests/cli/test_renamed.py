"""Old words are refused in one line that names the new one, wherever they are written."""

import re

import pytest

from brinell.core.renamed import RENAMED, renamed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("benchmark --filters fog", "there is no option --filters, which is now called --distortions"),
        ("benchmark {file}", "there is no setting 'filters', which is now called 'distortions'"),
        ("audit --attack rlab?filters=fog", "attack rlab has no option 'filters', which is now called 'distortions'"),
        ("audit --eps advised", "eps 'advised' is now called 'recommended': write recommended$"),
        ("audit --eps advised:some/folder", "write recommended:some/folder$"),
        ("audit --eps advised?by=class", r"write recommended\?by=class$"),
        ("audit --data bench:set?form=stored", "option form of dataset bench is 'stored', which is now called 'quantised'"),
        ("plugins target", "there is no kind 'target', which is now called 'model'"),
        ("plugins filter", "there is no kind 'filter', which is now called 'distortion'"),
    ],
)
def test_an_old_word_names_the_new_one(arguments, said, tmp_path, refused):
    file = tmp_path / "old.toml"
    file.write_text('filters = "fog"\n', encoding="utf-8")
    line = refused(*arguments.format(file=file).split())
    assert re.search(said, line), line


def test_a_word_is_renamed_only_where_the_new_one_is_known():
    assert renamed("filters", ["distortions"]) == renamed("filters") == "distortions"
    assert renamed("filters", ["steps"]) == renamed("steps") == ""
    assert not RENAMED.keys() & set(RENAMED.values())
