{{/* Pods of the Ray cluster. Arguments: root (the chart's scope), component, group (its values). */}}

{{- define "tessera.pod" -}}
{{- $values := .root.Values -}}
{{- $head := eq .component "head" -}}
{{- $apiKeys := and (eq .component "router") $values.apiKeys.secretName -}}
metadata:
  labels:
    {{- include "tessera.selectorLabels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- $annotations := deepCopy .group.podAnnotations }}
  {{- if and $head (ne $values.upgrade.strategy "None") }}
  {{- /* Changed arguments then make a second cluster, in the place of restarting every replica of this one. */}}
  {{- $_ := set $annotations "tessera/arguments" (include "tessera.arguments" .root | sha256sum) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- if not $head }}
  automountServiceAccountToken: false
  # The sleep before the stop, and a minute for Ray to end.
  terminationGracePeriodSeconds: {{ add (int $values.drainSeconds) 60 }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  # `ray` (1000) of the group `users` (100) in Ray's images.
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 100
    fsGroup: 100
    seccompProfile:
      type: RuntimeDefault
  {{- with .group.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .group.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .group.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: ray-{{ .component }}
      image: {{ include "tessera.image" .root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
      ports:
        {{- if $head }}
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
        {{- end }}
        - {name: serve, containerPort: 8000}
        - {name: metrics, containerPort: 8080}
      env:
        {{- include "tessera.env" . | nindent 8 }}
      resources:
        {{- $resources := include "tessera.resources" . }}
        requests:
          {{- $resources | nindent 10 }}
        limits:
          {{- $resources | nindent 10 }}
      {{- if not $head }}
      lifecycle:
        preStop:
          exec:
            # The pod has left the Service by then; streams that run through it have this long to end.
            command: [sleep, {{ $values.drainSeconds | int | quote }}]
      {{- end }}
      volumeMounts:
        - name: shared-memory
          mountPath: /dev/shm
        {{- if $values.modelCache.enabled }}
        - name: models
          mountPath: {{ $values.modelCache.mountPath }}
          {{- if eq $values.modelCache.accessMode "ReadOnlyMany" }}
          readOnly: true
          {{- end }}
        {{- end }}
        {{- if $apiKeys }}
        - name: api-keys
          mountPath: {{ include "tessera.apiKeysFolder" .root }}
          readOnly: true
        {{- end }}
  volumes:
    - name: shared-memory
      emptyDir:
        medium: Memory
        sizeLimit: {{ add (int .group.objectStoreGiB) (int $values.sharedMemoryMarginGiB) }}Gi
    {{- if $values.modelCache.enabled }}
    - name: models
      persistentVolumeClaim:
        claimName: {{ include "tessera.cacheClaim" .root }}
    {{- end }}
    {{- with $apiKeys }}
    - name: api-keys
      secret:
        secretName: {{ . }}
        # 0440: for fsGroup, not for others.
        defaultMode: 288
    {{- end }}
{{- end }}

{{- define "tessera.resources" -}}
cpu: {{ .group.cpus | int }}
memory: {{ .group.memoryGiB | int }}Gi
{{- if .group.gpus }}
{{ .root.Values.gpuResource }}: {{ .group.gpus | int }}
{{- end }}
{{- end }}

{{- define "tessera.env" -}}
{{- $values := .root.Values -}}
- {name: RAY_health_check_period_ms, value: {{ $values.lostNode.healthCheckPeriodMs | int | quote }}}
- {name: RAY_health_check_timeout_ms, value: {{ $values.lostNode.healthCheckTimeoutMs | int | quote }}}
- {name: RAY_health_check_failure_threshold, value: {{ $values.lostNode.healthCheckFailureThreshold | int | quote }}}
- {name: RAY_object_manager_pull_timeout_ms, value: {{ $values.lostNode.objectPullTimeoutMs | int | quote }}}
{{- if $values.modelCache.enabled }}
- {name: HF_HOME, value: {{ $values.modelCache.mountPath | quote }}}
{{- end }}
{{- if $values.huggingFace.offline }}
- {name: HF_HUB_OFFLINE, value: "1"}
{{- end }}
{{- with $values.huggingFace.tokenSecret }}
{{- if .name }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- range $name, $value := merge (deepCopy .group.env) $values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
