"""An upgrade carried out on a live store: start, forward, backfill, verify, finish, or rollback."""

from crossfade.migration.backfill import Filled
from crossfade.migration.forward import Lifted
from crossfade.migration.live_quality import Queries
from crossfade.migration.migration import Migration
from crossfade.migration.start import Outlook
from crossfade.migration.status import Status
from crossfade.migration.verify import Verified

__all__ = [
    "Filled",
    "Lifted",
    "Migration",
    "Outlook",
    "Queries",
    "Status",
    "Verified",
]
