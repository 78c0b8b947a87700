"""The join of orders and customers: its stream, its jobs, and a customer with many orders."""
