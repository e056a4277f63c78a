"""Location of our packages: the checkout, or site-packages.

`coordlab.own_packages` finds it without this module: it runs before any of our packages may be
imported.
"""

from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""Folder of our top-level packages."""
