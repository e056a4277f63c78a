"""A profile as text: each layer's share of the time, and the slowest functions."""

import cProfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (
    "chaos/checkers",
    "chaos/exploration",
    "chaos",
    "results_schema",
    "cluster/virtual/loop.py",
    "cluster/host/connections.py",
    "cluster/host/client_connection.py",
    "cluster/trace/digest.py",
    "cluster/virtual",
    "cluster/controller",
    "cluster/broker",
    "cluster/client",
    "cluster",
    "coordinator",
    "partition_log",
    "protocol",
)
"""Layers, as beginnings of paths. A file belongs to the first layer with which its path begins."""
OTHERS = "library and builtins"
"""Name of the layer of all other files."""


def profile_text(profile: cProfile.Profile, title: str, *, functions: int = 20) -> str:
    """Return the profile as text: a line for each layer, and for each of the slowest functions."""
    own_by_layer = dict.fromkeys((*LAYERS, OTHERS), 0.0)
    entries = []
    # The methods that dataclasses generate have equal files, lines and names. The module pstats
    # would keep only one of them, so the profiler's own entries are read here.
    for entry in profile.getstats():
        code, calls, total, own = entry.code, entry.callcount, entry.totaltime, entry.inlinetime
        if isinstance(code, str):  # a builtin function, of which only the name is known
            file, line, function = "~", 0, code
        else:
            file, line, function = code.co_filename, code.co_firstlineno, code.co_qualname
        layer, where = OTHERS, Path(file).name
        if file.startswith(f"{ROOT}/") and not file.startswith(f"{ROOT}/.venv"):
            path = str(Path(file).relative_to(ROOT))
            layer = next((name for name in LAYERS if path.startswith(name)), OTHERS)
            where = f"{path}:{line}"
        own_by_layer[layer] += own
        entries.append((own, total, calls, f"{where} {function}"))
    whole = sum(own_by_layer.values())
    lines = [f"profile of {title} (it slows Python code down about 3 times)"]
    lines += [f"{own / whole:6.1%}  {name}" for name, own in own_by_layer.items() if own > 0]
    lines.append("   own s  with callees   calls  function")
    for own, total, calls, name in sorted(entries, reverse=True)[:functions]:
        lines.append(f"{own:8.3f} {total:13.3f} {calls:7}  {name}")
    return "\n".join(lines)
