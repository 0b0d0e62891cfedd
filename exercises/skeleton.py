"""The file with which a reader begins an exercise."""

from exercises.tasks import LESSONS, SITE, TASKS


def skeleton(name, file, program):
    """Return the text of a file that defines the function of an exercise.

    Args:
        name: The exercise.
        file: The name of the file.
        program: The command that checks it.
    """
    task = TASKS[name]
    lesson = LESSONS[name.partition("-")[0]]
    gpu = " --gpu" if task.gpu else ""
    parts = [
        f'"""{name}: write {task.function} ({task.level}, {task.minutes} minutes).\n\n'
        f"The lesson says what it computes: {SITE}getting-started/tutorials/{lesson}.html\n\n"
        f"    {program} {name} {file}{gpu}        # checks it\n"
        f"    {program} {name} --hint 1        # helps\n"
        '"""\n',
    ]
    imports = "import torch\n"
    if task.kernels:
        imports += "import triton\nimport triton.language as tl\n"
    parts.append(imports)
    if task.kernels and not task.gpu:
        parts.append(
            f"\n@triton.jit\ndef {task.name}_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n"
            '    """Compute one block: change arguments and lines as you need them."""\n'
            "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
            "    mask = offsets < n\n"
            "    x = tl.load(x_ptr + offsets, mask=mask)\n"
            "    tl.store(out_ptr + offsets, x, mask=mask)\n"
        )
    parts.append(
        f"\ndef {task.function}:\n"
        f'    """Launch the kernel."""\n'
        f'    raise NotImplementedError("write {task.name}")\n'
    )
    return "\n".join(parts)
