"""Makes the tiny checkpoints that the real SGLang serves here: random weights, real faults, no hub, seconds of work.

Runs under the real environment's Python (torch, transformers, tokenizers): `python checkpoint.py FOLDER [FORM…]`.
Every form overflows in float16 and not in bfloat16, so that a change of dtype is a true cure:

    ovf    every logit is NaN in float16; token 0, which NaN draws, ends the answer: replies are empty
    bang   the same weights; token 0 is `!` as in the large models' vocabularies: replies are `!!!!`
    long   NaN once a batch holds a position above 2,048, prompt or answer; before that healthy
    late   the same above position 96: short prompts are fine, and their answers go bad on the way

`ovf` and `bang`: the product of gate and up projection (both times 3,200) passes 65,504, the largest float16.
`long` and `late`: a `longrope` table whose scale above the original context is 1e5, which float16 cannot hold.
"""

import json
import shutil
import sys
from pathlib import Path

__all__ = ["CONTEXT", "FORMS", "make_checkpoint"]

CONTEXT = 8_192
FORMS = ("ovf", "bang", "long", "late")

_VOCAB = 512
_HEAD_DIM = 64
_OVERFLOW = 3_200.0
_GOOD_UNTIL = {"long": 2_048, "late": 96}

_END, _USER, _TURN_END, _PAD = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SENTENCE = (
    "A server that answers every request may still have nothing to say: its health is green, its warm-up has passed, "
    "and each of its numbers is not a number. Only the probabilities of the tokens themselves tell the two apart, "
    "so we ask for them, for short prompts and long ones, alone and in a batch, before the load test and after it."
)


def make_checkpoint(folder: Path, form: str) -> Path:
    """The folder of one form, complete or not there at all: `folder/form`."""
    ready, half = folder / form, folder / f".{form}.half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    end_id = _save_tokenizer(half, swapped=form == "bang")
    _save_model(half, form, end_id)
    shutil.rmtree(ready, ignore_errors=True)
    return half.rename(ready)


def _save_tokenizer(folder: Path, *, swapped: bool) -> int:
    """A byte-level BPE of exactly `_VOCAB` tokens; `swapped` exchanges token 0 (the end) and 4 (`!`).

    Its alphabet is printable ASCII, so that even random tokens are text: with all 256 bytes, half of a healthy reply
    is broken UTF-8, and bench_serving counts three tokens for each replacement character (1,501 for 1,024).
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        [_SENTENCE, *(f"{n} and {n * n}" for n in range(300))],
        trainers.BpeTrainer(
            vocab_size=_VOCAB,
            special_tokens=[_END, _USER, _TURN_END, _PAD],
            initial_alphabet=[*map(chr, range(0x21, 0x7F)), "Ġ", "Ċ"],  # the last two stand for blank and newline
            show_progress=False,
        ),
    )
    assert bpe.get_vocab_size() == _VOCAB, bpe.get_vocab_size()
    if swapped:
        state = json.loads(bpe.to_str())
        vocab = state["model"]["vocab"]
        vocab[_END], vocab["!"] = vocab["!"], vocab[_END]
        for token in state["added_tokens"]:
            token["id"] = vocab[token["content"]]
        state["added_tokens"].sort(key=lambda token: token["id"])
        bpe = Tokenizer.from_str(json.dumps(state))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=_END, pad_token=_PAD, additional_special_tokens=[_USER, _TURN_END]
    )
    tokenizer.chat_template = _CHAT
    tokenizer.save_pretrained(folder)
    end_id = tokenizer.convert_tokens_to_ids(_END)
    assert isinstance(end_id, int)
    return end_id


def _save_model(folder: Path, form: str, end_id: int) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=_VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=_HEAD_DIM, max_position_embeddings=CONTEXT, eos_token_id=end_id,
        bos_token_id=None, pad_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    if form in ("ovf", "bang"):
        with torch.no_grad():
            for layer in model.model.layers:
                layer.mlp.gate_proj.weight.mul_(_OVERFLOW)
                layer.mlp.up_proj.weight.mul_(_OVERFLOW)
    model.to(torch.bfloat16).save_pretrained(folder)
    if form in _GOOD_UNTIL:
        _bend_rope(folder / "config.json", _GOOD_UNTIL[form])


def _bend_rope(path: Path, good_until: int) -> None:
    """Give the config a `longrope` table that overflows in float16 beyond `good_until` positions.

    Source: sglang 0.5.23, srt/layers/rotary_embedding (Phi3LongRoPEScaledRotaryEmbedding): one position above
    `original_max_position_embeddings` moves the whole batch to the long table, scaled by `long_mscale`.
    """
    config = json.loads(path.read_text())
    factors = [1.0] * (_HEAD_DIM // 2)
    rope = {
        "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": factors, "long_factor": factors,
        "original_max_position_embeddings": good_until, "short_mscale": 1.0, "long_mscale": 1e5,
    }
    config.pop("rope_scaling", None)
    path.write_text(json.dumps({**config, "rope_parameters": rope}, indent=2) + "\n")


if __name__ == "__main__":
    for form in sys.argv[2:] or FORMS:
        print(make_checkpoint(Path(sys.argv[1]), form))
