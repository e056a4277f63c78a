"""Vega's own JavaScript, which every report carries: bundled once, then taken from a file.

Bundling takes seconds and gives the same text every time, so the text is kept in the user's cache
folder under the versions that made it. The file is written in one step; where the folder cannot be
used, or holds what is not ours, the text is bundled anew and nothing is said.
"""

import hashlib
import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import vl_convert as vlc

_SNIPPET = "window.vegaEmbed=vegaEmbed;"
"""All that the page needs of it. It is a module: its names are its own."""


@lru_cache(maxsize=1)
def vega_javascript() -> str:
    """Return a module that defines `window.vegaEmbed`, ready to stand inside a script element."""
    path = _cache_file()
    found = _read(path)
    if found is None:
        found = vlc.javascript_bundle(_SNIPPET).replace("</script", "<\\/script")
        _write(path, found)
    return found


def _cache_file() -> Path | None:
    """Return where the text is kept, None on a system without a home."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    snippet = hashlib.sha256(_SNIPPET.encode()).hexdigest()[:8]
    return (
        root
        / "coordlab"
        / f"vega-{vlc.get_vega_version()}-{version('vl-convert-python')}-{snippet}.js"
    )


def _read(path: Path | None) -> str | None:
    """Return the text kept in `path` if it is this user's, and whole: its digest heads it."""
    if path is None:
        return None
    try:
        if path.stat().st_uid != os.getuid():
            return None
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if digest == _heading(text) else None


def _write(path: Path | None, text: str) -> None:
    if path is None:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_text(f"{_heading(text)}\n{text}", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        return


def _heading(text: str) -> str:
    return f"// sha256 {hashlib.sha256(text.encode()).hexdigest()}"
