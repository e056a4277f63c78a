"""Citations about Kafka in code, tests and documents have a target in docs/kafka.

Code, tests and documents cite what is known about Kafka. For example, "BEHAVIOUR 2.6" is section
2.6 of docs/kafka/BEHAVIOUR.md, "BEHAVIOUR 6.6 f" is row f of the table in its section 6.6, and
"BEHAVIOUR [S]" is what it says about the Scala coordinator as a whole ([J] is the Java one). An id
such as GC-010 names a scenario, which is a case of Kafka's own tests. docs/kafka/README.md
describes these forms. The tests here find all citations, and look for their targets.
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
# Matches a section: `2.6`, `6.6 f`, `[S]` or `[J]`.
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
"""Names of documents that a reader of the project does not have."""
EXAMPLES = {
    Path(__file__).relative_to(ROOT).as_posix(),
    "tests/architecture/test_conformance_page.py",
    "tests/architecture/test_zookeeper_rules_page.py",
    "docs/kafka/README.md",
}
"""Files that show the form of citations, and name targets that do not exist."""


@cache
def texts() -> dict[str, str]:
    """Return the text of every file that may cite, by file name.

    Line breaks are replaced by spaces, because a citation may extend over two lines.
    """
    text_by_file = {}
    for path in tracked_files(".py", ".md", ".toml", ".yaml", ".txt"):
        name = path.relative_to(ROOT).as_posix()
        if name not in EXAMPLES:
            text_by_file[name] = re.sub(r"\n[ #]*", " ", path.read_text(encoding="utf-8"))
    return text_by_file


def sections_of(name: str) -> set[str]:
    """Return the targets that citations of a file of docs/kafka may name.

    These are numbers of sections, and in some files letters of rows or words of headings.
    """
    text = (KAFKA / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    numbers = {match[1] for line in headings if (match := re.match(r"(\d+(?:\.\d+)*)", line))}
    words = {word for line in headings for word in re.findall(r"`([a-z-]+)`", line)}
    if name == "MEASURED_BOUNCE":
        return words
    if name == "MEASURED_FAILOVER":  # words of headings and columns, and the points of a list
        points = text.split("(points `1` to `7`)")[1].split("\n## ")[0]
        return words | set(re.findall(r"^(\d)\. ", points, re.MULTILINE))
    if name == "BEHAVIOUR":  # numbers, rows of the table in 6.6, and the two coordinators
        recipes = text.split("\n## 6.6 ")[1].split("\n# 7. ")[0]
        rows = re.findall(r"^\| ([a-j]\d?) \|", recipes, re.MULTILINE)
        return numbers | {f"6.6 {row}" for row in rows} | {"[S]", "[J]"}
    return numbers


def citations(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (place, section) for each section that a text cites of a file of docs/kafka.

    A place is the text around the file's name, for an error message. For example, "BEHAVIOUR 2.6
    and 5.3" gives the sections `2.6` and `5.3`. The section is "" for a link to the whole file, and
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
    known = sections_of(name) | {""}
    unknown = [
        f"{file}: ...{place}..."
        for file, text in texts().items()
        for place, cited in citations(name, text)
        if cited not in known
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
    """If `citations` missed a form, wrong citations of this form would not be noticed."""
    assert [citation for _, citation in citations(name, text)] == cited


def ids_in(text: str) -> Iterator[str]:
    """Yield the ids that a text names. `GM-05..07` and `GM-05 to GM-07` name three each."""
    for family, first, last in ID.findall(text):
        if not first.isdigit():
            yield f"{family}-{first}"
            continue
        for number in range(int(first), int(last or first) + 1):
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
    """Each id that is cited must stand in section 10 of BEHAVIOUR.md."""
    known = {scenario for text in scenarios_of_kafka().values() for scenario in ids_in(text)}
    recordings = json.loads((CONFORMANCE / "transcripts" / "index.json").read_text())
    cited = {**texts(), "index.json": json.dumps(recordings)}
    unknown = [
        f"{file}: {scenario}"
        for file, text in cited.items()
        for scenario in ids_in(text)
        if scenario not in known
    ]
    assert unknown == []


def test_rule_of_the_consumer_on_zookeeper_exists() -> None:
    """An id with the prefix ZK must stand in ZOOKEEPER_CONSUMER.md."""
    rule = re.compile(r"\bZK-\d+\b")
    known = set(rule.findall((KAFKA / "ZOOKEEPER_CONSUMER.md").read_text(encoding="utf-8")))
    unknown = [
        f"{file}: {cited}"
        for file, text in texts().items()
        for cited in rule.findall(text)
        if cited not in known
    ]
    assert unknown == []


def test_recording_that_is_named_exists() -> None:
    """A recording is a transcript of a real Kafka. An index lists the names of all recordings.

    A text cites one as "recording `vote-tie`", or several as "recordings `a` and `b`".
    """
    index = json.loads((CONFORMANCE / "transcripts" / "index.json").read_text())
    known = {scenario["id"] for scenario in index["scenarios"]}
    one_name = r"`[a-z0-9-]+`"
    citation = re.compile(rf"\b[Rr]ecordings? ({one_name}(?:(?:, | and |, and ){one_name})*)")
    unknown = [
        f"{file}: {name}"
        for file, text in texts().items()
        for names in citation.findall(text)
        for name in re.findall(one_name, names)
        if name.strip("`") not in known
    ]
    assert unknown == []


def test_graded_scenarios_are_those_of_the_specification() -> None:
    """The project has a list of the scenarios for which it shows whether a test covers them.

    These are the scenarios of sections 10.1 to 10.5.2. Section 10.5.1 has only repetitions: a
    scenario of the Java coordinator that equals one or more of the Scala coordinator.
    """
    sections = scenarios_of_kafka()
    without_repetitions = ("10.1", "10.2", "10.3", "10.4", "10.5.2")
    graded = {scenario for number in without_repetitions for scenario in ids_in(sections[number])}
    # Such as "JC-045 = GC-010 + GC-011".
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

    The test finds a number at the beginning of a docstring, as in "3.5: sessions", and a number
    before the id of a scenario.
    """
    # The second half finds "(3.5, GC-010", for example.
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
