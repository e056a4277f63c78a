"""Read the words and the facts of a report's page, which is in HTML.

Tests compare the words and the facts with recorded ones. The words of a page are its visible text,
line by line. Its facts are figures with their units ("8.56 s"), names of Kafka and of the run
("broker-2"), and the cells of its tables. If somebody rewords a sentence of the report, the words
of the page change, but the facts must not change.
"""

import hashlib
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

# HTML elements that begin and end a paragraph.
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
# Each line of the pattern matches one kind of fact.
_FACT = re.compile(
    # A name that ends with "-" and a number.
    r"[A-Za-z_][\w.]*(?:-[\w.]+)*-\d+\b"  # broker-2, consumer-orders-readers-0
    r"|\b[a-z]+(?:\.[a-z]+){2,}\b"  # session.timeout.ms
    r"|\b[A-Z]+(?:_[A-Z]+)+\b"  # UNKNOWN_MEMBER_ID
    r"|\b(?:[A-Z][a-z]+){2,}\b"  # FindCoordinator
    # A number, with its unit if it has one: 8.56 s or 1,024. The 2 in broker-2 or in 2.txt is no
    # such number, because it is a part of a longer name.
    r"|(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?(?: (?:s|ms|us|%))?(?![\w.-]*\w)"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WIDTH = 98
"""Lines of facts are wrapped at this number of characters."""
_START_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d[:-]\d\d[:-][\d.:-]+(?:Z|\+00:00| UTC)")
"""The date and time at which a run started. It differs whenever the pages are recorded."""
_PATH = re.compile(r"(?<!\S)/\S*/(?=[\w.-]+)")
"""The folders of an absolute path, which differ between machines."""
_VERSION_HEADINGS = ["what", "value"]
"""The headings of the table that lists the versions of coordlab and of other programs.

The second column has the versions. Some of them change with each commit, so only the first column
is read.
"""
MAX_ROWS = 6
"""Only this number of rows of each table become words and facts."""
_CHART = "[chart "
"""The beginning of a text that stands for a chart in the parts of a section.

The whole text is `[chart lane-groups]`, for example.
"""
_CHART_DATA = "-data"
"""The ending of the ids of script elements that have the data of a chart.

The data of the chart `lane-groups` is in the script element `lane-groups-data`.
"""
_NO_FACT = "JavaScript"
"""This word is in a note of every page. It looks like a name of Kafka, but is no fact."""


@dataclass
class Section:
    """One section of a page, with its parts from top to bottom.

    A part is a paragraph, a table or a chart. A paragraph is a string. A table is a list of rows,
    and its first row has the headings. A chart is a string such as `[chart lane-groups]`.
    """

    name: str
    parts: list[str | list[list[str]]] = field(default_factory=list)


class _Reader(HTMLParser):
    """Collects the sections of a page, and the data of each chart by the chart's id."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections = [Section("page")]
        self.data: dict[str, str] = {}
        # The visible text since the last paragraph or cell.
        self._text = ""
        # The cells of the row that is being read, as far as they were read; None outside of a row.
        self._cells: list[str] | None = None
        # True within an element `script` or `style`, whose text is not visible.
        self._is_in_script = False
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
            # The first row has the headings. When this row ends, `table` is still empty.
            is_version_row = bool(table) and table[0] == _VERSION_HEADINGS
            table.append(self._cells[:1] if is_version_row else self._cells)
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
        """Return the text that was read since the last call, without start times and folders."""
        text = " ".join(self._text.split())
        text = _START_TIME.sub("STARTED", text)
        text = _PATH.sub("", text)
        self._text = ""
        return text

    def _flush(self) -> None:
        """Make the collected text a part of the section. Inside a row of a table, drop the text."""
        text = self._take_text()
        if text and self._cells is None:
            parts = self.sections[-1].parts
            # If the last part is a table without rows, this table has only begun. Then the text is
            # the caption of the table, and goes above it.
            is_caption = bool(parts) and parts[-1] == []
            if is_caption:
                parts.insert(len(parts) - 1, text)
            else:
                parts.append(text)


def read_page(html: str) -> tuple[list[Section], dict[str, str]]:
    """Return the sections of a page, and the data of its charts.

    The data of a chart is JSON. It is found by the id of the chart.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    for section in reader.sections:
        _leave_defaults_out(section)
    return reader.sections, reader.data


def _leave_defaults_out(section: Section) -> None:
    """Remove the table of the settings that have their defaults.

    This table stands below a line such as "40 more settings: the defaults". If it stayed, every new
    setting of the program would change the recorded pages.
    """
    for index, part in enumerate(section.parts):
        if isinstance(part, str) and part.endswith("more settings: the defaults"):
            # Remove the line and the table below it.
            del section.parts[index : index + 2]
            return


def words_of(html: str) -> str:
    """Return the visible text of a page.

    The text has a line for each paragraph, and a line for each of the first rows of a table.
    """
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
            rows_without_headings = len(part) - 1
            more = rows_without_headings - MAX_ROWS
            if more > 0:
                lines.append(f"... {more} more rows")
    return "\n".join(lines) + "\n"


def facts_of_page(html: str) -> str:
    """Return the facts of each section of a page.

    First come the facts of the section's paragraphs, sorted. The facts of its tables and charts
    follow.
    """
    sections, data = read_page(html)
    lines: list[str] = []
    for section in sections:
        lines.append(f"== {section.name}")
        facts = {fact for part in section.parts for fact in _paragraph_facts(part)} - {_NO_FACT}
        lines += textwrap.wrap("; ".join(sorted(facts)), _WIDTH, break_on_hyphens=False)
        for part in section.parts:
            if isinstance(part, list):
                lines += _table_facts(part)
            elif part.startswith(_CHART):
                chart_id = part.removeprefix(_CHART).removesuffix("]")
                lines.append(f"{part} {_chart_facts(data[chart_id])}")
    return "\n".join(lines) + "\n"


def _paragraph_facts(part: str | list[list[str]]) -> list[str]:
    """Return the facts of a paragraph. For a table or a chart, return nothing."""
    if isinstance(part, list) or part.startswith(_CHART):
        return []
    return _FACT.findall(part)


def _table_facts(rows: list[list[str]]) -> Iterator[str]:
    """Yield a line with the headings of a table, and a line for each of its first rows.

    If the table has more rows, a last line has the number of all rows and a digest of them. The
    columns are sorted by their headings, because the order of the columns is no fact.
    """
    ordered = [_by_heading(rows[0], row) for row in rows]
    headings, body = ordered[0], ordered[1:]
    yield f"table {' | '.join(headings)}"
    yield from (f"  {' | '.join(row)}" for row in body[:MAX_ROWS])
    if len(body) > MAX_ROWS:
        yield f"  {len(body)} rows, {_digest(body)}"


def _by_heading(headings: list[str], row: list[str]) -> list[str]:
    """Return a row whose cells are sorted by their headings; the first cell stays where it is.

    If a cell of the row spans several columns, the row is returned unchanged.
    """
    # A cell that spans several columns counts once, so the row has fewer cells than headings.
    if len(row) != len(headings):
        return row
    others = sorted(zip(headings[1:], row[1:], strict=True), key=lambda pair: pair[0])
    return [row[0], *(cell for _, cell in others)]


def _chart_facts(text: str) -> str:
    """Return for each data set of a chart how many rows it has, and a digest of its numbers.

    A reworded label does not change the digest, because only numbers count. The order of rows and
    columns does not change it either, because the numbers are sorted.
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
