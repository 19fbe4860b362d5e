"""A newcomer's first minute, with nothing downloaded: `texts` upgrades a table of real texts while
it is searched; `digits` shows what each kind of backward map does to a space."""
