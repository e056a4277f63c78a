"""Makes the page that shows which test covers which rule of the consumer on ZooKeeper.

Old versions of Kafka had this consumer: the members of a group agreed by means of ZooKeeper,
without a coordinator. Its rules are in docs/kafka/ZOOKEEPER_CONSUMER.md, each with an id such as
ZK-12.

A test covers a rule if its docstring or comments name the id and quote the text of the rule. A
story can do the same in the comments at its beginning. Stories are parts of the files in
`scenarios`, with the events that a scripted cluster must produce. Each story has a heading,
`== title ==`.

Some rules have a reason instead of a test, in tests/conformance/zookeeper_rules.toml: the project
deviates from the rule, or the rule needs no test.

The places are found by reading the files. No test is run.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

import msgspec

from coordlab.own_packages import package_root
from scripts.docs.markdown import table

TESTS = package_root() / "tests"
RULES = package_root() / "docs" / "kafka" / "ZOOKEEPER_CONSUMER.md"
REASONS = TESTS / "conformance" / "zookeeper_rules.toml"
QUOTED_WORDS = 5
"""A text quotes a rule if it has this number of words of the rule, one after the other."""
STATUSES = ("covered", "deviates", "no matter for a test", "missing")
"""The possible statuses of a rule. "no matter for a test": there is a reason why it needs no test.
"""
_ID = re.compile(r"\bZK-\d+\b")
# `* **ZK-12** Each member ...`, or the same in the row of a table. The groups are id and text.
_RULE = re.compile(r"^(?:\* |\| )\*\*(ZK-\d+)\*\* ?(.*)$", re.MULTILINE)
_SECTION = re.compile(r"^##+ (.*)$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9]+")
# The blank after a sentence or a colon, before a capital letter, a bracket or bold text.
_SENTENCE_END = re.compile(r"(?<=[.:]) (?=[A-Z(*])")


class Reasons(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rule id -> why the project deviates from the rule, or why the rule needs no test."""

    deviates: Mapping[str, str]
    no_test: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of the document, with the heading of the section in which it stands."""

    id: str
    section: str
    text: str

    def summary(self) -> str:
        """Return the first sentence of the rule; for a row of a table, the text of its cells."""
        if "|" in self.text:
            cells = [cell.strip() for cell in self.text.strip("| ").split("|")]
            return "; ".join(cells)
        return _SENTENCE_END.split(self.text, maxsplit=1)[0].rstrip(":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A test or a story.

    - `name`: the name of the test, or the title of the story.
    - `path`: its file, as a path in the checkout.
    - `text`: the docstring and comments of the test, or the first comments of the story.
    """

    name: str
    path: str
    text: str


def read_reasons() -> Reasons:
    """Read the reasons in zookeeper_rules.toml."""
    with REASONS.open("rb") as file:
        return msgspec.convert(tomllib.load(file), Reasons)


@cache
def read_rules() -> Mapping[str, Rule]:
    """Read the rules of the document, in its order, and return them by id."""
    text = RULES.read_text(encoding="utf-8")
    headings = [(match.start(), match[1]) for match in _SECTION.finditer(text)]
    rules = {}
    for match in _RULE.finditer(text):
        rule_id, rule_text = match.groups()
        headings_before = [title for start, title in headings if start < match.start()]
        section = headings_before[-1] if headings_before else ""
        rules[rule_id] = Rule(id=rule_id, section=section, text=rule_text)
    return rules


@cache
def places_by_rule() -> Mapping[str, tuple[Place, ...]]:
    """Return for each id the tests and stories that name it.

    There may be ids that no rule has. A test fails if there is such an id.
    """
    places: dict[str, list[Place]] = {}
    for place in (*_tests_with_rules(), *_stories()):
        # A place that names an id twice counts once.
        for rule_id in dict.fromkeys(_ID.findall(place.text)):
            places.setdefault(rule_id, []).append(place)
    return {rule_id: tuple(places_of_rule) for rule_id, places_of_rule in places.items()}


def quotes(text: str, rule: Rule) -> bool:
    """Return whether a text has QUOTED_WORDS words of a rule, one after the other."""
    return not _word_sequences(text).isdisjoint(_word_sequences(rule.text))


def statuses() -> dict[str, str]:
    """Return the status of each rule by its id."""
    reasons, places = read_reasons(), places_by_rule()
    status = {}
    for rule in read_rules().values():
        if rule.id in reasons.deviates:
            status[rule.id] = "deviates"
        elif rule.id in reasons.no_test:
            status[rule.id] = "no matter for a test"
        else:
            is_covered = any(quotes(place.text, rule) for place in places.get(rule.id, ()))
            status[rule.id] = "covered" if is_covered else "missing"
    return status


def zookeeper_rules_page() -> str:
    """Return the page: how many rules are covered, then each with its status and its tests."""
    status = statuses()
    all_statuses = list(status.values())
    counts = [str(all_statuses.count(name)) for name in STATUSES]
    parts = [
        "# Rules of the consumer on ZooKeeper\n\nEach rule of "
        "[ZOOKEEPER_CONSUMER.md](../kafka/ZOOKEEPER_CONSUMER.md), shortened to its first sentence. "
        "A rule is covered when a test names its id and quotes its text. The reasons of the other "
        "rules are [zookeeper_rules.toml](../../tests/conformance/zookeeper_rules.toml); "
        "what deviates stands in [FIDELITY](../FIDELITY.md) too.\n\n",
        table(("rules", *STATUSES), [(str(len(status)), *counts)]),
    ]
    for section in dict.fromkeys(rule.section for rule in read_rules().values()):
        rows = [
            (
                rule.id,
                rule.summary(),
                _status_cell(rule.id, status[rule.id]),
                _links_to_places(rule),
            )
            for rule in read_rules().values()
            if rule.section == section
        ]
        parts += [f"\n## {section or 'Before section 1'}\n\n"]
        parts += [table(("id", "rule", "status", "where"), rows)]
    return "".join(parts)


def _status_cell(rule_id: str, status: str) -> str:
    """Return the status of a rule, with its reason if there is one."""
    reasons = read_reasons()
    reason = reasons.deviates.get(rule_id) or reasons.no_test.get(rule_id)
    return f"{status}: {reason}" if reason else status


def _links_to_places(rule: Rule) -> str:
    """Return links to the tests and stories that quote a rule."""
    return ", ".join(
        f"[{place.name}](../../{place.path})"
        for place in places_by_rule().get(rule.id, ())
        if quotes(place.text, rule)
    )


def _word_sequences(text: str) -> set[tuple[str, ...]]:
    """Return all sequences of QUOTED_WORDS words in a text; of a shorter text, all its words.

    With two words instead of five, "a b c" would give ("a", "b") and ("b", "c").
    """
    words: Sequence[str] = _WORD.findall(text.lower())
    if not words:
        return set()
    size = min(QUOTED_WORDS, len(words))
    return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}


def _tests_with_rules() -> Iterator[Place]:
    """Yield the tests of all files in which a rule is named."""
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if _ID.search(source) is None:
            continue
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                lines_of_test = [line.strip() for line in lines[node.lineno - 1 : node.end_lineno]]
                comments = [
                    line.removeprefix("#") for line in lines_of_test if line.startswith("#")
                ]
                text = "\n".join((ast.get_docstring(node) or "", *comments))
                yield Place(name=node.name, path=_path_in_checkout(path), text=text)


def _stories() -> Iterator[Place]:
    """Yield all stories."""
    for path in sorted(TESTS.rglob("scenarios/*.txt")):
        _text_before_stories, *stories = re.split(
            r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        for story in stories:
            title, _, story_text = story.partition(" ==\n")
            comments = takewhile(lambda line: line.startswith("#"), story_text.splitlines())
            text = "\n".join(line.removeprefix("# ") for line in comments)
            yield Place(name=title, path=_path_in_checkout(path), text=text)


def _path_in_checkout(path: Path) -> str:
    """Return the path of a file in the checkout, such as `tests/coordlab/test_junit.py`."""
    return path.relative_to(package_root()).as_posix()
