"""What Flower loads as the ClientApp: it imports the actual one with the first message.

So Flower's simulation starts Ray while the ServerApp's thread imports PyTorch, not afterwards.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp


class ClientAppOnDemand(ClientApp):
    """Passes messages to :data:`fedsuite.client_app.app`."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        from fedsuite.client_app import app

        return app(message, context)


app = ClientAppOnDemand()
