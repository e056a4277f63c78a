"""Generated pages say what the code says."""

import pytest

from scripts.docs.reference import FOLDER, pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_generated_page_is_up_to_date(name: str) -> None:
    """A page that lags behind misleads; `make docs` writes them anew."""
    assert (FOLDER / name).read_text(encoding="utf-8") == pages()[name]


def test_no_generated_page_is_left_over() -> None:
    """A page that nothing makes would never be updated."""
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(pages())
