"""Searches for queries with tables: which access each table uses is chosen together with the tree and its probe orders.

Only queries that have tables come here; the compiled searches next door know streams alone.
"""
