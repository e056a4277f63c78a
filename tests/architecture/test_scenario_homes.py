"""A scenario of Kafka's coordinators has one home: the one test file that quotes its sentence.

A scenario is a case of Kafka's own tests, with an id such as GC-004. A list has a sentence about
each scenario. A test of ours that covers a scenario names the id in its docstring. Because the id
alone tells a reader nothing, the docstring also quotes the sentence. For example, it has the line
"GC-004: a full group refuses one more member". If two files covered the same scenario, a change
could be made in one file and forgotten in the other file.
"""

import re

import pytest

from scripts.docs.conformance_page import ScenarioList, places_by_scenario, read_scenarios

WORDS_AT_LEAST = 3
"""The least number of words of a quotation, unless the whole sentence is shorter."""


def sentence(scenario: str, scenarios: ScenarioList) -> str:
    """Return the sentence that the list has for a scenario.

    The list has no sentence about a scenario that only repeats other scenarios. For such a
    scenario, the sentence is "as", followed by the ids of the others.
    """
    if scenario in scenarios.meaning:
        return scenarios.meaning[scenario]
    return f"as {', '.join(scenarios.same_as.get(scenario, ()))}"


def quotes(text: str, scenario: str, meaning: str) -> bool:
    """Return True if a line of `text` has the id and quotes the sentence `meaning`.

    A quotation has all words of the sentence, or some of them in the same order.
    """
    line = re.search(rf"^{scenario}: (.+)$", text, flags=re.MULTILINE)
    if line is None:
        return False
    quoted_words = line[1].removesuffix(".").split()
    words = meaning.split()
    if len(quoted_words) < min(WORDS_AT_LEAST, len(words)):
        return False
    # `in` takes words from the iterator up to and including the one that it finds.
    remaining_words = iter(words)
    return all(word in remaining_words for word in quoted_words)


def test_scenario_has_one_home() -> None:
    """No scenario is covered in two test files.

    A recording of a real Kafka may have the same scenario as a test, because it is no test of ours.
    A recording has no `text`.
    """
    homes = {
        scenario: sorted({place.path for place in places if place.text})
        for scenario, places in places_by_scenario().items()
    }
    assert {scenario: paths for scenario, paths in homes.items() if len(paths) > 1} == {}


def test_citation_quotes_the_sentence_of_its_scenario() -> None:
    """The quoted sentence tells a reader of the test what the id means."""
    scenarios = read_scenarios()
    without_quotation = [
        f"{scenario} in {place.path}: {place.name}; the list says: {sentence(scenario, scenarios)}"
        for scenario, places in places_by_scenario().items()
        for place in places
        if place.text and not quotes(place.text, scenario, sentence(scenario, scenarios))
    ]
    assert without_quotation == []


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
    """A quotation may leave words out. Its words must be in the same order as in the sentence."""
    meaning = "a full group refuses one more member at once"
    assert quotes(text, "GC-004", meaning) is is_quoted
