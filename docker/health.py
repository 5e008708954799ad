"""Ask this container's Flower process whether it is well; HEALTH_URL says where it answers."""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request


def main() -> int:
    """Return 0 if the process answers, else say why not."""
    url = os.environ.get("HEALTH_URL", "http://127.0.0.1:8000/health")
    authority = os.environ.get("HEALTH_CA")
    trust = ssl.create_default_context(cafile=authority) if authority else None
    try:
        with urllib.request.urlopen(url, timeout=4, context=trust) as reply:
            return 0 if reply.status == 200 else 1
    except OSError as error:
        print(f"{url} does not answer: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
