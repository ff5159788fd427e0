"""nginx as the yardstick for replays: `proxy_cache` keyed on the body, one worker, on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIGURATION = """{user}
worker_processes 1;
daemon off;
pid {work}/nginx.pid;
error_log {work}/nginx.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {work}/nginx-body;
  proxy_temp_path {work}/nginx-proxy;
  fastcgi_temp_path {work}/nginx-fastcgi;
  uwsgi_temp_path {work}/nginx-uwsgi;
  scgi_temp_path {work}/nginx-scgi;
  proxy_cache_path {work}/nginx-cache levels=1:2 keys_zone=bench:16m;
  keepalive_requests 1000000;
  upstream origin {{ server 127.0.0.1:{origin}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_cache bench;
      proxy_cache_methods POST;
      proxy_cache_key "$request_method$request_uri$request_body";
      proxy_cache_valid 200 1h;
      proxy_cache_lock on;
    }}
  }}
}}
"""
START = 10.0  # seconds until it must answer


def find() -> str | None:
    """Debian puts it where only root's PATH looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def version(program: str) -> str:
    told = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr
    return told.strip().rpartition("/")[2]


@contextmanager
def serving(program: str, origin: int, core: int, work: Path) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    # Started by root, nginx gives its worker to somebody who may not enter our directory.
    user = "user root;" if os.geteuid() == 0 else ""
    file = work / "nginx.conf"
    file.write_text(CONFIGURATION.format(user=user, work=work, origin=origin, port=port))
    process = subprocess.Popen(
        [program, "-c", str(file), "-e", str(work / "nginx.log")],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + START
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > until:
                    log = work / "nginx.log"
                    words = log.read_text() if log.exists() else str(error)
                    raise RuntimeError(f"nginx did not start: {words}") from None
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(30)
