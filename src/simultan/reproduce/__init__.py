"""An experiment from its plan: every run trained, chosen on validation, measured and recorded."""
