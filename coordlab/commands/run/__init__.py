"""`run`: `command` declares the options and drives a run; `play` plays it into its directory."""
