"""``python -m placewright``."""

from placewright.cli.main import main

main()
