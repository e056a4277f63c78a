"""The list of scenarios is complete, and no test claims a scenario that does not exist.

A scenario is a case of Kafka's own tests, described in section 10 of BEHAVIOUR.md. Its id is a
family and a number: GC-010 is case 10 of Kafka's GroupCoordinatorTest. A test of this project
claims to cover a scenario by naming its id in its docstring. The page docs/generated/conformance.md
lists all scenarios and says of each one whether a test covers it.
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
"""Numbers of the scenarios in the family JC (the Java coordinator) that are about classic groups.

The other scenarios of this family are about Kafka's newer group protocol, which this project does
not have.
"""


def test_list_of_scenarios_is_complete() -> None:
    """Each family has each of its numbers once."""
    expected = [
        *(f"GC-{number:03}" for number in range(1, 164)),
        *(f"GM-{number:02}" for number in range(1, 59)),
        *(f"MM-{number:02}" for number in range(1, 70)),
        *(f"CO-{number}" for number in range(1, 5)),
        *(f"JC-{number}" for number in sorted(CLASSIC_JC)),
    ]
    # 109 + 21 + 4 numbers.
    assert len(CLASSIC_JC) == 134
    assert list(read_scenarios().ids()) == expected


def test_scenario_has_a_meaning_or_repeats_others_of_the_list() -> None:
    """A scenario has a meaning (a sentence about it), or it repeats other scenarios of the list.

    Only scenarios of the Java coordinator (JC) are repetitions. They repeat scenarios of the Scala
    coordinator. In `same_as` the keys are the repetitions, and the values are their originals.
    """
    scenarios = read_scenarios()
    assert set(scenarios.meaning).isdisjoint(scenarios.same_as)
    originals = {original for originals in scenarios.same_as.values() for original in originals}
    assert originals <= set(scenarios.meaning)
    assert all(repetition.startswith("JC-") for repetition in scenarios.same_as)


def test_scenario_without_a_test_has_at_most_one_reason() -> None:
    """There are two reasons: we deviate from Kafka, or the scenario is not applicable here.

    At most 2 % of the scenarios may be not applicable.
    """
    scenarios = read_scenarios()
    assert set(scenarios.deviates).isdisjoint(scenarios.not_applicable)
    assert {*scenarios.deviates, *scenarios.not_applicable} <= set(scenarios.ids())
    assert len(scenarios.not_applicable) <= 0.02 * len(scenarios.ids())


def test_no_test_or_recording_names_an_unknown_scenario() -> None:
    """A mistyped id would count for no scenario, and no other test would notice."""
    ids_of_list = set(read_scenarios().ids())
    unknown = {
        scenario: places
        for scenario, places in places_by_scenario().items()
        if scenario not in ids_of_list
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
    """A range names all of its scenarios. FO, XGC and RT are no families of the list."""
    assert list(ids_in(text)) == ids


def test_repeated_scenario_has_the_status_of_its_original() -> None:
    """A repetition is covered only if all scenarios that it repeats are covered."""
    # The list has three scenarios. Some test claims `claimed`, and no test claims the other two:
    # GC-998 has a reason why it is not covered, and GC-999 has no reason. The JC scenarios repeat
    # these three scenarios.
    claimed = sorted(places_by_scenario())[0]
    scenarios = ScenarioList(
        meaning={"GC-998": "", "GC-999": "", claimed: ""},
        same_as={"JC-901": (claimed,), "JC-902": (claimed, "GC-999"), "JC-903": ("GC-998",)},
        deviates={"GC-998": "reason"},
        not_applicable={},
    )
    assert statuses(scenarios) == {
        claimed: "covered",
        "GC-998": "deviates",
        "GC-999": "missing",
        "JC-901": "covered",
        "JC-902": "missing",
        "JC-903": "missing",
    }


def test_nearly_every_scenario_is_covered() -> None:
    """The project's goal is 97 %, with at least one covered scenario in every family."""
    status_by_scenario = statuses(read_scenarios())
    covered = [scenario for scenario, status in status_by_scenario.items() if status == "covered"]
    assert len(covered) >= 0.97 * len(status_by_scenario)
    assert {scenario.partition("-")[0] for scenario in covered} == set(FAMILIES)
