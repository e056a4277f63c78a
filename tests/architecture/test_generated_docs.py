"""The pages of docs/generated agree with the code from which they are made."""

import pytest

from scripts.docs.reference import FOLDER, page, page_names


@pytest.mark.parametrize("name", page_names())
def test_generated_page_is_up_to_date(name: str) -> None:
    """A page that differs from the code is wrong; `make docs` writes all pages again."""
    assert (FOLDER / name).read_text(encoding="utf-8") == page(name)


def test_no_generated_page_is_left_over() -> None:
    """A page that no program makes would never be updated."""
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(page_names())
