"""`conform`: plays recordings of real Kafka against this cluster, and lists the differences.

A transcript is a recording: requests and answers of one cluster, with their times. A step is a
request with its answer. A step is equal if this cluster gives the same answer as real Kafka.
"""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from chaos.conformance.conformity import (
    FileConformity,
    Share,
    judge_transcript,
    share_of,
    shares_by_api,
    shares_by_folder,
)
from chaos.conformance.recorded_cluster import cluster_of
from chaos.conformance.transcript import (
    Transcript,
    TranscriptError,
    find_transcripts,
    read_rules,
    read_transcript,
)
from chaos.experiment.problems import Problem
from coordlab.console import print_document
from coordlab.options import json_option, with_examples
from results_schema.results import EXIT_PASS, EXIT_VIOLATED

_DIFFERENCE_MAX = 320
"""Number of characters after which the text of a difference is cut; `--json` has the whole text."""


@click.command(
    "conform",
    cls=with_examples(
        "conform tests/conformance/transcripts",
        "conform tests/conformance/transcripts/3.9/failover --all",
    ),
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--all", "show_all", is_flag=True, help="Print every difference of a file.")
@json_option("share, equal_files, by_folder, by_api, files (with every difference)")
def conform_command(directory: Path, show_all: bool, json: bool) -> int:
    """Play recordings of real Kafka against this cluster in virtual time, and compare the answers.

    DIR is a folder of transcripts, or one transcript. Each request is sent at its recorded time on
    its connection; every answer is compared field by field, also in its time and its place in the
    order. tests/conformance/transcripts/README.md has the format of transcripts. Exit code 0: all
    steps are equal; 1: a step differs; 254: a file is no transcript.
    """
    console = Console()
    # The index file of the transcripts has rules. A rule names a difference that does not count.
    rules = read_rules(directory)
    # All files are read before the first is played, so that the command does not end with a mistake
    # in a file after it has played other files for a long time.
    transcripts = _read_all(find_transcripts(directory))
    files: list[FileConformity] = []
    for transcript in transcripts:
        conformity = judge_transcript(transcript, rules)
        files.append(conformity)
        if not json:
            _print_file(console, conformity, show_all=show_all)
    if json:
        print_document(console, _document(files))
    else:
        _print_totals(console, files)
    return EXIT_VIOLATED if any(file.differences for file in files) else EXIT_PASS


def _read_all(paths: Sequence[Path]) -> list[Transcript]:
    """Return every transcript. Raises: TranscriptError with all problems of all transcripts."""
    problems: list[Problem] = []
    transcripts: list[Transcript] = []
    for path in paths:
        try:
            transcript = read_transcript(path)
            cluster_of(transcript)  # raises TranscriptError for settings that Kafka refuses
            transcripts.append(transcript)
        except TranscriptError as error:
            problems += error.problems
    if problems:
        raise TranscriptError(problems)
    return transcripts


def _print_file(console: Console, file: FileConformity, *, show_all: bool) -> None:
    """Print how many of a file's steps are equal, then its first difference.

    With `show_all`, print every difference. A FileConformity is the result of playing one file.
    """
    style = "red" if file.differences else "green"
    _print(console, f"[{style}]{file.equal:4}/{file.steps:<4}[/] {escape(file.file)}")
    for difference in file.differences if show_all else file.differences[:1]:
        text = str(difference)
        shown = text if len(text) <= _DIFFERENCE_MAX else f"{text[:_DIFFERENCE_MAX]} ..."
        _print(console, f"          {escape(shown)}")
    if file.unknown_settings:
        names = ", ".join(file.unknown_settings)
        _print(console, f"          [yellow]settings that coordlab lacks:[/] {escape(names)}")


def _print_totals(console: Console, files: Sequence[FileConformity]) -> None:
    """Print the share of equal steps for each API, for each folder, and of all steps."""
    for title, shares in (
        ("by API", shares_by_api(files)),
        ("by folder", shares_by_folder(files)),
    ):
        _print(console, f"\n{title}")
        for name, share in shares.items():
            _print(console, f"  {_share(share)}  {escape(name)}")
    total = share_of(files)
    _print(
        console,
        f"\n{total.equal:,} of {total.steps:,} steps are equal ({total.percent:.2f} %); "
        f"{_equal_files(files)} of {len(files)} files are equal as a whole",
    )


def _equal_files(files: Sequence[FileConformity]) -> int:
    """Return the number of files whose steps are all equal."""
    return sum(not file.differences for file in files)


def _share(share: Share) -> str:
    """Return a share as text: the percentage, and the equal steps among all steps."""
    return f"{share.percent:6.2f} %  {share.equal:5}/{share.steps:<5}"


def _document(files: Sequence[FileConformity]) -> dict[str, object]:
    """Return the document that `--json` prints."""
    return {
        "share": share_of(files),
        "equal_files": _equal_files(files),
        "by_folder": shares_by_folder(files),
        "by_api": shares_by_api(files),
        "files": [
            {
                "file": file.file,
                "id": file.id,
                "equal": file.equal,
                "steps": file.steps,
                "seed": file.seed,
                "unknown_settings": file.unknown_settings,
                "differences": file.differences,
            }
            for file in files
        ],
    }


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
