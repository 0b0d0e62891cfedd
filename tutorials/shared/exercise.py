"""Check your solution of an exercise: is it right, and does it move more than it has to?

    python exercise.py 02-log-softmax mine.py          # in Triton's interpreter: no GPU is needed
    python exercise.py 02-log-softmax mine.py --gpu    # on the GPU, beside our time and PyTorch's
    python exercise.py --watch my_script.py            # watches the kernels of any script
    python exercise.py                                 # lists the exercises

*mine.py* defines the function that the exercise asks for. It is called with awkward shapes, and its
results are compared with PyTorch's. The interpreter watches each address that a kernel uses: it
names accesses out of bounds, races, uninitialized memory and endless loops, by their lines. It also
counts the bytes that your kernels load and store; beside them stands what cannot be avoided.
"""

import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.practice.command import main

if __name__ == "__main__":
    sys.exit(main())
