"""A scenario of Kafka's coordinators has one home: the one test file that quotes its sentence.

A scenario is a case of Kafka's own tests, with an id such as GC-004. The id alone tells a reader
nothing, so a test quotes the scenario's sentence. If two files tested one scenario, a change could
be made in one of them and forgotten in the other.
"""

import re

import pytest

from scripts.docs.conformance_page import ScenarioList, places_by_scenario, read_scenarios

WORDS_AT_LEAST = 3
"""The least number of words of a quotation, unless the whole sentence is shorter."""


def sentence(scenario: str, scenarios: ScenarioList) -> str:
    """Return the sentence that the list has for a scenario."""
    repeated = ", ".join(scenarios.same_as.get(scenario, ()))
    return scenarios.meaning.get(scenario) or f"as {repeated}"


def quotes(text: str, scenario: str, meaning: str) -> bool:
    """Return True if a line of `text` quotes the sentence: all words, or some in their order."""
    match = re.search(rf"^{scenario}: (.+)$", text, flags=re.MULTILINE)
    if match is None:
        return False
    # `w in rest` consumes the iterator `rest` up to the word, so the words must be in its order.
    words, rest = match[1].removesuffix(".").split(), iter(meaning.split())
    return len(words) >= min(WORDS_AT_LEAST, len(meaning.split())) and all(w in rest for w in words)


def test_scenario_has_one_home() -> None:
    """Only recordings of a real Kafka may repeat a scenario, because they are no tests of ours."""
    homes = {
        scenario: sorted({place.path for place in places if place.text})
        for scenario, places in places_by_scenario().items()
    }
    assert {scenario: paths for scenario, paths in homes.items() if len(paths) > 1} == {}


def test_citation_quotes_the_sentence_of_its_scenario() -> None:
    """The quoted sentence tells a reader of the test what the id means."""
    scenarios = read_scenarios()
    bare = [
        f"{scenario} in {place.path}: {place.name}; the list says: {sentence(scenario, scenarios)}"
        for scenario, places in places_by_scenario().items()
        for place in places
        if place.text and not quotes(place.text, scenario, sentence(scenario, scenarios))
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("text", "is_quoted"),
    [
        ("GC-004: a full group refuses one more member at once", True),
        ("Why.\n\nGC-004: a full group refuses one more member.", True),
        ("GC-004: a full member", True),
        ("GC-004, and more.", False),
        ("GC-004: a member refuses a group", False),
        ("GC-004: full", False),
        ("GC-005: a full group refuses one more member at once", False),
    ],
)
def test_quotation_may_be_shortened_and_not_reworded(text: str, is_quoted: bool) -> None:
    """Words may be left out; words in another order, or other words, are no quotation."""
    meaning = "a full group refuses one more member at once"
    assert quotes(text, "GC-004", meaning) is is_quoted
