"""A whole upgrade on real text, with models and texts that come with installed packages."""
