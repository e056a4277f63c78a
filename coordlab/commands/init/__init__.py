"""`init`: begin an experiment: `command`; what it writes is in `templates`."""
