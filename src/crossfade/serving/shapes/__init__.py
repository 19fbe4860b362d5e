"""The shapes of others' requests and answers, one file each."""
