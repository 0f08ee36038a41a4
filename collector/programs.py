"""Programs that are started beside a sidecar and taken along when their block ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from collector.children import child_environment, prepare_child


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    log: Path | None = None,
    fds: tuple[int, ...] = (),
    patience: float = 5.0,
    environment: Mapping[str, str] = os.environ,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program in a process group of its own until the block ends: SIGTERM, and after `patience` seconds SIGKILL.

    It inherits `fds`; what it says goes to `log`, or where ours goes.
    """
    with log.open("wb") if log is not None else contextlib.nullcontext() as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            pass_fds=fds,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=child_environment(environment),
            process_group=0,
            preexec_fn=prepare_child,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(patience):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
