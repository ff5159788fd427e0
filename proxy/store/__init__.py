"""Where calls are kept. One seam (base.py), one contract test over every store."""
