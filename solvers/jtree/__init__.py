"""Searches for a join tree, one a file; `registry` says what each can do. Knows no caches and no allocation."""
