"""What Flower loads as the ClientApp: it imports the actual one with the first message.

So Flower's simulation starts Ray while the ServerApp's thread imports PyTorch, not afterwards.
"""

from __future__ import annotations

from functools import cache

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedsuite.core.imports import quick_imports


class ClientAppOnDemand(ClientApp):
    """Passes messages to :data:`fedsuite.client_app.app`."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        return _imported()(message, context)


@cache
def _imported() -> ClientApp:
    """Import the actual ClientApp, and PyTorch with it."""
    with quick_imports():
        from fedsuite.client_app import app as actual
    return actual


app = ClientAppOnDemand()
