"""The meaning of a job: its spec and status, identity, and what users read about both.

    data.py, resolve.py      the data fields as frozen values; how a manifest becomes them
    job.py                   TokenizationJob; its blocks in source, tokenizer, output, workers, pods; status.py
    checkpoint.py            TokenizationCheckpoint: a run on its way to Pods and back
    model.py, fields.py      rules that Python and the API server check alike; shared value types
    load.py                  YAML in, one error with every mistake out
    keys.py                  runKey, dataKey, planId
    crd.py, reference.py     generated from the models: CustomResourceDefinitions, the reference page

The operator imports this package and nothing else of the worker. It does no I/O but reading a manifest.
"""
