"""One file per neighbour: everything that touches the outside."""
