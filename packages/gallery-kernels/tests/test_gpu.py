"""What only a GPU can show: full sizes, streams, graphs, threads, several devices."""

import pytest

pytestmark = pytest.mark.gpu
