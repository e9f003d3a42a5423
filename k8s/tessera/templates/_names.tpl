{{/* Names and labels. Pods carry no version: a new chart version alone must not start a new cluster. */}}

{{- define "tessera.selectorLabels" -}}
app.kubernetes.io/name: tessera
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tessera.labels" -}}
{{ include "tessera.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tessera.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "tessera.cacheClaim" -}}
{{ .Values.modelCache.existingClaim | default (printf "%s-models" .Release.Name) }}
{{- end }}

{{/* The Service that KubeRay makes in front of the pods whose proxies answer. */}}
{{- define "tessera.serveService" -}}
{{ .Release.Name }}-serve-svc
{{- end }}

{{/* The groups of worker pods, as a comma-separated list: colocated encoders live in the decoders' pods. */}}
{{- define "tessera.groupNames" -}}
{{ eq .Values.tessera.placement "colocated" | ternary "router,decoder" "router,encoder,decoder" }}
{{- end }}

{{/* "true" where Ray's autoscaler runs: a group may grow, or an upgrade moves capacity in steps. */}}
{{- define "tessera.autoscaling" -}}
{{- $groups := .Values.groups -}}
{{- $on := eq .Values.upgrade.strategy "NewClusterWithIncrementalUpgrade" -}}
{{- range $name := include "tessera.groupNames" . | splitList "," -}}
{{- $group := index $groups $name -}}
{{- if gt (int $group.maxPods) (int $group.pods) }}{{ $on = true }}{{ end -}}
{{- end -}}
{{- if $on }}true{{ end -}}
{{- end }}

{{/* Where the Routers' pods see the Secret with the API keys. */}}
{{- define "tessera.apiKeysFolder" -}}
/etc/tessera/api-keys
{{- end }}
