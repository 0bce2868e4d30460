"""A decode step of Qwen3: one token of each sequence through all layers, against a cache.

Look at: `ditron compile examples/20_qwen3_decode.py --emit task`: heads, columns of the MLP and the
vocabulary are cut over the ranks, the cache is a state that each step writes to in place, and the
next token is the best of the ranks' own. `ditron generate FOLDER --ids 1,2,3` runs a model with its
weights.
"""

import ditron as dt


def program(layers=2, hidden=64, heads=4, kv_heads=2, inner=96, vocab=128, ctx=32, batch=1, tp=2):
    config = {
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "tie_word_embeddings": True,
    }
    step = dt.models.Shape(batch=batch, tokens=1, ctx=ctx, dtype=dt.bf16)
    config = dt.models.read_config(config)
    return dt.models.decoder(config, dt.Mesh(tp=tp), step, outputs=["next", "logits"])
