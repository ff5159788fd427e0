"""Speed as ratios: every figure is measured against a bare server in the same run, on the same cores."""
