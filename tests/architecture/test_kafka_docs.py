"""Citations about Kafka in code, tests and documents have a target in docs/kafka.

The files in docs/kafka say what is known about Kafka. Code, tests and documents cite these files in
the following forms, which docs/kafka/README.md describes:

- "BEHAVIOUR 2.6" is section 2.6 of docs/kafka/BEHAVIOUR.md.
- "BEHAVIOUR 6.6 f" is row f of the table in section 6.6.
- "BEHAVIOUR [S]" is what this file says about the Scala coordinator as a whole, and [J] is what it
  says about the Java coordinator.
- GC-010 is the id of a scenario, which is a case of Kafka's own tests.

The tests here find all citations, and look for their targets.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts.docs.conformance_page import CONFORMANCE, read_scenarios
from tests.architecture.test_layers import ROOT, tracked_files

KAFKA = ROOT / "docs" / "kafka"
FAMILIES = ("GC", "GM", "MM", "CO", "JC", "JX", "RT", "LD", "SV", "CL", "AS", "FO", "SB")
"""Prefixes of the ids of scenarios, which are in section 10 of BEHAVIOUR.md."""
# Matches an id such as `GM-05` or `SV-a`, and a range such as `GM-05..07` or `GM-05 to GM-07`.
ID = re.compile(rf"\b({'|'.join(FAMILIES)})-(\d+|[a-j]\d?\b)(?:(?:\.\.| to \1-)(\d+))?")
# Matches a section: `2.6`, `6.6 f`, `[S]` or `[J]`. A letter after a number is a row only before a
# punctuation mark or at the end. In "2.6 a member", the letter is a word.
SECTION = r"(?:\d+(?:\.\d+)*(?: [a-j]\d?(?=[):.,;]|$))?|\[[SJ]\])"
# File of docs/kafka -> what may follow its name in a citation.
CITATION = {
    "BEHAVIOUR": SECTION,
    "FAILOVER_FACTS": SECTION,
    "MEASURED_ZOOKEEPER": SECTION,
    "ZOOKEEPER_CONSUMER": SECTION,
    "MEASURED_BOUNCE": r"bounce(?:-set-up)?\b",
    "MEASURED_FAILOVER": r"(?:\d|kill|term|move|pause|split|member|[a-z]+(?:-[a-z]+)+)\b",
}
OUTSIDE = re.compile(r"\bshared/|\b(?:DESIGN|STYLE|SIMULATION|STRUCTURE)(?:\.md| section)? \d")
"""Citations of documents that are not part of the project, so that its readers do not have them."""
EXAMPLES = {
    Path(__file__).relative_to(ROOT).as_posix(),
    "tests/architecture/test_conformance_page.py",
    "tests/architecture/test_zookeeper_rules_page.py",
    "docs/kafka/README.md",
}
"""Files with made-up citations, which only show the form and whose targets do not exist."""


@cache
def texts() -> dict[str, str]:
    """Return the text of every file that may have citations, by file name.

    Line breaks are replaced by spaces, because a citation may extend over two lines.
    """
    text_by_file = {}
    for path in tracked_files(".py", ".md", ".toml", ".yaml", ".txt"):
        name = path.relative_to(ROOT).as_posix()
        if name not in EXAMPLES:
            # The `#` at the beginning of a line of a comment is no part of a citation.
            text_by_file[name] = re.sub(r"\n[ #]*", " ", path.read_text(encoding="utf-8"))
    return text_by_file


def sections_of(name: str) -> set[str]:
    """Return the targets that citations of a file of docs/kafka may name.

    In most files the targets are the numbers of the sections. In some files they are words of
    headings, or there are further targets, such as the rows of a table.
    """
    text = (KAFKA / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    # The numbers at the beginnings of headings, such as `2.6`, and the words in backticks.
    numbers = {match[1] for line in headings if (match := re.match(r"(\d+(?:\.\d+)*)", line))}
    words = {word for line in headings for word in re.findall(r"`([a-z-]+)`", line)}
    if name == "MEASURED_BOUNCE":
        return words
    if name == "MEASURED_FAILOVER":  # words of headings, and the points of a list
        points = text.split("(points `1` to `7`)")[1].split("\n## ")[0]
        return words | set(re.findall(r"^(\d)\. ", points, re.MULTILINE))
    if name == "BEHAVIOUR":  # sections, rows of the table in 6.6, and the two coordinators
        recipes = text.split("\n## 6.6 ")[1].split("\n# 7. ")[0]
        rows = re.findall(r"^\| ([a-j]\d?) \|", recipes, re.MULTILINE)
        return numbers | {f"6.6 {row}" for row in rows} | {"[S]", "[J]"}
    return numbers


def citations(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (place, section) for each section of the file `name` that a text cites.

    The place is the text around the file's name, for an error message. "BEHAVIOUR 2.6 and 5.3"
    gives the sections `2.6` and `5.3`. The section is "" for a link to the whole file, and
    "nothing" if no section follows the name.
    """
    one_section = CITATION[name]
    section = re.compile(one_section)
    name_with_sections = re.compile(
        rf"{name}\]? ({one_section}(?:(?:, | and |, and | to ){one_section})*)"
    )
    link_to_file = re.compile(rf"[`\[(\w/.]*\b{name}\.md\)?`?")
    for match in re.finditer(rf"\b{name}\b", text):
        place = text[max(0, match.start() - 40) : match.end() + 40]
        cited = name_with_sections.match(text, match.start())
        if cited is not None:
            for cited_section in section.findall(cited[1]):
                yield place, cited_section
            continue
        is_in_a_link = any(
            link.start() <= match.start() < link.end() for link in link_to_file.finditer(text)
        )
        yield place, "" if is_in_a_link else "nothing"


@pytest.mark.parametrize("name", sorted(CITATION))
def test_citation_names_a_section_that_exists(name: str) -> None:
    """A reader who follows a citation must find its section."""
    existing = sections_of(name) | {""}
    unknown = [
        f"{file}: ...{place}..."
        for file, text in texts().items()
        for place, cited in citations(name, text)
        if cited not in existing
    ]
    assert unknown == []


@pytest.mark.parametrize(
    ("name", "text", "cited"),
    [
        ("BEHAVIOUR", "BEHAVIOUR 2.6, 4.10 and 5.3.", ["2.6", "4.10", "5.3"]),
        ("BEHAVIOUR", "BEHAVIOUR 3.3 to 3.5; BEHAVIOUR [S].", ["3.3", "3.5", "[S]"]),
        ("BEHAVIOUR", "(BEHAVIOUR 6.6 f)", ["6.6 f"]),
        ("BEHAVIOUR", "as BEHAVIOUR says", ["nothing"]),
        ("BEHAVIOUR", "[the rules](kafka/BEHAVIOUR.md)", [""]),
        ("MEASURED_FAILOVER", "MEASURED_FAILOVER two-owners, so", ["two-owners"]),
        ("MEASURED_FAILOVER", "MEASURED_FAILOVER 6: none", ["6"]),
        ("MEASURED_FAILOVER", "MEASURED_FAILOVER, kill", ["nothing"]),
    ],
)
def test_citation_is_read_from_a_text(name: str, text: str, cited: list[str]) -> None:
    """`citations` understands every form. Otherwise it would not find wrong citations."""
    assert [citation for _, citation in citations(name, text)] == cited


def ids_in(text: str) -> Iterator[str]:
    """Yield the ids that a text names. `GM-05..07` and `GM-05 to GM-07` each name three ids."""
    for family, first, last in ID.findall(text):
        # An id such as `SV-a` has a letter, and is never the beginning of a range.
        if not first.isdigit():
            yield f"{family}-{first}"
            continue
        for number in range(int(first), int(last or first) + 1):
            # All numbers of a range have as many digits as the first number: 05, 06, 07.
            yield f"{family}-{number:0{len(first)}}"


@cache
def scenarios_of_kafka() -> dict[str, str]:
    """Return the text of each of the sections 10.1 to 10.9 of BEHAVIOUR.md, by its number."""
    text = (KAFKA / "BEHAVIOUR.md").read_text(encoding="utf-8")
    section_10 = text.split("\n# 10. ")[1]
    # The split gives the text before the first heading, and then a number and a text in turn.
    parts = re.split(r"^#+ (10\.\d(?:\.\d)?) ", section_10, flags=re.MULTILINE)
    numbers, section_texts = parts[1::2], parts[2::2]
    return dict(zip(numbers, section_texts, strict=True))


def test_id_of_a_scenario_exists() -> None:
    """Each cited id of a scenario must stand in section 10 of BEHAVIOUR.md."""
    existing = {scenario for text in scenarios_of_kafka().values() for scenario in ids_in(text)}
    recordings = json.loads((CONFORMANCE / "transcripts" / "index.json").read_text())
    cited = {**texts(), "index.json": json.dumps(recordings)}
    unknown = [
        f"{file}: {scenario}"
        for file, text in cited.items()
        for scenario in ids_in(text)
        if scenario not in existing
    ]
    assert unknown == []


def test_rule_of_the_consumer_on_zookeeper_exists() -> None:
    """Each cited id of a rule, such as ZK-01, must stand in ZOOKEEPER_CONSUMER.md."""
    rule = re.compile(r"\bZK-\d+\b")
    existing = set(rule.findall((KAFKA / "ZOOKEEPER_CONSUMER.md").read_text(encoding="utf-8")))
    unknown = [
        f"{file}: {cited}"
        for file, text in texts().items()
        for cited in rule.findall(text)
        if cited not in existing
    ]
    assert unknown == []


def test_recording_that_is_named_exists() -> None:
    """A recording is a transcript of a real Kafka. An index lists the names of all recordings.

    A text cites one recording as "recording `vote-tie`", or several as "recordings `a` and `b`".
    """
    index = json.loads((CONFORMANCE / "transcripts" / "index.json").read_text())
    existing = {scenario["id"] for scenario in index["scenarios"]}
    one_name = r"`[a-z0-9-]+`"
    citation = re.compile(rf"\b[Rr]ecordings? ({one_name}(?:(?:, | and |, and ){one_name})*)")
    unknown = [
        f"{file}: {name}"
        for file, text in texts().items()
        for names in citation.findall(text)
        for name in re.findall(one_name, names)
        if name.strip("`") not in existing
    ]
    assert unknown == []


def test_graded_scenarios_are_those_of_the_specification() -> None:
    """The project has a list of scenarios, and shows for each of them whether a test covers it.

    The list must have exactly the scenarios of sections 10.1 to 10.5.2 of the specification
    (BEHAVIOUR.md). Section 10.5.1 has only repetitions: each of its scenarios of the Java
    coordinator equals one or more scenarios of the Scala coordinator.
    """
    sections = scenarios_of_kafka()
    without_repetitions = ("10.1", "10.2", "10.3", "10.4", "10.5.2")
    graded = {scenario for number in without_repetitions for scenario in ids_in(sections[number])}
    # Matches "JC-045 = GC-010 + GC-011".
    repetition = re.compile(r"(JC-\d+) = (GC-[^·]+?)(?: ·|\s*$)")
    same_as = {
        scenario: tuple(originals.split(" + "))
        for scenario, originals in repetition.findall(sections["10.5.1"])
        if scenario not in graded
    }
    scenarios = read_scenarios()
    assert set(scenarios.meaning) == graded
    assert scenarios.same_as == same_as


def test_section_that_the_specification_refers_to_exists() -> None:
    """In BEHAVIOUR.md "§2.6" refers to section 2.6 of the same file."""
    text = (KAFKA / "BEHAVIOUR.md").read_text(encoding="utf-8")
    assert set(re.findall(r"§(\d+(?:\.\d+)*)", text)) <= sections_of("BEHAVIOUR")


def test_docstring_names_the_file_of_a_section() -> None:
    """A number alone does not say in which document the section is.

    The test finds two kinds of bare numbers: a number at the beginning of a docstring, as in
    "3.5: sessions", and a number before the id of a scenario.
    """
    # The second half matches "(3.5, GC-010", for example.
    number_alone = re.compile(r'"""\d{1,2}\.\d{1,2}[:,.] |\((?:\d\.\d{1,2}, )+[A-Z]{2}-\d')
    found = [
        f"{file}: {match[0]}"
        for file, text in texts().items()
        for match in number_alone.finditer(text)
    ]
    assert found == []


def test_nothing_outside_the_project_is_cited() -> None:
    """A reader of the project cannot open a document that is not part of it."""
    outside = [
        f"{file}: {match[0]}" for file, text in texts().items() for match in OUTSIDE.finditer(text)
    ]
    assert outside == []
