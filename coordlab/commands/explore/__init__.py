"""`explore`: a search over seeds: `command`, `execution`, `live_view`, `summary`, `junit`."""
