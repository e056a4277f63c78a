"""Where our packages are: the checkout, or site-packages.

`coordlab.own_packages` finds it by itself: it runs before anything of ours may be imported.
"""

from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds our top-level packages."""
