"""Reads the words and the facts of a page of the report, which is in HTML.

The words of a page are its visible text, as lines. A fact is a figure with its unit, a name from
Kafka or from the run, or a cell of a table. Tests compare the words and the facts of a page with
recorded ones. When a sentence is reworded, its words change and its facts do not.
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
# Each line of the pattern is one kind of fact.
_FACT = re.compile(
    # A name that ends with "-" and a number. The number must not be followed by a letter.
    r"[A-Za-z_][\w.]*(?:-[\w.]+)*-\d+\b"  # broker-2, consumer-orders-readers-0
    r"|\b[a-z]+(?:\.[a-z]+){2,}\b"  # session.timeout.ms
    r"|\b[A-Z]+(?:_[A-Z]+)+\b"  # UNKNOWN_MEMBER_ID
    r"|\b(?:[A-Z][a-z]+){2,}\b"  # FindCoordinator
    # 8.56 s or 1,024: a number with its unit, if it has one. The text before and after it must not
    # make it a part of a longer name, such as the 2 of broker-2 or of 2.txt.
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
"""Headings of the table of versions.

Each commit changes the versions in the second column of this table, so only the first column is
kept.
"""
MAX_ROWS = 6
"""The words and the facts of a page have at most this many rows of each table."""
_CHART = "[chart "
"""Begins a part of a section that stands for a chart: `[chart ID]`."""
_CHART_DATA = "-data"
"""End of the id of the script element with a chart's JSON; the chart's own id comes before it."""
_NOTE = "JavaScript"
"""Every page has a note with this word, which looks like a name of Kafka, but is no fact."""


@dataclass
class Section:
    """One section of a page.

    `parts` has the parts of the section from top to bottom. A paragraph is a string. A table is a
    list of rows, and its first row has the headings. A chart is the string `[chart ID]`.
    """

    name: str
    parts: list[str | list[list[str]]] = field(default_factory=list)


class _Reader(HTMLParser):
    """Collects the sections of a page, and the data of its charts by the element's id."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections = [Section("page")]
        self.data: dict[str, str] = {}
        self._text = ""
        self._cells: list[str] | None = None  # of the current row; None outside of a row
        self._is_in_script = False  # True in an element `script` or `style`
        self._script_id = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in {"script", "style"}:
            self._is_in_script = True
            self._script_id = attributes.get("id") or ""
            return
        if tag in _BLOCKS or tag in {"td", "th"}:
            self._flush()
        if tag == "section":
            self.sections.append(Section(attributes.get("id") or ""))
        elif tag == "figure":
            self.sections[-1].parts.append(f"{_CHART}{attributes.get('id')}]")
        elif tag == "table":
            self.sections[-1].parts.append([])
        elif tag == "tr":
            self._cells = []

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._is_in_script = False
        elif tag in {"td", "th"}:
            assert self._cells is not None
            self._cells.append(self._take_text())
        elif tag == "tr":
            table = self.sections[-1].parts[-1]
            assert isinstance(table, list)
            assert self._cells is not None
            # False for the row of headings itself: the table is still empty then.
            is_version = bool(table) and table[0] == _VERSION_HEADINGS
            table.append(self._cells[:1] if is_version else self._cells)
            self._cells = None
        elif tag in _BLOCKS:
            self._flush()

    def handle_data(self, data: str) -> None:
        if not self._is_in_script:
            self._text += data
        elif self._script_id.endswith(_CHART_DATA):
            chart_id = self._script_id.removesuffix(_CHART_DATA)
            # The parser may hand over the text of one element in several pieces.
            self.data[chart_id] = self.data.get(chart_id, "") + data

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
            # A table without rows has only begun, so the text is its caption, which goes above it.
            is_caption = bool(parts) and parts[-1] == []
            if is_caption:
                parts.insert(len(parts) - 1, text)
            else:
                parts.append(text)


def read_page(html: str) -> tuple[list[Section], dict[str, str]]:
    """Return a page's sections, and the JSON of each chart by the chart's id."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    for section in reader.sections:
        _leave_defaults_out(section)
    return reader.sections, reader.data


def _leave_defaults_out(section: Section) -> None:
    """Remove the table of settings at their defaults, which every new setting would change.

    The report hides the table behind a line such as "40 more settings: the defaults".
    """
    for place, part in enumerate(section.parts):
        if isinstance(part, str) and part.endswith("more settings: the defaults"):
            del section.parts[place : place + 2]  # the line and the table
            return


def words_of(html: str) -> str:
    """Return the visible text: a line for each paragraph, and for the first rows of each table."""
    lines: list[str] = []
    for section in read_page(html)[0]:
        if lines:
            lines.append("")
        lines.append(f"== {section.name}")
        for part in section.parts:
            if isinstance(part, str):
                lines.append(part)
                continue
            lines += [" | ".join(row) for row in part[: MAX_ROWS + 1]]
            more = len(part) - 1 - MAX_ROWS  # 1 for the row of headings
            if more > 0:
                lines.append(f"... {more} more rows")
    return "\n".join(lines) + "\n"


def facts_of_page(html: str) -> str:
    """Return the facts of each section of a page.

    First come the facts of the paragraphs (sorted), then those of the tables and charts.
    """
    sections, data = read_page(html)
    lines: list[str] = []
    for section in sections:
        lines.append(f"== {section.name}")
        word_facts = {fact for part in section.parts for fact in _facts_in(part)} - {_NOTE}
        lines += textwrap.wrap("; ".join(sorted(word_facts)), _WIDTH, break_on_hyphens=False)
        for part in section.parts:
            if isinstance(part, list):
                lines += _table_facts(part)
            elif part.startswith(_CHART):
                chart_id = part.removeprefix(_CHART).removesuffix("]")
                lines.append(f"{part} {_chart_facts(data[chart_id])}")
    return "\n".join(lines) + "\n"


def _facts_in(part: str | list[list[str]]) -> list[str]:
    """Return the facts in a paragraph, none for a table or a chart."""
    if isinstance(part, list) or part.startswith(_CHART):
        return []
    return _FACT.findall(part)


def _table_facts(rows: list[list[str]]) -> Iterator[str]:
    """Yield a line of headings, then a line for each row.

    Of a long table only the first rows are yielded, then the number of its rows and their digest.
    Columns are sorted by their headings, so that their order in the page is no fact.
    """
    ordered = [_by_heading(rows[0], row) for row in rows]
    headings, body = ordered[0], ordered[1:]
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

    Only numbers count, so that a reworded label does not change the digest. They are sorted, so
    that the order of rows and columns does not change it either.
    """
    data = json.loads(text)["data"]
    facts = []
    for name in sorted(data):
        rows = data[name]["rows"]
        numbers = sorted(_NUMBER.findall(json.dumps(rows)))  # as texts
        facts.append(f"{name} {len(rows)} {_digest(numbers)}")
    return ", ".join(facts)


def _digest(value: object) -> str:
    """Return a short hash that changes with any part of a value."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
