"""How the maps are learned: `closed_form`, `fast` (the default) and `paper`."""
