"""Which caches to keep: one method a file (paper 1)."""
