"""Where newer releases keep their load test."""
