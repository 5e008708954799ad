"""A node that lies about its rows; Python imports this module at its start from its path.

Flower sends the app's code to the nodes, so a hostile node is one that changes what it sends.
"""

from __future__ import annotations

import json
from typing import Any

from flwr.clientapp import ClientApp

NAME = "[bold red]\udcff\x1b[31m\u202e[/]"  # markup, half a character, a colour, a bidi override
CLASSES = [NAME, *map(str, range(99_999))]
honest_call = ClientApp.__call__


def lying_call(*args: Any, **named: Any) -> Any:
    """Answer as the app does, but claim 100,000 classes."""
    reply = honest_call(*args, **named)
    if reply.has_content() and "node" in reply.content.config_records:
        answer = reply.content.config_records["node"]
        if "description" in answer:
            claim = json.loads(str(answer["description"])) | {"classes": CLASSES}
            answer["description"] = json.dumps(claim)
    return reply


setattr(ClientApp, "__call__", lying_call)  # noqa: B010
