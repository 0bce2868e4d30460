"""Both ends of a language model over a vocabulary that no rank has as a whole.

Look at: `--emit task`. Each rank looks up the ids that it has rows for, and zeros for the others,
which are partial sums; at the other end each finds the likeliest of its own part of the vocabulary,
and only these candidates are gathered.
"""

import ditron as dt


def program(tokens=64, vocab=1024, hidden=256, tp=4, dtype=dt.f32) -> dt.Program:
    part = -(-vocab // tp)
    with dt.Program("vocabulary", dt.Mesh(tp=tp)) as p:
        ids = p.input("ids", (tokens,), dt.i64, dt.Replicate())
        table = p.weight("table", (part * tp, hidden), dtype, dt.Shard(0))
        labels = p.weight("labels", (1, tp, part), dt.i64, dt.Shard(1))
        x = dt.all_reduce(dt.embedding(ids, table), name="rows")
        logits = dt.matmul(x, table, transpose_b=True, name="logits")
        parts = dt.reshape(logits, (tokens, tp, part))
        best = dt.all_gather(dt.amax(parts), dim=1, name="best")
        token = dt.all_gather(dt.argmax(parts, labels), dim=1, name="token")
        p.output("next", dt.argmax(best, token, dim=1))
    return p
