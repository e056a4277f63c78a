"""The report as one HTML file, which opens without a network, and shows any text as text.

A run has free texts, such as the names of groups. These texts must not be taken for markup.
"""

import json
import re
from html import escape

import pytest

from pipeline.report.build import report_html
from pipeline.report.charts.chart import Beside, Paragraph, Section, TextTable
from pipeline.report.report_input import ReportInput
from results_schema.journal import FaultOutcome
from tests.support.builders.report_inputs import (
    journal_entry,
    report_input,
    run_facts,
    small_chart,
)


def _section(_run: ReportInput) -> Section:
    """Return a section with a paragraph, a table, and a chart.

    A cell of the table and a text in the chart look like markup.
    """
    table = TextTable(headings=("who", "records"), rows=(("<b>", 1_234),), numeric=("records",))
    return Section(
        id="a-section",
        title="A section",
        parts=(Paragraph(html="Some <b>text</b>."), Beside(parts=(table, small_chart()))),
    )


def _embedded(html: str, element: str) -> dict[str, object]:
    """Return the JSON for the page's script in the element with this id."""
    match = re.search(f'<script type="application/json" id="{element}">(.*?)</script>', html, re.S)
    assert match is not None
    data: dict[str, object] = json.loads(match[1])
    return data


def test_page_of_a_run_has_nothing_to_fetch() -> None:
    """The file opens offline: no element and no style refers to another file or address."""
    html = report_html(report_input(), (_section,))
    no_scripts = re.sub(r"<script.*?</script>", "", html, flags=re.S)  # Vega's text contains URLs
    assert not re.search(r"(src|href)=[\"']?(https?:|//)", no_scripts)
    assert not re.search(r"@import|url\((?!#)", no_scripts)  # url(#...) refers to the page itself
    assert "default-src 'none'" in html


def test_page_escapes_texts_of_a_run() -> None:
    """A name may look like markup, but must neither begin nor end an element of the page."""
    html = report_html(report_input(run_facts(experiment="<i>x</i>")), (_section,))
    assert "<i>x</i>" not in html
    assert escape("<b>") in html
    assert "Some <b>text</b>." in html, "a paragraph is trusted markup"
    # The chart's data has the text "</script>". If it were not escaped, it would end the element of
    # the data, and there would be more ends than beginnings.
    assert html.count("</script>") == html.count("<script")


def test_chart_is_embedded_as_vega_with_its_data_in_columns() -> None:
    """The chart is compiled from Vega-Lite to Vega in advance, so the page needs only Vega.

    In the chart's data, each column is named once and not in every row, which keeps the page small.
    """
    embedded = _embedded(report_html(report_input(), (_section,)), "lane-small-data")
    # The chart has two bars. The row of a bar has its name, its begin and its end.
    assert embedded["data"] == {
        "bars": {"columns": ["who", "a", "b"], "rows": [["a", 1.0, 3.0], ["</script>", 2.0, 4]]}
    }
    spec = embedded["spec"]
    assert isinstance(spec, dict)
    assert spec["$schema"].startswith("https://vega.github.io/schema/vega/")
    # The ends of the page's time axis are parameters of every chart.
    assert {"from_s", "to_s"} <= {signal["name"] for signal in spec["signals"]}


def test_page_names_each_fault_that_hit_on_its_time_axis() -> None:
    """crash-1 missed, so it is not on the axis.

    crash-0 is healed at 36.25 s. crash-2 is never healed: it lasts until the run ends, at 60 s.
    """
    faults = (
        journal_entry(),
        journal_entry(fault_id="crash-1", outcome=FaultOutcome.MISSED, nodes=()),
        journal_entry(fault_id="crash-2", fired_at_us=50_000_000, healed_at_us=None),
    )
    html = report_html(report_input(run_facts(faults=faults)), (_section,))
    assert _embedded(html, "time-data") == {
        "end": 60.0,
        "faults": [
            {"from": 11.25, "to": 36.25, "label": "crash-0 (broker-2)"},
            {"from": 50.0, "to": 60.0, "label": "crash-2 (broker-2)"},
        ],
    }


def test_page_with_two_elements_of_one_id_is_refused() -> None:
    """Links and the script find charts by id: a duplicate id would hide a chart."""
    with pytest.raises(ValueError, match="a-section"):
        report_html(report_input(), (_section, _section))
