"""Compiled code of the searches, entered through them alone. Who changes a piece finds it here, and its plain twin beside it:

| file | what | defined, plain, in |
|---|---|---|
| sets | connected sets, listed and found | model/connected |
| tables | their figures | model/graph |
| cost | what one join costs above what every plan pays | model/cost, model/operations |
| orders | the best probe orders, and the cost with them | model/probe_order |
| staircase | points that no other beats | model/staircase |
| binary_tree, linearised | the best binary tree, and the best over an order of the streams | bjtree |
| staircases, questions | the exact search, and what it is asked | tests/solvers/reference |
| bounds, blocks, partitions | its joins of three inputs or more, one by one | tests/solvers/compiled/test_partitions |
| climbing, choices | the staircase of one set, and the points of a join's inputs | tests/solvers/compiled/test_choices |
| seeds | plans that it starts from | state_removal, state_selection |
| kept, families, cheapest | the best plan without a cap on memory, by rising cost | tests/solvers/compiled/test_cheapest |
| stars | the best plan of a star, over few sets of its leaves | tests/solvers/compiled/test_stars |
| cached | what partial results count for at least where caches may answer for them | caches/figures |
| paying | whether any cache could pay in a join | caches/join_choice |
| unions, ledger, regions | joins of a handful of blocks, for graphs too large for a table | tests/solvers/reference |

Every compiled function has a test named after it in tests/solvers/compiled, and its plain Python under `py_func`.
Arrays that travel together travel as a NamedTuple. Two things make that as fast as one long function: who makes no arrays counts no references
(`compiled`, `released`), and what runs for every partition or branching is put in the place of its calls (`inlined`). A `making` function reads a
field of a tuple into a local before a loop: there a reference is counted each time it is read.
"""
