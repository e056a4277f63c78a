"""Golden files: expected texts beside the tests, which a person reviews as a diff.

`pytest --rewrite` writes the files anew.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Compares texts with files in `folder`; `rewrite` writes the files first."""

    folder: Path
    rewrite: bool

    def check(self, name: str, text: str) -> None:
        """Require that the file `name` has exactly this text."""
        path = self.folder / name
        if self.rewrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{name} is not there: pytest --rewrite writes it"
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), (
            f"{name} differs: pytest --rewrite writes it anew"
        )


def sections(pages: Iterable[Callable[[], str]]) -> str:
    """Call each of `pages`; return each result below the function's name and docstring."""
    parts = []
    for page in pages:
        name = page.__name__.removeprefix("page_").replace("_", " ")
        reason = [f"# {line}".rstrip() for line in (page.__doc__ or "").strip().splitlines()]
        lines = [line.rstrip() for line in page().splitlines()]
        parts.append("\n".join((f"== {name} ==", *reason, "", *lines)).rstrip() + "\n")
    return "\n".join(parts)
