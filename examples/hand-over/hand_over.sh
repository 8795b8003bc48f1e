#!/bin/sh
# Waits for the dataset of a TokenizationJob, and writes what a training job needs into the ConfigMap JOB-dataset. Then
# it resumes TRAINING, a suspended object such as trainjob/train. If the TokenizationJob failed, the script prints its
# reason and ends with 1.
#
#   hand_over.sh JOB [NAMESPACE [TRAINING]]        needs kubectl 1.31 or newer
set -eu
job=$1
namespace=${2:-default}
training=${3:-}

kubectl -n "$namespace" wait "tkj/$job" --for=jsonpath='{.status.completionTime}' --timeout=24h
if ! kubectl -n "$namespace" wait "tkj/$job" --for=condition=Complete --timeout=10s; then
  kubectl -n "$namespace" get "tkj/$job" -o jsonpath='{.status.reason}: {.status.message}{"\n"}' >&2
  exit 1
fi

# One read, so that all values are of one run.
kubectl -n "$namespace" get "tkj/$job" -o jsonpath='DATASET_URI={.status.output.uri}
DATASET_DIGEST={.status.output.digest}
DATASET_TOKENS={.status.output.tokens}
TOKENIZER_FINGERPRINT={.status.output.fingerprint}
' | kubectl -n "$namespace" create configmap "$job-dataset" --from-env-file=/dev/stdin --dry-run=client -o yaml |
  kubectl -n "$namespace" apply -f -
if [ -n "$training" ]; then
  kubectl -n "$namespace" patch "$training" --type=merge --patch='{"spec": {"suspend": false}}'
fi
