{{- define "tokenization.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end }}

{{- define "tokenization.account" -}}
{{- .Values.operator.serviceAccount.name | default (include "tokenization.name" .) -}}
{{- end }}

{{- define "tokenization.selector" -}}
app.kubernetes.io/name: tokenization-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tokenization.labels" -}}
{{ include "tokenization.selector" . }}
{{ include "tokenization.release" . }}
{{- end }}

{{- /* Of what nothing may select as the operator's Pods. */ -}}
{{- define "tokenization.release" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* (dict "image" .Values.x.image "root" .) */ -}}
{{- define "tokenization.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "tokenization.operatorRules" -}}
- apiGroups: [tokenization.dev]
  resources: [tokenizationjobs]
  verbs: [get, list, watch, delete]            # delete: ttlSecondsAfterFinished
- apiGroups: [tokenization.dev]
  resources: [tokenizationjobs/status]
  verbs: [patch]
- apiGroups: [tokenization.dev]
  resources: [tokenizationcheckpoints]
  verbs: [get, list, watch, create, patch]     # never their status: that is the Pods'
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
{{- end }}

{{- define "tokenization.workerRules" -}}
- apiGroups: [tokenization.dev]
  resources: [tokenizationcheckpoints]
  verbs: [get]
- apiGroups: [tokenization.dev]
  resources: [tokenizationcheckpoints/status]
  verbs: [patch]
{{- end }}
