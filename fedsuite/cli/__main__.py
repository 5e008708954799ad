"""``python -m fedsuite.cli``."""

import sys

from fedsuite.cli.main import main

sys.exit(main())
