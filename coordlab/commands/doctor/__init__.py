"""`doctor`: what this machine lacks for runs and pages: `command`, `checks`, `machine`, `view`."""
