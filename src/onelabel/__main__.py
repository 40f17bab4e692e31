"""`python -m onelabel` and the program `onelabel`: says which extra is missing instead of a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, where what it needs is installed."""
    try:
        from onelabel.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("onelabel"):
            raise
        print(f"error: {error.name} is not installed: pip install 'onelabel[vision]'", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
