"""Whether a server really decodes: asks it for a few tokens and looks at their probabilities.

`python3 health.py PORT [--wait SECONDS]` exits 0 when tokens came whose log-probabilities are all finite numbers,
else 1 with the reason. /health alone passes on a server whose every logit is NaN. Standard library only, Python 3.8+.
"""

import json
import math
import sys
import time
import urllib.error
import urllib.request

__all__ = ["check", "main"]

REQUEST_S = 60.0
PAUSE_S = 2.0
ASKED = {
    "text": "The capital city of France is",
    "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True},
    "return_logprob": True,
}


def check(port: int) -> "str | None":
    """The reason why the server on this port does not decode, or None."""
    request = urllib.request.Request(
        "http://127.0.0.1:%d/generate" % port, json.dumps(ASKED).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            reply = json.loads(answer.read())
    except (OSError, ValueError) as e:
        return "no answer: %s" % e
    if not isinstance(reply, dict) or not isinstance(reply.get("meta_info"), dict):
        return "the answer has another form than /generate gives"
    chosen = [entry[0] for entry in reply["meta_info"].get("output_token_logprobs") or []]
    if not chosen:
        return "no tokens came"
    bad = [p for p in chosen if not isinstance(p, (int, float)) or not math.isfinite(p)]
    if bad:
        return "%d of %d log-probabilities are no finite numbers" % (len(bad), len(chosen))
    if not str(reply.get("text", "")).strip("! \n"):
        return "the text is empty or nothing but '!'"
    return None


def main(words: "list[str]") -> int:
    """Exit code for these command-line words."""
    port, wait_s = int(words[0]), float(words[2]) if words[1:2] == ["--wait"] else 0.0
    ends = time.monotonic() + wait_s
    while True:
        why = check(port)
        if why is None:
            print("decodes")
            return 0
        if time.monotonic() >= ends:
            print(why, file=sys.stderr)
            return 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
