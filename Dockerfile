# semel in a container: docs/docker.md says how to build and run it.

# ---- the wheels: semel's own, and what it needs at the versions that are tested ----
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml requirements-dev.lock README.md LICENSE ./
COPY policies/ policies/
COPY proxy/ proxy/
COPY semel/ semel/
RUN pip wheel --no-cache-dir --disable-pip-version-check --wheel-dir /wheels --constraint requirements-dev.lock '.[postgres,redis,otel]'

# ---- what runs: no sources, no compiler, no root ----
FROM python:3.13-slim
LABEL org.opencontainers.image.title="semel" \
      org.opencontainers.image.description="An HTTP proxy that makes every agent tool call happen at most once" \
      org.opencontainers.image.licenses="Apache-2.0"

# The volume takes owner and mode from what the image has there; the record is for its user alone.
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/semel --no-create-home --shell /usr/sbin/nologin semel \
    && install --directory --owner=semel --group=semel --mode=0700 /var/lib/semel \
    && install --directory --mode=0755 /etc/semel/policies
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --disable-pip-version-check --no-index --find-links /wheels "$(ls /wheels/semel-*.whl)[postgres,redis,otel]"

# For the other commands, so that `docker exec NAME semel calls list` finds the record.
ENV SEMEL_STATE=/var/lib/semel
VOLUME ["/var/lib/semel"]
EXPOSE 8080
# By number: an orchestrator that demands a user other than root cannot look up a name.
USER 10001:10001

# Not urllib: it would ask a proxy if HTTP_PROXY is set.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8080, timeout=2); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]

# The exec form: SIGTERM reaches semel itself, which then lets calls finish.
ENTRYPOINT ["semel"]
CMD ["serve", "--first-token", "--listen", "0.0.0.0:8080", "--state-dir", "/var/lib/semel", "--policies", "/etc/semel/policies"]
