"""Replaces one section of a page, such as docs/BENCHMARKS.md, in which each part has a section."""

import re


def replace_section(page: str, part: str, section: str) -> str:
    """Return `page` with the section of `part` replaced, or added at its end.

    `section` is the whole section, its heading `## {part}` included.
    """
    # The heading of the part, and all text up to the next heading of this level or the page's end.
    pattern = re.compile(rf"^## {re.escape(part)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(page):
        # A function returns the section, because `sub` would interpret backslashes in a string.
        return pattern.sub(lambda _: section + "\n", page).rstrip() + "\n"
    return page.rstrip() + "\n\n" + section
