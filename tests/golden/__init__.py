"""Outputs that earlier code wrote: a change of the code must change nothing for those who have such outputs.

`data/` holds twelve tiny jobs. Each has its source and what must come of it (`expected.json`). Seven have a whole
output (`complete.zip`), nine have an output that a run left half done (`half.zip`). They stand for all outputs of users
and are never made again: where `test_golden_datasets.py` fails, change the code, not the data. `make.py` made `data/`
from `datasets.py`. `old_code.py` lets older code finish what this code began.
"""
