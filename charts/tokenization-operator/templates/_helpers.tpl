{{- define "tokenization.name" -}}
{{- if not (hasKey .Values "jobPods") }}
{{- fail "values of this version of the chart are missing, as after --reuse-values: upgrade with --reset-then-reuse-values (Helm 3.14 or newer), or with -f VALUES" }}
{{- end }}
{{- .Values.nameOverride | default .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end }}

{{- define "tokenization.account" -}}
{{- .Values.operator.serviceAccount.name | default (include "tokenization.name" .) -}}
{{- end }}

{{- define "tokenization.selector" -}}
app.kubernetes.io/name: tokenization-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "tokenization.labels" -}}
{{ include "tokenization.labelsAnd" (list . dict) }}
{{- end }}

{{- /* (list . LABELS): the chart's own labels, then these, then commonLabels; of two with one key the first one. */ -}}
{{- define "tokenization.labelsAnd" -}}
{{- $root := first . }}
{{- $own := dict
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)
}}
{{- $selector := include "tokenization.selector" $root | fromYaml }}
{{- merge dict $selector $own (last . | default dict) ($root.Values.commonLabels | default dict) | toYaml }}
{{- end }}

{{- /* (list . "operator"): the image of .Values.operator */ -}}
{{- define "tokenization.image" -}}
{{- $root := first . }}
{{- $of := last . }}
{{- $image := (index $root.Values $of).image }}
{{- if not $image.repository }}
{{- fail (printf "%s.image.repository is not set: --set %s.image.repository=REGISTRY/tokenization-%s (docs/images.md says how to build the image)" $of $of $of) }}
{{- end }}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
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
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create]                         # of heads; RayJobs own them
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
