"""`shrink`: from a schedule that fails to a small one: `command`, `execution`, `live_view`."""
