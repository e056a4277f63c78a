"""The text of a page of the report (HTML), without its markup: its words as lines, and its facts.

Tests compare words and facts with recorded ones. A fact is a figure with its unit, a name from
Kafka or from the run, or a cell of a table. When a sentence is reworded, its words change and its
facts do not.
"""

import hashlib
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

# Elements that begin and end a paragraph.
_BLOCKS = frozenset(
    [
        "caption",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "figcaption",
        "figure",
        "h1",
        "h2",
        "h3",
        "header",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "title",
        "tr",
        "ul",
    ]
)
_FACT = re.compile(
    r"[A-Za-z_][\w.]*(?:-[\w.]+)*-\d+\b"  # broker-2, consumer-orders-readers-0
    r"|\b[a-z]+(?:\.[a-z]+){2,}\b"  # session.timeout.ms
    r"|\b[A-Z]+(?:_[A-Z]+)+\b"  # UNKNOWN_MEMBER_ID
    r"|\b(?:[A-Z][a-z]+){2,}\b"  # FindCoordinator
    # 8.56 s, 1,024; no number inside a longer name, such as the 2 of broker-2 or 2.txt
    r"|(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?(?: (?:s|ms|us|%))?(?![\w.-]*\w)"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WIDTH = 98
"""Length of the lines of facts, in characters."""
_STARTED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d[:-]\d\d[:-][\d.:-]+(?:Z|\+00:00| UTC)")
"""The date and time at which a run started: each recording of the pages has another one."""
_PATH = re.compile(r"(?<!\S)/\S*/(?=[\w.-]+)")
"""The folders of an absolute path, which differ between machines."""
_VERSION_HEADINGS = ["what", "value"]
"""Headings of the table of versions. Only the names are kept: each commit changes the values."""
MAX_ROWS = 6
"""Of each table at most this many rows are kept; facts also have a digest of all rows."""


@dataclass
class Section:
    """One section of a page, top to bottom: paragraphs, tables as lists of rows, charts by id."""

    name: str
    parts: list[str | list[list[str]]] = field(default_factory=list)


class _Reader(HTMLParser):
    """Collects the sections of a page, and the data of its charts by the element's id."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections = [Section("page")]
        self.data: dict[str, str] = {}
        self._text = ""
        self._cells: list[str] | None = None  # of the current row
        # Id of the present script or style element ("" if it has none); None: outside of one.
        self._script: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in {"script", "style"}:
            self._script = attributes.get("id") or ""
            return
        if tag in _BLOCKS or tag in {"td", "th"}:
            self._flush()
        if tag == "section":
            self.sections.append(Section(attributes.get("id") or ""))
        elif tag == "figure":
            self.sections[-1].parts.append(f"[chart {attributes.get('id')}]")
        elif tag == "table":
            self.sections[-1].parts.append([])
        elif tag == "tr":
            self._cells = []

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._script = None
        elif tag in {"td", "th"}:
            assert self._cells is not None
            self._cells.append(self._take_text())
        elif tag == "tr":
            table = self.sections[-1].parts[-1]
            assert isinstance(table, list)
            assert self._cells is not None
            is_version = table[:1] == [_VERSION_HEADINGS]
            table.append(self._cells[:1] if is_version else self._cells)
            self._cells = None
        elif tag in _BLOCKS:
            self._flush()

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self._text += data
        elif self._script:
            self.data[self._script] = self.data.get(self._script, "") + data

    def _take_text(self) -> str:
        """Return the text read since the last call, without start times and folders."""
        text = _PATH.sub("", _STARTED.sub("STARTED", " ".join(self._text.split())))
        self._text = ""
        return text

    def _flush(self) -> None:
        """Add the text read since the last call to the section, unless it belongs to a cell."""
        text = self._take_text()
        if text and self._cells is None:
            parts = self.sections[-1].parts
            place = len(parts)
            if parts and isinstance(parts[-1], list) and not parts[-1]:
                place -= 1  # a caption is inside the table, but its text stands above the table
            parts.insert(place, text)


def read_page(html: str) -> tuple[list[Section], dict[str, str]]:
    """Return a page's sections, and the JSON of each chart by the chart's id."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    for section in reader.sections:
        _leave_defaults_out(section)
    suffix = "-data"  # the script `x-data` has the JSON of chart `x`
    return reader.sections, {name.removesuffix(suffix): text for name, text in reader.data.items()}


def _leave_defaults_out(section: Section) -> None:
    """Remove the table of settings at their defaults, which every new setting would change."""
    for place, part in enumerate(section.parts):
        if isinstance(part, str) and part.endswith("more settings: the defaults"):
            # This part is the summary line; the next one is the table.
            del section.parts[place : place + 2]
            return


def words_of(html: str) -> str:
    """Return the visible text: a line for each paragraph, the first rows of each table."""
    lines: list[str] = []
    for section in read_page(html)[0]:
        lines += ["", f"== {section.name}"] if lines else [f"== {section.name}"]
        for part in section.parts:
            if isinstance(part, str):
                lines.append(part)
                continue
            lines += [" | ".join(row) for row in part[: MAX_ROWS + 1]]
            more = len(part) - 1 - MAX_ROWS  # 1 for the row of headings
            lines += [f"... {more} more rows"] if more > 0 else []
    return "\n".join(lines) + "\n"


def facts_of_page(html: str) -> str:
    """Return the facts of each section of a page.

    First come the facts of the paragraphs (sorted), then those of the tables and charts.
    """
    sections, data = read_page(html)
    lines: list[str] = []
    for section in sections:
        lines.append(f"== {section.name}")
        # Every page has a note about JavaScript, which looks like a name of Kafka's.
        word_facts = [
            fact for part in section.parts for fact in _facts_in(part) if fact != "JavaScript"
        ]
        lines += textwrap.wrap("; ".join(sorted(set(word_facts))), _WIDTH, break_on_hyphens=False)
        for part in section.parts:
            if isinstance(part, list):
                lines += _table_facts(part)
            elif part.startswith("[chart "):
                chart_id = part.removeprefix("[chart ").removesuffix("]")
                lines.append(f"{part} {_chart_facts(data[chart_id])}")
    return "\n".join(lines) + "\n"


def _facts_in(part: str | list[list[str]]) -> list[str]:
    """Return the facts in a paragraph, none for a table or a chart."""
    return _FACT.findall(part) if isinstance(part, str) and not part.startswith("[chart ") else []


def _table_facts(rows: list[list[str]]) -> Iterator[str]:
    """Yield a line of headings, then a line for each row.

    Of a long table only the first rows are yielded, then the number of its rows and their digest.
    """
    headings, *body = [_by_heading(rows[0], row) for row in rows]
    yield f"table {' | '.join(headings)}"
    yield from (f"  {' | '.join(row)}" for row in body[:MAX_ROWS])
    if len(body) > MAX_ROWS:
        yield f"  {len(body)} rows, {_digest(body)}"


def _by_heading(headings: list[str], row: list[str]) -> list[str]:
    """Return a row with its cells sorted by their headings; the first cell stays the first.

    A row that has not one cell for each heading (a cell spans columns) is returned unchanged.
    """
    if len(row) != len(headings):
        return row
    others = sorted(zip(headings[1:], row[1:], strict=True), key=lambda pair: pair[0])
    return [row[0], *(cell for _, cell in others)]


def _chart_facts(text: str) -> str:
    """Return, for each data set of a chart, its number of rows and a digest of its numbers.

    The numbers are sorted, so that the order of rows and columns does not change the digest.
    """
    data = json.loads(text)["data"]
    facts = []
    for name in sorted(data):
        rows = data[name]["rows"]
        numbers = sorted(_NUMBER.findall(json.dumps(rows)))
        facts.append(f"{name} {len(rows)} {_digest(numbers)}")
    return ", ".join(facts)


def _digest(value: object) -> str:
    """Return a short hash that changes with any part of a value."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
