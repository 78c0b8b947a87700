"""The demo: a broker, a changing source, the service with two jobs, results on a screen.

    Shop ─► Feed ─► shop.product ─► items ─► items-changes ─► ages (both jobs of the service)
      │                                        └─► Fold ─► screen, lines
      └─► truth ──────────── compared at the end ──┘

`run` has the steps in order; it stops everything that it starts.
"""
