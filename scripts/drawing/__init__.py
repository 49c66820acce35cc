"""Figures of what models have learned about positions, and what all figures share."""
