"""The debugger at a moment of a run in virtual time, with what one wants to look at in scope."""

import pdb
from bdb import BdbQuit
from types import FrameType
from typing import Any

from rich.console import Console

from cluster.node_factory import Node
from coordlab.commands.replay.recording import Moment
from coordlab.commands.replay.state_view import group_lines, print_state
from coordlab.console import clock, row_line
from protocol.ids import NodeName

INTRODUCTION = """\
In scope: runtime, status, experiment, faults, rows (the last of the trace),
  state()            the whole state           groups()       groups and members
  last(10, "broker-1")  rows of a node         node("broker-1")   the node itself
  at("12.5s")        stop there again
`c` goes on to the end, `s` steps into what happens next, `q` ends the run here."""


def debug(moment: Moment, console: Console) -> bool:
    """Open the debugger at `moment`; return whether the run goes on, which it does.

    Raises: KeyboardInterrupt where the user quits.
    """
    console.print(f"at {clock(moment.time_us)}, before anything that happens then", markup=False)
    console.print(INTRODUCTION, markup=False, highlight=False)
    _session(moment, console)
    return True


def _session(moment: Moment, console: Console) -> None:
    runtime, status = moment.runtime, moment.status
    experiment, faults, rows = moment.experiment, moment.faults, moment.rows

    def state() -> None:
        """Print the whole state."""
        print_state(console, moment)

    def groups() -> None:
        """Print the groups, as their coordinators and their members see them."""
        for line in group_lines(status):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def last(count: int = 20, name: str | None = None) -> None:
        """Print the last rows, of a node if one is named."""
        for row in [row for row in rows if name in {None, row.node}][-count:]:
            console.print(row_line(row), markup=False, highlight=False, soft_wrap=True)

    def node(name: str) -> Node | None:
        """Return the node of this name."""
        return runtime.node(NodeName(name))

    _in_scope = (experiment, faults, state, groups, last, node)
    _Debugger(nosigint=True).set_trace()
    return  # noqa: PLR1711 - the debugger stops here, with all of the above in scope


class _Debugger(pdb.Pdb):
    """Pdb that ends the run when it is quit: node code would take a BdbQuit for its own failure."""

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ANN401
        """Pass an event on to Pdb. Raises: KeyboardInterrupt where the user quits."""
        try:
            return super().trace_dispatch(frame, event, arg)
        except BdbQuit:
            raise KeyboardInterrupt from None
