"""What a job may say about its Pods: the template, its extras, resources and volumes.

Imports `api.types`. Open `template` first.
"""
