"""The part of SGLang's package layout that others import from."""
