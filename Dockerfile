# Two images of one source: `docker build --target operator .` and `docker build --target worker .`
# EXTRAS of the worker: parquet, hf, s3, sentencepiece.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS source
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/tokenization
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY operator operator
COPY worker worker

FROM source AS operator-build
RUN /opt/tokenization/bin/pip install --constraint constraints.txt '.[operator]'

FROM source AS worker-build
ARG EXTRAS=parquet
COPY scripts/fetch_ranks.py scripts/
RUN /opt/tokenization/bin/pip install --constraint constraints.txt ".[kube,ray,${EXTRAS}]" \
    && /opt/tokenization/bin/python scripts/fetch_ranks.py

FROM ${PYTHON_IMAGE} AS base
# A passwd entry: Kopf and Ray ask who they are. KubeRay's probes call wget.
RUN useradd --uid 1000 --user-group --home-dir /tmp --no-create-home --shell /usr/sbin/nologin tokenization
ENV PATH=/opt/tokenization/bin:$PATH PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp

FROM base AS operator
LABEL org.opencontainers.image.title="tokenization-operator" \
      org.opencontainers.image.description="Reconciles TokenizationJobs" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=operator-build /opt/tokenization /opt/tokenization
ENTRYPOINT ["tokenization-operator"]

FROM base AS worker
LABEL org.opencontainers.image.title="tokenization-worker" \
      org.opencontainers.image.description="Plans, drives and runs TokenizationJobs on Ray" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
USER 1000:1000
COPY --from=worker-build /opt/tokenization /opt/tokenization
CMD ["tokjob", "--help"]
