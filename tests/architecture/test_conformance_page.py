"""The list of scenarios is complete, and no test claims a scenario that does not exist.

A scenario is one test case of Kafka's own tests, described in section 10 of BEHAVIOUR.md. A test
of this project claims a scenario by naming its id in its docstring. An id is a family and a number:
GC-010 is case 10 of Kafka's GroupCoordinatorTest.
"""

import pytest

from scripts.docs.conformance_page import (
    FAMILIES,
    ScenarioList,
    ids_in,
    places_by_scenario,
    read_scenarios,
    statuses,
)

CLASSIC_JC = {*range(38, 147), *range(150, 171), 173, 175, 186, 187}
"""Numbers of the scenarios of classic groups in the family JC.

108 are about members and rebalances, one about ListGroups, 23 about describing, leaving, deleting
and sensors, two about unloading. The others are about Kafka's newer group protocol.
"""


def test_list_of_scenarios_is_complete() -> None:
    """Each family (the prefix of an id) has each of its numbers once."""
    expected = [
        *(f"GC-{n:03}" for n in range(1, 164)),
        *(f"GM-{n:02}" for n in range(1, 59)),
        *(f"MM-{n:02}" for n in range(1, 70)),
        *(f"CO-{n}" for n in range(1, 5)),
        *(f"JC-{n}" for n in sorted(CLASSIC_JC)),
    ]
    assert len(CLASSIC_JC) == 134
    assert list(read_scenarios().ids()) == expected


def test_scenario_has_a_meaning_or_repeats_others_of_the_list() -> None:
    """Only scenarios of the Java coordinator (JC) repeat others: those of the Scala coordinator."""
    scenarios = read_scenarios()
    assert not set(scenarios.meaning) & set(scenarios.same_as)
    repeated = {scenario for same in scenarios.same_as.values() for scenario in same}
    assert repeated <= set(scenarios.meaning)
    assert all(repetition.startswith("JC-") for repetition in scenarios.same_as)


def test_listed_scenario_has_at_most_one_reason() -> None:
    """A scenario deviates or is not applicable, but never both; at most 2 % are not applicable."""
    scenarios = read_scenarios()
    assert not set(scenarios.deviates) & set(scenarios.not_applicable)
    assert {*scenarios.deviates, *scenarios.not_applicable} <= set(scenarios.ids())
    assert len(scenarios.not_applicable) <= 0.02 * len(scenarios.ids())


def test_no_test_or_recording_names_an_unknown_scenario() -> None:
    """A mistyped id would count for no scenario, and nobody would notice."""
    known = set(read_scenarios().ids())
    unknown = {
        scenario: places
        for scenario, places in places_by_scenario().items()
        if scenario not in known
    }
    assert unknown == {}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("GC-010, GC-011; no group.", ["GC-010", "GC-011"]),
        ("GM-05..07 and CO-1.", ["GM-05", "GM-06", "GM-07", "CO-1"]),
        ("JC-150..151", ["JC-150", "JC-151"]),
        ("FO-02, XGC-001, RT-3", []),
    ],
)
def test_ids_are_read_from_a_docstring(text: str, ids: list[str]) -> None:
    """A range names all of its scenarios. The prefix of an id is one of the known families."""
    assert list(ids_in(text)) == ids


def test_repeated_scenario_has_the_status_of_its_original() -> None:
    """A repetition is covered only if all scenarios that it repeats are covered.

    `real` is a scenario that some test claims. The other ids do not exist in Kafka.
    """
    real = sorted(places_by_scenario())[0]
    # GC-998 deviates, and no test claims GC-999.
    scenarios = ScenarioList(
        meaning={"GC-998": "", "GC-999": "", real: ""},
        same_as={"JC-901": (real,), "JC-902": (real, "GC-999"), "JC-903": ("GC-998",)},
        deviates={"GC-998": "reason"},
        not_applicable={},
    )
    assert statuses(scenarios) == {
        real: "covered",
        "GC-998": "deviates",
        "GC-999": "missing",
        "JC-901": "covered",
        "JC-902": "missing",
        "JC-903": "missing",
    }


def test_nearly_every_scenario_is_covered() -> None:
    """The project's goal is 97 %, with at least one covered scenario in every family."""
    status = statuses(read_scenarios())
    covered = [scenario for scenario, word in status.items() if word == "covered"]
    assert len(covered) >= 0.97 * len(status)
    assert {scenario.partition("-")[0] for scenario in covered} == set(FAMILIES)
