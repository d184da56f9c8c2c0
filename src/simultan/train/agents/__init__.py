"""Agents that are trained by reinforcement over a frozen offline model."""
