"""The one vLLM operator that SGLang's CPU path imports (rotary embedding), in plain torch.

Source: sglang 0.5.23, srt/layers/rotary_embedding: without a GPU and without the CPU build of sgl-kernel it calls
`vllm._custom_ops.rotary_embedding`, which rotates query and key in place.
"""

import torch

__all__ = ["rotary_embedding"]


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """Rotate `query` and `key` ([tokens, heads * head_size]) in place; a row of the cache is cos followed by sin."""
    cos, sin = cos_sin_cache[positions.flatten()].chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    rotated = 2 * cos.shape[-1]
    for rows in (query, key):
        if rows is None:
            continue
        heads = rows.view(rows.shape[0], -1, head_size)[..., :rotated]
        if is_neox:
            left, right = heads.chunk(2, dim=-1)
        else:
            left, right = heads[..., ::2], heads[..., 1::2]
        turned_left, turned_right = left * cos - right * sin, right * cos + left * sin
        left.copy_(turned_left)
        right.copy_(turned_right)
