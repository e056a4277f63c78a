"""`explore`: a search over seeds. Reading order: `command`, `live_view`, `summary`, `junit`."""
