"""Compiled code of the searches, entered through them alone. Who changes a piece finds it here, and its plain twin beside it:

| file | what | defined, plain, in |
|---|---|---|
| sets | connected sets, listed and found | model/connected |
| tables | their figures | model/graph |
| cost | what one join costs above what every plan pays | model/cost, model/operations |
| orders | the best probe orders, and the cost with them | model/probe_order |
| staircase | points that no other beats | model/staircase |
| binary_tree, linearised | the best binary tree, and the best over an order of the streams | bjtree |
| bounds, blocks, staircases, questions | the exact search, and what it is asked | tests/solvers/reference |
| seeds | plans that it starts from | state_removal, state_selection |
| kept, families, cheapest | the best plan without a cap on memory, by rising cost | tests/solvers/compiled/test_cheapest |
| stars | the best plan of a star, over few sets of its leaves | tests/solvers/compiled/test_stars |
| cached | what partial results count for at least where caches may answer for them | caches/figures |
| paying | whether any cache could pay in a join | caches/join_choice |
| unions, ledger, regions | joins of a handful of blocks, for graphs too large for a table | tests/solvers/reference |

Every compiled function has a test named after it in tests/solvers/compiled, and its plain Python under `py_func`.
Two habits are for speed. A field of a tuple is read into a local before a loop: numba counts a reference each time it is read. Arrays that
travel together travel as a NamedTuple, but not into functions that are called for every partition: each array of a tuple is counted, up and
down, at every call.
"""
