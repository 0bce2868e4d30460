"""Whole models on the builder: Qwen3 (dense) and Llama 3, from a Hugging Face model or config.

```python
model = dt.models.from_hf(hf_model, mesh=dt.Mesh(tp=2), ctx=128)
model.logits(ids)  # [batch, seq, vocab]
model.generate(ids, max_new_tokens=32)  # greedy: [batch, seq + 32]
```
"""

from ditron.models.config import Config, read_config
from ditron.models.decoder import Shape, decoder
from ditron.models.model import Model, from_hf
from ditron.models.weights import random_checkpoint

__all__ = ["Config", "Model", "Shape", "decoder", "from_hf", "random_checkpoint", "read_config"]
