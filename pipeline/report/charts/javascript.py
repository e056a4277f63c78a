"""Vega's JavaScript, which every report contains.

Vega is the library that draws the charts. To bundle its modules into one text takes seconds. So the
text is kept in a file of the user's cache folder, such as `vega-5.30-1.7.0-1f2e3d4c.js`. The name
of the file has all that the text depends on: the version of Vega (5.30), the version of the package
that bundles the modules (1.7.0), and a digest of the snippet below (1f2e3d4c). If the file cannot
be used, for example because it is damaged or belongs to another user, the text is bundled again.
"""

import hashlib
import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import vl_convert as vlc

_SNIPPET = "window.vegaEmbed=vegaEmbed;"
"""The code that is bundled with Vega's modules.

The bundle is a JavaScript module, so no other script sees the names that are defined in it. The
page's script needs just one of these names, `vegaEmbed`: the function that draws a chart. As a
property of `window`, this function is visible to all scripts of the page.
"""


@lru_cache(maxsize=1)
def vega_javascript() -> str:
    """Return a module that defines `window.vegaEmbed`. It is safe inside a script element."""
    path = _cache_file()
    text = _read(path)
    if text is None:
        # Some strings of the text contain `</script`. In the page, a browser would take these
        # characters for the end of the script element.
        text = vlc.javascript_bundle(_SNIPPET).replace("</script", "<\\/script")
        _write(path, text)
    return text


def _cache_file() -> Path | None:
    """Return the path of the cached text; None on a system without a home folder."""
    try:
        cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    snippet_digest = hashlib.sha256(_SNIPPET.encode()).hexdigest()[:8]
    vega_version = vlc.get_vega_version()
    bundler_version = version("vl-convert-python")
    return cache_folder / "coordlab" / f"vega-{vega_version}-{bundler_version}-{snippet_digest}.js"


def _read(path: Path | None) -> str | None:
    """Return the text in `path`; None if the file cannot be used.

    It can be used if it belongs to this user, and if line 1 has the digest of the text below.
    """
    if path is None:
        return None
    try:
        # The page runs this text as code, so a file that another user wrote is not trusted.
        if path.stat().st_uid != os.getuid():
            return None
        first_line, _, text = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if first_line == _heading(text) else None


def _write(path: Path | None, text: str) -> None:
    """Write a text into the cache, as a whole or not at all; do nothing if this is not possible."""
    if path is None:
        return
    # The file is written under a temporary name and then renamed, so no process reads half a file.
    # Two processes can write it at the same time, so the temporary name has the process's id.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_text(f"{_heading(text)}\n{text}", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        return


def _heading(text: str) -> str:
    """Return line 1 of the file for `text`: a comment of JavaScript with the digest of the text."""
    return f"// sha256 {hashlib.sha256(text.encode()).hexdigest()}"
