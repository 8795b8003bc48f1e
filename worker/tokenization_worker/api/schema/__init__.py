"""What is generated from the models: CRDs, their OpenAPI schema, and the reference of all fields.

Imports the models. Open `crd` first.
"""
