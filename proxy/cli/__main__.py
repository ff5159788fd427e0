"""`python -m proxy.cli`: the same as `semel`."""

import sys

from proxy.cli import main

sys.exit(main())
