"""A generated page of the docs: the rules of the consumer on ZooKeeper, and the tests of each.

Old versions of Kafka had this consumer: its members used ZooKeeper's servers, and no coordinator.
The rules stand in docs/kafka/ZOOKEEPER_CONSUMER.md, each with an id such as ZK-12.

- A test covers a rule if its docstring and comments name the rule's id and quote the rule's text.
- A story covers a rule if the comments at its head name the rule's id and quote the rule's text.
  Stories are the parts of a transcript, a text file with the events that a scripted cluster must
  produce. Each story begins with `== title ==`.

Some rules have a reason instead of a test: those from which this project deviates, and those that
need no test. tests/conformance/zookeeper_rules.toml has the reasons. This module only reads the
files of the tests; it runs no test.
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
"""A text quotes a rule if it contains so many words of the rule, one after the other."""
STATUSES = ("covered", "deviates", "no matter for a test", "missing")
"""What a rule can be. The status "no matter for a test" is that of a rule that needs no test, for a
reason in zookeeper_rules.toml."""
_ID = re.compile(r"\bZK-\d+\b")
# A rule: a list item or a table row that begins with a bold id. The groups are the id and the text.
_RULE = re.compile(r"^(?:\* |\| )\*\*(ZK-\d+)\*\* ?(.*)$", re.MULTILINE)
_SECTION = re.compile(r"^##+ (.*)$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9]+")
# The space after a sentence or a colon, if a capital letter, a bracket or bold text follows.
_SENTENCE_END = re.compile(r"(?<=[.:]) (?=[A-Z(*])")


class Reasons(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reasons why the project deviates from a rule, or why a rule needs no test, by rule id."""

    deviates: Mapping[str, str]
    no_test: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of the document: its id, the heading of its section, and its whole text."""

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

    - `name`: the test's name or the story's title.
    - `path`: its file, relative to the root of the checkout.
    - `text`: the docstring and comments of the test, or the comments at the head of the story.
    """

    name: str
    path: str
    text: str


def read_reasons() -> Reasons:
    """Return the reasons in zookeeper_rules.toml."""
    with REASONS.open("rb") as file:
        return msgspec.convert(tomllib.load(file), Reasons)


@cache
def read_rules() -> Mapping[str, Rule]:
    """Return the rules by id, in the order of the document."""
    text = RULES.read_text(encoding="utf-8")
    headings = [(match.start(), match[1]) for match in _SECTION.finditer(text)]
    rules = {}
    for match in _RULE.finditer(text):
        rule_id, rule_text = match.groups()
        # The last heading before the rule; "" before the first heading.
        section = next((title for start, title in reversed(headings) if start < match.start()), "")
        rules[rule_id] = Rule(id=rule_id, section=section, text=rule_text)
    return rules


@cache
def places_by_rule() -> Mapping[str, tuple[Place, ...]]:
    """Return the tests and stories that name each id.

    The ids can include some that no rule has.
    """
    places: dict[str, list[Place]] = {}
    for place in (*_in_tests(), *_in_stories()):
        # `dict.fromkeys` drops repetitions, because a place that names an id twice counts once.
        for rule_id in dict.fromkeys(_ID.findall(place.text)):
            places.setdefault(rule_id, []).append(place)
    return {rule_id: tuple(of_rule) for rule_id, of_rule in places.items()}


def quotes(text: str, rule: Rule) -> bool:
    """Return whether a text quotes a rule, that is, has QUOTED_WORDS consecutive words of it."""
    return not _runs_of_words(text).isdisjoint(_runs_of_words(rule.text))


def statuses() -> dict[str, str]:
    """Return the status of each rule by its id.

    A rule is "missing" if it has no reason, and no test or story quotes it.
    """
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
    """Return the page: the counts, then every rule with its status and the tests that quote it."""
    status = statuses()
    counts = [str(list(status.values()).count(counted)) for counted in STATUSES]
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
            (rule.id, rule.summary(), _status_cell(rule.id, status[rule.id]), _links(rule))
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


def _links(rule: Rule) -> str:
    """Return links to the tests and stories that quote a rule."""
    return ", ".join(
        f"[{place.name}](../../{place.path})"
        for place in places_by_rule().get(rule.id, ())
        if quotes(place.text, rule)
    )


def _runs_of_words(text: str) -> set[tuple[str, ...]]:
    """Return every sequence of QUOTED_WORDS consecutive words of a text.

    A shorter text has one sequence: all its words.
    """
    words: Sequence[str] = _WORD.findall(text.lower())
    if not words:
        return set()
    size = min(QUOTED_WORDS, len(words))
    return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}


def _in_tests() -> Iterator[Place]:
    """Yield all tests of the files that contain a rule's id."""
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if _ID.search(source) is None:
            continue
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                body = lines[node.lineno - 1 : node.end_lineno]
                comments = (
                    line.strip().removeprefix("#") for line in body if line.strip().startswith("#")
                )
                text = "\n".join((ast.get_docstring(node) or "", *comments))
                yield Place(name=node.name, path=_from_root(path), text=text)


def _in_stories() -> Iterator[Place]:
    """Yield the stories of the transcripts."""
    for path in sorted(TESTS.rglob("scenarios/*.txt")):
        # `_` is the text before the first story.
        _, *stories = re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for story in stories:
            title, _, story_text = story.partition(" ==\n")
            comments = takewhile(lambda line: line.startswith("#"), story_text.splitlines())
            text = "\n".join(line.removeprefix("# ") for line in comments)
            yield Place(name=title, path=_from_root(path), text=text)


def _from_root(path: Path) -> str:
    """Return a path relative to the root of the checkout, with `/` on every system."""
    return path.relative_to(package_root()).as_posix()
