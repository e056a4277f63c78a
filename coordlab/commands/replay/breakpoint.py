"""`replay --break-at`: opens Python's debugger at a moment of a run in virtual time.

The whole cluster is in this process, and its clock stands still while the debugger is open. So the
user can look at every broker and client, and then step into the next event. Some helper functions
are in scope, such as `groups()`, which prints all groups.
"""

import pdb
from bdb import BdbQuit
from types import FrameType
from typing import Any

import click
from rich.console import Console

from cluster.node_factory import Node
from coordlab.commands.replay.recording import Moment
from coordlab.commands.replay.state_view import group_lines, print_state
from coordlab.console import clock, row_line
from coordlab.parameters import RunTimeParam
from protocol.ids import NodeName

INTRODUCTION = """\
In scope: runtime, status, experiment, faults, rows (the last of the trace),
  state()            the whole state           groups()       groups and members
  last(10, "broker-1")  rows of a node         node("broker-1")   the node itself
  at("12.5s")        stop again at this time, after `c`
`c` continues to the end, `s` steps into the next event, `q` ends the run here."""


def debug(moment: Moment, console: Console) -> bool:
    """Open the debugger at this moment, and return True, because the run goes on afterwards.

    Raises: KeyboardInterrupt if the user quits the debugger.
    """
    console.print(f"at {clock(moment.time_us)}, before anything that happens then", markup=False)
    console.print(INTRODUCTION, markup=False, highlight=False)
    _stop_with_names_in_scope(moment, console)
    return True


def _stop_with_names_in_scope(moment: Moment, console: Console) -> None:
    """Stop in the debugger.

    The debugger stops in this function. So the user can type the names of the function's local
    variables: the parts of the moment, and the functions below.
    """
    runtime, status = moment.runtime, moment.status
    experiment, faults, rows = moment.experiment, moment.faults, moment.rows

    def state() -> None:
        """Print the whole state."""
        print_state(console, moment)

    def groups() -> None:
        """Print the groups, as their coordinators and as their members know them."""
        for line in group_lines(status):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def last(count: int = 20, name: str | None = None) -> None:
        """Print the last `count` rows of the trace, or of the rows of the node `name`."""
        rows_of_node = [row for row in rows if name in {None, row.node}]
        for row in rows_of_node[-count:]:
            console.print(row_line(row), markup=False, highlight=False, soft_wrap=True)

    def node(name: str) -> Node | None:
        """Return the node of this name."""
        return runtime.node(NodeName(name))

    def at(time: str) -> None:
        """Stop again at this time of the run's clock, such as "12.5s"."""
        try:
            time_us = RunTimeParam().convert(time, param=None, ctx=None)
        except click.BadParameter as error:
            console.print(error.message, markup=False)
            return
        if time_us <= moment.time_us:
            now = clock(moment.time_us)
            console.print(f"expected a time after {now}, got {clock(time_us)}", markup=False)
            return
        moment.stop_again_at(time_us)
        console.print(f"`c` continues to {clock(time_us)}", markup=False)

    # Only the user of the debugger uses these names. Ruff would report them as unused.
    _in_scope = (experiment, faults, state, groups, last, node, at)
    # After the command `c` the run goes on, and a Ctrl-C should end it in order. Without `nosigint`
    # Pdb would install its own handler for Ctrl-C.
    _Debugger(nosigint=True).set_trace()
    return  # noqa: PLR1711 - the debugger stops at this line, with the names above in scope


class _Debugger(pdb.Pdb):
    """Python's debugger, except that it raises KeyboardInterrupt when the user quits.

    KeyboardInterrupt ends the run. Pdb itself raises BdbQuit. If the user was stepping through the
    code of a node, this node would seem to have failed with that exception.
    """

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ANN401
        """Handle a trace event as Pdb does. Raises: KeyboardInterrupt if the user quits."""
        try:
            return super().trace_dispatch(frame, event, arg)
        except BdbQuit:
            raise KeyboardInterrupt from None
