"""The command line `sharpwave`: parses, calls a flow or a function of the layers below, and prints."""
