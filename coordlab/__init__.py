"""The command line and the wiring of everything."""

from coordlab.own_packages import require_own_packages

require_own_packages()
