"""What things cost: the join graph, trees, the cost model, probe orders, sensitivity. Knows no search."""
