"""The query side as a service: an HTTP gateway that existing clients use by changing a base URL."""

from crossfade.serving.limits import Limits
from crossfade.serving.server import Server, serve

__all__ = ["Limits", "Server", "serve"]
