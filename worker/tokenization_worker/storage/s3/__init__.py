"""S3 and stores that speak its protocol, read only. Imports `storage`, `errors`, `messages`. Open `source` first."""
