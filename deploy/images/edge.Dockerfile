# What runs at a site: the gateway and the simulated greenhouse. No Ray, no torch. Built from the repository's root:
#   docker build -f deploy/images/edge.Dockerfile -t hothouse-edge .
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
RUN python3 -m venv /opt/hothouse
WORKDIR /build
COPY --from=manifest /build ./
# The packages are empty here: only what pyproject.toml says of them counts. With hashes, only files that have one
# of them are installed, and nothing is built from source.
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=hashes,target=/hashes \
    --mount=type=cache,target=/root/.cache/pip \
    mkdir edge models services && touch edge/__init__.py models/__init__.py services/__init__.py README.md LICENSE; \
    if [ -f /hashes/.gitkeep ]; then \
        pip install --find-links /wheels --constraint requirements.lock '.[kafka]' \
        && pip uninstall --yes --quiet hothouse; \
    else \
        pip install --find-links /wheels --only-binary :all: --require-hashes -r /hashes/edge.txt; \
    fi \
    && find /opt/hothouse -name tests -path '*site-packages*' -type d -prune -exec rm -rf {} +

FROM dependencies AS package
COPY pyproject.toml README.md LICENSE ./
COPY edge edge
COPY models models
COPY services services
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=hashes,target=/hashes \
    --mount=type=cache,target=/root/.cache/pip \
    if [ -f /hashes/.gitkeep ]; then \
        pip wheel --find-links /wheels --no-deps --wheel-dir /build/dist .; \
    else \
        pip install --find-links /wheels --only-binary :all: --require-hashes -r /hashes/build.txt \
        && pip wheel --no-build-isolation --no-deps --wheel-dir /build/dist .; \
    fi

FROM base
ARG VERSION=unreleased
ARG UID=10001
LABEL org.opencontainers.image.title="hothouse-edge" \
      org.opencontainers.image.description="Hothouse at a site: the gateway and the simulated greenhouse" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=dependencies /opt/hothouse /opt/hothouse
RUN --mount=type=bind,from=package,source=/build/dist,target=/dist \
    pip install --no-cache-dir --no-deps --no-index /dist/*.whl \
    && useradd --uid "${UID}" --user-group --no-create-home --home-dir /tmp hothouse \
    && install -d -o hothouse -g hothouse -m 0750 /var/lib/hothouse
COPY --chmod=0755 deploy/gateway-entrypoint.sh deploy/images/simulator.sh deploy/images/gateway-healthy.sh deploy/images/simulator-healthy.sh /usr/local/bin/
ENV HOME=/tmp
USER hothouse
WORKDIR /var/lib/hothouse
VOLUME /var/lib/hothouse
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=6 CMD ["gateway-healthy.sh"]
CMD ["gateway-entrypoint.sh"]
