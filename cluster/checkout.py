"""Location of this project's packages: the checkout, or site-packages.

`coordlab.own_packages` finds the location without this module, because it runs before any package
of the project may be imported.
"""

from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""Folder of the project's top-level packages."""
