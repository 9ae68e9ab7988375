"""`python -m mdmt` is the command `mdmt`."""

import sys

from mdmt.cli import main

sys.exit(main())
