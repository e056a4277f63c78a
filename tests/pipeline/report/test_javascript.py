"""The script of Vega, which draws the charts of a page.

Every page contains this script. To make the script, Vega is bundled with the code that Vega needs.
Bundling takes seconds. So the script is bundled once, and kept in a cache folder of the user.
Before each use, it is checked whether the file is complete.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import vl_convert

from pipeline.report.charts.javascript import vega_javascript


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use an empty cache folder, and forget the bundle in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    vega_javascript.cache_clear()
    yield tmp_path / "coordlab"
    # Later tests must not get the bundle of this test.
    vega_javascript.cache_clear()


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the bundling of Vega by a function that returns a short text.

    Return a list to which each call of this function is added.
    """
    calls: list[str] = []

    def bundle(snippet: str) -> str:
        calls.append(snippet)
        return "let x = '</script>';"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    return calls


def test_javascript_is_bundled_once_for_all_processes(cache: Path, bundled: list[str]) -> None:
    """Bundling takes seconds; the second report of a day must not wait for it again."""
    first = vega_javascript()
    # Another process has nothing in memory, and finds the script only in the folder.
    vega_javascript.cache_clear()
    assert vega_javascript() == first
    assert len(bundled) == 1
    # A page has the script in an element, and this text would end the element.
    assert "</script>" not in first


def test_damaged_javascript_is_bundled_anew(cache: Path, bundled: list[str]) -> None:
    """An incomplete file would break every later report."""
    complete = vega_javascript()
    (cached_file,) = cache.iterdir()
    cached_file.write_text(cached_file.read_text()[:-5])
    vega_javascript.cache_clear()
    assert vega_javascript() == complete
    assert len(bundled) == 2


def test_javascript_without_a_usable_folder_is_bundled(cache: Path, bundled: list[str]) -> None:
    """A user whose home is read-only must get a report, too."""
    cache.write_text("a file where the folder should be")
    assert vega_javascript()
    assert len(bundled) == 1
