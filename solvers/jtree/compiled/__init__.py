"""Compiled code of the searches. Entered only from `solvers.jtree.solve`."""
