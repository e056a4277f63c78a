"""Every rule of the consumer on ZooKeeper is quoted by a test, or has a reason.

Old versions of Kafka had this consumer. The members of its groups share out the partitions through
ZooKeeper's servers. docs/kafka/ZOOKEEPER_CONSUMER.md describes how the consumer behaves, in rules
with the ids ZK-01 and so on. A test of a rule quotes the rule in its docstring. A rule without such
a test needs a reason: either the project deviates from the rule, or the rule needs no test.
`places_by_rule` finds the tests that name each id, and `statuses` says of each rule whether a test
quotes it.
"""

import re

from scripts.docs.zookeeper_rules_page import (
    RULES,
    Rule,
    places_by_rule,
    quotes,
    read_reasons,
    read_rules,
    statuses,
)


def test_every_id_of_the_document_is_a_separate_rule() -> None:
    """The parser of the document finds every rule. A rule that it missed could stay untested.

    The number 85 is written here, so that no rule is added or removed by accident.
    """
    ids = set(re.findall(r"\bZK-\d+\b", RULES.read_text(encoding="utf-8")))
    assert ids == set(read_rules())
    assert len(ids) == 85


def test_no_test_names_a_rule_that_does_not_exist() -> None:
    """A mistyped id would count for no rule, and no other test would notice."""
    assert set(places_by_rule()) <= set(read_rules())


def test_every_rule_is_quoted_by_a_test_or_has_a_reason() -> None:
    """A person who adds a rule must test it, or give the reason why there is no test."""
    missing = [rule for rule, status in statuses().items() if status == "missing"]
    assert missing == []


def test_reason_is_given_once_and_for_a_rule_that_exists() -> None:
    """No rule has two reasons. Reasons are exceptions: at most a tenth of the rules has one."""
    reasons = read_reasons()
    given = (*reasons.deviates, *reasons.no_test)
    assert len(given) == len(set(given))
    assert len(given) <= len(read_rules()) // 10
    assert set(given) <= set(read_rules())
    # No reason is an empty text.
    assert all((*reasons.deviates.values(), *reasons.no_test.values()))


def test_quotation_is_five_consecutive_words_of_the_rule() -> None:
    """A test quotes a rule if its docstring has five consecutive words of the rule.

    Emphasis in the rule does not count: `**read**` is the word "read".
    """
    rule = Rule(id="ZK-1", section="", text="A **read** is answered by the server, at once.")

    assert quotes("The claim: a read is answered by it (ZK-1)", rule)
    assert not quotes("a read is answered (ZK-1)", rule)  # four words are too few
    # Only the four words "is answered by the" are those of the rule, which has "server".
    assert not quotes("it is answered by the servers (ZK-1)", rule)


def test_summary_is_the_first_sentence_or_the_cells_of_a_row() -> None:
    """The page of rules shows a short form of each rule, its summary."""
    sentence = Rule(id="ZK-1", section="", text="A tree. All writes: one order.")
    row = Rule(id="ZK-2", section="", text="| cause | what is seen | an instant |")

    assert sentence.summary() == "A tree."
    assert row.summary() == "cause; what is seen; an instant"
