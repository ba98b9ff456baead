"""What counts as a word, and what looks like code: shared by the counts that tell language from noise."""

import re

__all__ = ["CODE", "WORD"]

WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
CODE = re.compile(
    r"```|^\s*(def |class |import |from \w+ import|for .*[:{]$|if .*[:{]$|return\b|print\(|#include)"
    r"|^\s*(function |const |let |var |SELECT )"
    r"|[{};]\s*$|^\s*[\[{<]",
    re.M,
)
