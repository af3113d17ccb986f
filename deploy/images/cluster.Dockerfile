# The whole of Hothouse: Ray nodes, `hothouse up`, and MLflow's server. Built from the repository's root:
#   docker build -f deploy/images/cluster.Dockerfile -t hothouse-cluster .
# ACCELERATOR=cuda takes torch from the usual index, with the CUDA libraries; cpu takes the smaller CPU wheel.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base
ENV PATH=/opt/hothouse/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1

# Wheels of your own, and what `make hashes` writes; other build contexts of these names take their place.
FROM scratch AS wheels
COPY deploy/images/no-wheels /
FROM scratch AS hashes
COPY deploy/images/no-hashes /

# What of pyproject.toml says which packages are needed: a change of a tool's settings must not install them again.
FROM base AS manifest
WORKDIR /build
COPY pyproject.toml requirements.lock ./
RUN sed -i '/^\[tool\.ruff\]/,$d' pyproject.toml

# Dependencies alone: this layer is made again when they change, not when the code does.
FROM base AS dependencies
ARG ACCELERATOR=cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/hothouse
# LightGBM needs the system's OpenMP, which slim images do not have. Where no mirror can be reached, it takes torch's.
RUN { apt-get update -qq && apt-get install -y -qq --no-install-recommends libgomp1; } || \
        echo "WARNING: no libgomp1; growing trees takes 460 MB more" >&2; \
    rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY --from=manifest /build ./
# The packages are empty here: only what pyproject.toml says of them counts. PyPI has no CPU build of torch, which is
# why that comes first and from elsewhere; where its index cannot be reached, the CUDA build serves as well, but is large.
# With hashes, only files that have one of them are installed, and nothing is built from source; they say which torch it is.
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=hashes,target=/hashes \
    --mount=type=cache,target=/root/.cache/pip \
    mkdir edge models services && touch edge/__init__.py models/__init__.py services/__init__.py README.md LICENSE; \
    if [ -f /hashes/.gitkeep ]; then \
        if [ "${ACCELERATOR}" = cpu ]; then \
            pip install --retries 1 --timeout 30 --index-url "${TORCH_INDEX}" --constraint requirements.lock torch || \
                echo "WARNING: no CPU build of torch from ${TORCH_INDEX}; taking the CUDA build, 4 GB larger" >&2; \
        fi; \
        pip install --find-links /wheels --constraint requirements.lock '.[cluster,traces]' \
        && pip uninstall --yes --quiet hothouse; \
    else \
        pip install --find-links /wheels --only-binary :all: --require-hashes -r /hashes/cluster.txt \
            $(grep -q '^torch==.*+cpu' /hashes/cluster.txt && echo --extra-index-url "${TORCH_INDEX}"); \
    fi \
    && find /opt/hothouse -name tests -path '*site-packages*' -type d -prune -exec rm -rf {} +

FROM base AS package
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY edge edge
COPY models models
COPY services services
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=hashes,target=/hashes \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/build; \
    if [ -f /hashes/.gitkeep ]; then \
        /opt/build/bin/pip wheel --find-links /wheels --no-deps --wheel-dir /build/dist .; \
    else \
        /opt/build/bin/pip install --find-links /wheels --only-binary :all: --require-hashes -r /hashes/build.txt \
        && /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /build/dist .; \
    fi

FROM dependencies
ARG VERSION=unreleased
ARG UID=10001
LABEL org.opencontainers.image.title="hothouse-cluster" \
      org.opencontainers.image.description="Hothouse: Ray nodes, the service and MLflow" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN --mount=type=bind,from=package,source=/build/dist,target=/dist \
    pip install --no-cache-dir --no-deps --no-index /dist/*.whl \
    && useradd --uid "${UID}" --user-group --no-create-home --home-dir /tmp hothouse \
    && install -d -o hothouse -g hothouse -m 0750 /var/lib/hothouse /var/lib/mlflow
COPY --chmod=0755 deploy/images/ray-node.sh deploy/images/up.sh deploy/images/api-healthy.sh deploy/images/front.sh /usr/local/bin/
# Libraries that keep a cache keep it in the only place that a container with a read-only root can write.
ENV HOME=/tmp \
    MPLCONFIGDIR=/tmp/matplotlib \
    NUMBA_CACHE_DIR=/tmp/numba \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_task_oom_retries=2 \
    MLFLOW_DISABLE_TELEMETRY=true \
    ARROW_DEFAULT_MEMORY_POOL=system \
    MALLOC_ARENA_MAX=2 \
    _RJEM_MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0 \
    HOTHOUSE_DATA_DIR=/var/lib/hothouse
USER hothouse
WORKDIR /var/lib/hothouse
VOLUME ["/var/lib/hothouse", "/var/lib/mlflow"]
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=5s --start-period=120s --retries=6 CMD ["api-healthy.sh"]
CMD ["up.sh"]
