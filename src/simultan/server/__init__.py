"""Live translation for many: the wire protocol, the batcher, the web app and its page."""
