"""One page that shows a migration as it goes, and the server-sent events it follows."""

from crossfade.serving.dashboard.routes import dashboard_routes
from crossfade.serving.dashboard.watch import Watch

__all__ = ["Watch", "dashboard_routes"]
