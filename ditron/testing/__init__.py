"""Help for testing programs on many ranks: broken plans, and runs in any order.

```python
import ditron as dt
from ditron import testing

with dt.compile(program) as exe:
    for run in testing.interleavings(exe, inputs, seeds=range(100)):
        assert run.finished and torch.equal(run.outputs[-1]["y"], expected)
    for mutant in testing.mutants(exe.plan):
        print(mutant.what, testing.verdict(exe, mutant.plan))
```
"""

from ditron.testing.interleavings import Run, Tensors, interleavings
from ditron.testing.mutants import Mutant, mutants
from ditron.testing.verdicts import verdict

__all__ = ["Mutant", "Run", "Tensors", "interleavings", "mutants", "verdict"]
