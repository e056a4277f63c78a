"""Each broker has one colour in all lanes; variants of that colour distinguish generations.

A generation is the number of a group's rebalance. `cells` returns columns of a chart's data, which
have names of one letter: `r` is the row, `w` the colour of the coordinator, `m` the member, `g` the
generation, `c` the fill of a bar. Builders make table rows, with times in seconds. A `tenure` is
the time in which a broker is coordinator. A `state` is the time in which the group has a state at a
coordinator. `owned` is the time in which a member owns a partition. In rows of `state` and `owned`,
broker-2 is the coordinator unless another is named. A `to_s` of None means that the run ended
first.
"""

from pipeline.report.charts.chart import SERIES, soft
from pipeline.report.lanes.broker_fills import broker_fill, broker_fills
from pipeline.report.lanes.coordinators import coordinators_lane
from pipeline.report.lanes.groups import groups_lane
from pipeline.report.lanes.ownership import ownership_lane
from tests.support.builders.lane_rows import group, state, tenure
from tests.support.builders.lane_rows import ownership as owned
from tests.support.builders.report_inputs import report_input
from tests.support.vega import cells, compiled_without_warnings

_TABLES = {
    "groups": [group()],
    "coordinator_tenures": [
        tenure("broker-2", epoch=0, from_s=0, to_s=40),
        tenure("broker-0", epoch=1, from_s=19, to_s=60),
    ],
    "group_states": [
        state("Stable", from_s=6, to_s=40),
        state("Stable", from_s=26, to_s=None, broker="broker-0"),
    ],
    "ownership": [
        owned("orders-0", "consumer-0", from_s=6, to_s=20),
        owned("orders-0", "consumer-0", from_s=20, to_s=40, generation=2),
        owned("orders-1", "consumer-1", from_s=26, to_s=None, generation=2, coordinator="broker-0"),
    ],
}


def test_broker_has_one_colour_in_all_lanes() -> None:
    """A reader recognises the broker that assigned an owner's partition by its colour."""
    run = report_input(tables=_TABLES)
    fills = broker_fills(run)
    coordinator, states, owners = coordinators_lane(run), groups_lane(run), ownership_lane(run)
    assert coordinator is not None
    assert states is not None
    assert owners is not None

    # The coordinator lane: by the scale of its legend.
    scales = {
        scale["name"]: dict(zip(scale["domain"], scale["range"], strict=True))
        for scale in compiled_without_warnings(coordinator)["scales"]
        if scale["name"] == "fill"
    }
    assert scales["fill"] == {broker: soft(fill) for broker, fill in fills.items()}

    # The group lane: by the colour in each row.
    assert set(cells(states, "states", "r", "w")) == {
        (f"readers · {broker}", fill) for broker, fill in fills.items()
    }

    # The ownership lane: by the fill of each bar.
    bars = {
        (member, generation): fill
        for member, generation, fill in cells(owners, "owners", "m", "g", "c")
    }
    assert bars["consumer-0", 1] == soft(fills["broker-2"])
    assert bars["consumer-1", 2] == soft(fills["broker-0"])
    # A later generation of the same coordinator has a variant of its colour.
    assert bars["consumer-0", 2] not in {soft(fill) for fill in fills.values()}


def test_generations_of_one_coordinator_are_shades_of_its_colour() -> None:
    """Two generations differ, and both visibly belong to the same coordinator.

    The variants are the plain colour, the colour with a pattern, and the pale colour.
    """
    plain, pattern, pale = (broker_fill(0, variant) for variant in range(3))
    assert len({plain, pattern, pale}) == 3
    assert plain == SERIES[0]
    assert pattern == "url(#hatch-1)"
    assert SERIES[0] in pale


def test_brokers_have_none_of_the_colours_of_rebalances_and_faults() -> None:
    """Orange (`SERIES[1]`, and the pattern `hatch-2` of it) is reserved for rebalances and faults.

    The first 12 brokers have different fills: 5 colours in up to 3 variants.
    """
    fills = [broker_fill(place) for place in range(12)]
    assert not {SERIES[1], "url(#hatch-2)"} & set(fills)
    assert len(set(fills)) == 12
