-- Health of a TokenizationJob for Argo CD: argocd-cm, resource.customizations.health.tokenization.dev_TokenizationJob
local health = { status = "Progressing", message = "not looked at yet" }
local status = obj.status
if status == nil or status.phase == nil then
  return health
end
health.message = (status.reason or status.phase) .. ": " .. (status.message or "")
if status.observedGeneration ~= nil and status.observedGeneration < obj.metadata.generation then
  health.message = "a change is not looked at yet"
elseif status.phase == "Succeeded" then
  health.status = "Healthy"
elseif status.phase == "Failed" then
  health.status = "Degraded"
elseif status.phase == "Suspended" then
  health.status = "Suspended"
end
return health
