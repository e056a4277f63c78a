"""A chart's compiled specification, and its data.

The report's charts are written with Altair, in the language Vega-Lite. They are compiled to the
language Vega, which the page draws. A lane is a chart of the report's time line.
"""

import warnings
from typing import Any

from pipeline.report.charts.chart import FROM_S, TO_S, Chart
from pipeline.report.charts.chart_specs import compiled

Datum = dict[str, Any]  # Any: a cell of a chart's data


def compiled_without_warnings(chart: Chart) -> dict[str, Any]:
    """Return a chart as Vega, and check the requirements of every lane.

    Altair and Vega-Lite must accept the chart without a warning, the chart must have all data that
    it names, and its time axis must be that of the page.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vega = compiled(chart)
    # Vega-Lite itself adds data with names that begin with `data_` or `source_`.
    names = {data["name"] for data in vega["data"] if not data["name"].startswith("data_")}
    missing = {name for name in names if name not in chart.data and not name.startswith("source_")}
    if missing:
        raise AssertionError(f"{chart.id} names data that it does not hold: {sorted(missing)}")
    signals = {signal["name"] for signal in vega["signals"]}
    expected = {FROM_S, TO_S, *(pick.param for pick in chart.picks)}
    if not expected <= signals:
        raise AssertionError(f"{chart.id} lacks the parameters {sorted(expected - signals)}")
    scale = next(scale for scale in vega["scales"] if scale["name"] == "x")
    if scale["domain"] != [{"signal": FROM_S}, {"signal": TO_S}]:
        raise AssertionError(f"{chart.id} takes its time axis from {scale['domain']}")
    return vega


def rows(chart: Chart, name: str) -> list[Datum]:
    """Return the data `name` of a chart, in the order of time.

    The field `a` has the time at which a mark (a bar or a point of the chart) begins. Rows without
    it come first.
    """
    return sorted((dict(datum) for datum in chart.data[name]), key=lambda row: row.get("a") or 0)


def cells(chart: Chart, name: str, *fields: str) -> list[tuple[Any, ...]]:
    """Return some fields of the data `name` of a chart, in the order of time."""
    return [tuple(row[field] for field in fields) for row in rows(chart, name)]
