"""Each broker has one colour in all lanes of a report; its variants distinguish generations.

A lane is a chart over the time of the run. One lane shows which broker was the coordinator, another
the states of groups, and a third the owners of partitions. In all these lanes the colour of a bar
shows the coordinator that the bar belongs to.

The builders make rows of tables, with times in seconds:

- `tenure`: the time in which a broker is coordinator;
- `state`: the time in which a group has one state;
- `owned`: the time in which a member owns a partition.

If `to_s` is None, the time lasts until the run's end. In rows of `state` and `owned` the
coordinator is broker-2, unless a test names another broker.
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

# Keys of a chart's data, which is JSON with short keys to save room.
ROW = "r"
COORDINATOR_COLOUR = "w"
MEMBER, GENERATION, FILL = "m", "g", "c"

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

    # In the coordinator lane a scale gives each broker its fill: a paler version (`soft`) of the
    # broker's colour.
    scales = compiled_without_warnings(coordinator)["scales"]
    (fill_scale,) = [scale for scale in scales if scale["name"] == "fill"]
    fills_of_scale = dict(zip(fill_scale["domain"], fill_scale["range"], strict=True))
    assert fills_of_scale == {broker: soft(fill) for broker, fill in fills.items()}

    # In the group lane the data of each bar has the colour of its coordinator.
    assert set(cells(states, "states", ROW, COORDINATOR_COLOUR)) == {
        (f"readers · {broker}", fill) for broker, fill in fills.items()
    }

    # In the ownership lane the data of each bar has its fill.
    fill_by_owner = {
        (member, generation): fill
        for member, generation, fill in cells(owners, "owners", MEMBER, GENERATION, FILL)
    }
    assert fill_by_owner["consumer-0", 1] == soft(fills["broker-2"])
    assert fill_by_owner["consumer-1", 2] == soft(fills["broker-0"])
    # A later generation of the same coordinator has a variant of its colour.
    assert fill_by_owner["consumer-0", 2] not in {soft(fill) for fill in fills.values()}


def test_generations_of_one_coordinator_are_shades_of_its_colour() -> None:
    """Two generations differ, and both visibly belong to the same coordinator.

    The variants are the plain colour, the colour with a pattern, and the pale colour. The colour
    here is the colour of the first broker.
    """
    plain, pattern, pale = (broker_fill(0, variant) for variant in range(3))
    assert len({plain, pattern, pale}) == 3
    assert plain == SERIES[0]
    assert pattern == "url(#hatch-1)"
    assert SERIES[0] in pale  # the pale colour is mixed from the plain one


def test_brokers_have_none_of_the_colours_of_rebalances_and_faults() -> None:
    """Orange is reserved for rebalances and faults: `SERIES[1]`, and its pattern `hatch-2`.

    The first 12 brokers have different fills: 5 colours in up to 3 variants.
    """
    fills = [broker_fill(index) for index in range(12)]
    assert not {SERIES[1], "url(#hatch-2)"} & set(fills)
    assert len(set(fills)) == 12
