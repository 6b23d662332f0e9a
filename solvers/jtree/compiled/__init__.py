"""Compiled code of the searches. Entered only from `solvers.join_tree`."""
