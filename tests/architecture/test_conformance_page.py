"""The list of scenarios is complete, and no test claims one that does not exist."""

import pytest

from scripts.docs.conformance_page import (
    FAMILIES,
    ScenarioList,
    ids_in,
    named,
    read_scenarios,
    statuses,
)

CLASSIC_JC = {*range(38, 147), *range(150, 171), 173, 175, 186, 187}
"""Numbers of the scenarios of classic groups in the family JC.

108 are about members and rebalances, one about ListGroups, 23 about describing, leaving, deleting
and sensors, two about unloading. The others are about Kafka's newer group protocol.
"""


def test_list_of_scenarios_is_complete() -> None:
    """Each family (the prefix of an id) has every number once."""
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
    scenarios = read_scenarios()
    assert not set(scenarios.meaning) & set(scenarios.same_as)
    repeated = {each for same in scenarios.same_as.values() for each in same}
    assert repeated <= set(scenarios.meaning)
    assert all(each.startswith("JC-") for each in scenarios.same_as)


def test_listed_scenario_has_at_most_one_reason() -> None:
    """At most two in a hundred may be marked as not applicable."""
    scenarios = read_scenarios()
    assert not set(scenarios.deviates) & set(scenarios.not_applicable)
    assert {*scenarios.deviates, *scenarios.not_applicable} <= set(scenarios.ids())
    assert len(scenarios.not_applicable) <= 0.02 * len(scenarios.ids())


def test_no_test_or_recording_names_an_unknown_scenario() -> None:
    """A mistyped id would silently count for nothing."""
    known = set(read_scenarios().ids())
    unknown = {each: places for each, places in named().items() if each not in known}
    assert unknown == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("GC-010, GC-011; no group.", ["GC-010", "GC-011"]),
        ("GM-05..07 and CO-1.", ["GM-05", "GM-06", "GM-07", "CO-1"]),
        ("JC-150..151", ["JC-150", "JC-151"]),
        ("FO-02, XGC-001, RT-3", []),
    ],
)
def test_ids_are_read_from_a_docstring(text: str, found: list[str]) -> None:
    assert list(ids_in(text)) == found


def test_repeated_scenario_has_the_status_of_its_original() -> None:
    """A repetition of a scenario that deviates or has no test does not count as covered."""
    real = sorted(named())[0]
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
    """The project's goal is 97 %, with covered scenarios in every family."""
    status = statuses(read_scenarios())
    covered = [scenario for scenario, each in status.items() if each == "covered"]
    assert len(covered) >= 0.97 * len(status)
    assert {scenario.partition("-")[0] for scenario in covered} == set(FAMILIES)
