"""`doctor`: what this machine lacks for runs and pages. Reading order: `command`, `machine`."""
