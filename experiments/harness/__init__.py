"""Runs the experiments of a plan: trained one after another, measured by processes beside it."""
