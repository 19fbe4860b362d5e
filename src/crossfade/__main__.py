"""`python -m crossfade` is `crossfade`."""

from crossfade.cli import main

main()
