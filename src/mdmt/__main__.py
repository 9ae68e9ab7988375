"""`python -m mdmt` is the command `mdmt`."""

import sys

from mdmt.cli.app import main

sys.exit(main())
