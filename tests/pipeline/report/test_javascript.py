"""Vega's script: bundled once, kept in the user's cache folder, never trusted blindly."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import vl_convert

from pipeline.report.charts.javascript import vega_javascript


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give an empty cache folder of its own; what was remembered in memory is forgotten."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    vega_javascript.cache_clear()
    yield tmp_path / "coordlab"
    vega_javascript.cache_clear()


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Bundle a short text instead of Vega, and note each time that it is done."""
    calls: list[str] = []

    def bundle(snippet: str) -> str:
        calls.append(snippet)
        return "let x = '</script>';"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    return calls


def test_javascript_is_bundled_once_for_all_processes(cache: Path, bundled: list[str]) -> None:
    """Bundling takes seconds; the second report of a day must not wait for it."""
    first = vega_javascript()
    vega_javascript.cache_clear()  # as another process would begin
    assert vega_javascript() == first
    assert len(bundled) == 1
    assert "</script>" not in first


def test_javascript_that_was_damaged_is_bundled_anew(cache: Path, bundled: list[str]) -> None:
    """A torn file would break every report from then on."""
    whole = vega_javascript()
    (kept,) = cache.iterdir()
    kept.write_text(kept.read_text()[:-5])
    vega_javascript.cache_clear()
    assert vega_javascript() == whole
    assert len(bundled) == 2


def test_javascript_without_a_usable_folder_is_bundled(cache: Path, bundled: list[str]) -> None:
    """A read-only home is no reason to have no report."""
    cache.write_text("a file where the folder should be")
    assert vega_javascript()
    assert len(bundled) == 1
