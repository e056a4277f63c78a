"""`doctor`: what this machine lacks for runs and pages: `command`, `machine`."""
