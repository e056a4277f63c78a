"""Golden files: files beside the tests that contain the expected texts.

If a text changes on purpose, `pytest --rewrite` writes the files anew, and a person reviews the
diff.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Compares texts with the files in `folder`. With `rewrite`, it first writes the files."""

    folder: Path
    rewrite: bool

    def check(self, name: str, text: str) -> None:
        """Check that the file `name` has exactly this text."""
        path = self.folder / name
        if self.rewrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{name} is not there: pytest --rewrite writes it"
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), (
            f"{name} differs: pytest --rewrite writes it anew"
        )


def sections(pages: Iterable[Callable[[], str]]) -> str:
    """Return the results of some functions as the sections of one text.

    A section begins with a heading, which is the name of its function. The heading of
    `page_figure_that_a_run_lacks_is_a_dash` is `== figure that a run lacks is a dash ==`. Then
    come the docstring as comments with `#`, and the result.
    """
    parts = []
    for page in pages:
        name = page.__name__.removeprefix("page_").replace("_", " ")
        docstring = (page.__doc__ or "").strip().splitlines()
        comments = [f"# {line}".rstrip() for line in docstring]
        lines = [line.rstrip() for line in page().splitlines()]
        parts.append("\n".join((f"== {name} ==", *comments, "", *lines)).rstrip() + "\n")
    return "\n".join(parts)
