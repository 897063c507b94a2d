"""`python -m angelia`: the same as the command `angelia`, for where the script is not on the path."""

import sys

from angelia.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
