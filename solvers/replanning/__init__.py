"""What `solvers.replan` is made of: what is off, ways to run a query, the smallest change, what it costs, and the reasons."""
