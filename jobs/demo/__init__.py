"""The demo: a broker, two changing tables, the service with two jobs, results on a screen.

    Shop ─┬─► Feed ─► shop.product ─┬─► items ─► items-changes ─► Fold ─► screen, lines
      │   └─► Feed ─► shop.storage ─┴─► warehouses                 │
      └─► truth, and the join of both tables ─ compared at the end ┘

`run` has the steps in order; it stops everything that it starts.
"""
