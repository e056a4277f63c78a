"""`report`: writes a web page about each run, and a page that compares several runs.

The pages are made from the tables and the summary of each run, which `analyze` computes with Spark.
If a run has not been analysed, or if its tables are old, it is analysed first.
"""

import webbrowser
from pathlib import Path

import click
from rich.console import Console

from coordlab.analysis import (
    COMPARISON_FILE,
    analyze_if_needed,
    compare_side_by_side,
    write_comparison,
    write_run_report,
)
from coordlab.console import print_document, print_path
from coordlab.options import (
    json_option,
    master_option,
    named_runs,
    past_runs_argument,
    runs_option,
    with_examples,
)
from coordlab.report_facts import facts_of
from coordlab.views.comparison_view import print_comparison
from results_schema.results import EXIT_PASS


@click.command(
    "report",
    cls=with_examples(
        "report",
        "report runs/coordinator_crash --open",
        "report runs/coordinator_crash/2026-* --output crashes.html",
    ),
)
@past_runs_argument
@runs_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the page goes: of one run, instead of report.html in its directory; of several, "
    f"the comparison, instead of {COMPARISON_FILE} in the folder of runs.",
)
@click.option("--open", "opens_browser", is_flag=True, help="Open the page in a browser.")
@master_option
@json_option("reports (run, directory, report), comparison (page, columns, rows)")
def report_command(
    run_directories: tuple[Path, ...],
    runs: Path,
    output: Path | None,
    opens_browser: bool,
    master: str | None,
    json: bool,
) -> int:
    """Write report.html of runs: one offline page each, and one that compares several.

    RUN is a run directory, or an experiment's folder, which means its latest run; without one, the
    latest run of all. Runs without tables are analysed first, which needs Java.
    """
    console = Console(stderr=True) if json else Console()
    past_runs = named_runs(run_directories, runs)
    summaries = analyze_if_needed(console, past_runs, master=master)
    single = len(past_runs) == 1
    try:
        # If there is a single run, --output is the path of its page. If there are several runs,
        # --output is the path of the comparison.
        pages = [
            write_run_report(console, past_run, output=output if single else None)
            for past_run in past_runs
        ]
        page = pages[0]  # the page that --open opens
        comparison = None
        if not single:
            facts = [facts_of(past_run) for past_run in past_runs]
            pairs = list(zip(facts, summaries, strict=True))
            comparison = compare_side_by_side(pairs)
            comparison_path = runs / COMPARISON_FILE if output is None else output
            page = write_comparison(pairs, comparison_path)
    except OSError as error:
        # A wrong --output is a mistake of the user, not a failure of coordlab.
        raise click.FileError(str(error.filename), error.strerror) from error
    if json:
        comparison_document = None
        if comparison is not None:
            comparison_document = {
                "page": str(page),
                "columns": comparison.columns,
                "rows": comparison.rows,
            }
        document = {
            "reports": [
                {
                    "run": past_run.manifest.run,
                    "directory": str(past_run.path),
                    "report": str(path),
                }
                for past_run, path in zip(past_runs, pages, strict=True)
            ],
            "comparison": comparison_document,
        }
        print_document(Console(), document)
    else:
        for path in pages:
            print_path(console, "report", path)
        if comparison is not None:
            runtimes = (past_run.manifest.runtime for past_run in past_runs)
            print_comparison(console, comparison, runtimes)
            print_path(console, "comparison", page)
    if opens_browser and not webbrowser.open(page.resolve().as_uri()):
        console.print(f"no browser was found: open {page}", highlight=False, soft_wrap=True)
    return EXIT_PASS
