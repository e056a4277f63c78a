"""`explore`: a search over seeds: `command`, `live_view`, `summary`, `junit`."""
