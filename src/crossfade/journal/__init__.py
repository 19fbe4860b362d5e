"""What a migration has written down in its store, and the table of its transitions."""

from crossfade.journal.journal import Journal, load_journal, need_journal, save_journal
from crossfade.journal.opening import open_migrating

__all__ = ["Journal", "load_journal", "need_journal", "open_migrating", "save_journal"]
