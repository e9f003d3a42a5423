{{/*
The Serve configuration: the values of `tessera:` are the application's arguments, and the chart adds what only it
knows. `gpus_per_node` is always set: the application is built before the decoders' pods exist.

Numbers of replicas go beside the arguments: Serve restarts every replica of an application whose arguments change, but
only adds or takes away where a number does. A pool with `autoscaling` has none.
*/}}

{{- define "tessera.serveConfig" -}}
{{- $settings := .Values.tessera -}}
proxy_location: EveryNode
http_options:
  host: 0.0.0.0
  port: 8000
applications:
  - name: tessera
    route_prefix: /
    import_path: router.app:build_app
    args:
      {{- include "tessera.arguments" . | nindent 6 }}
    deployments:
      - name: Router
        num_replicas: {{ $settings.router.replicas | default 1 | int }}
        {{- with .Values.apiKeys.keys }}
        user_config:
          api_keys:
            {{- range . }}
            - {{ merge (dict "file" (printf "%s/%s" (include "tessera.apiKeysFolder" $) .name)) . | toJson }}
            {{- end }}
        {{- end }}
      {{- if not $settings.encoder.autoscaling }}
      - name: EncoderPool
        num_replicas: {{ include "tessera.encoders" . }}
      {{- end }}
      {{- if not $settings.llm.autoscaling }}
      - name: LLMPool
        num_replicas: {{ $settings.llm.replicas | default 1 | int }}
      {{- end }}
{{- end }}

{{- define "tessera.encoders" -}}
{{- if eq .Values.tessera.placement "colocated" -}}
{{ mul (include "tessera.workers" .) (.Values.tessera.llm.replicas | default 1 | int) }}
{{- else -}}
{{ .Values.tessera.encoder.replicas | default 1 | int }}
{{- end -}}
{{- end }}

{{/* GPUs of one engine, each of which has a worker. */}}
{{- define "tessera.workers" -}}
{{- $engine := .Values.tessera.llm.engine_kwargs | default dict -}}
{{- $workers := 1 -}}
{{- range list "tensor_parallel_size" "pipeline_parallel_size" "prefill_context_parallel_size" -}}
{{- $workers = mul $workers (index $engine . | default 1 | int) -}}
{{- end -}}
{{- $workers -}}
{{- end }}

{{- define "tessera.arguments" -}}
{{- $args := deepCopy .Values.tessera -}}
{{- range $section, $group := dict "router" "router" "encoder" "encoder" "llm" "decoder" -}}
{{- $settings := index $args $section -}}
{{- $_ := unset $settings "replicas" -}}
{{- $_ := set $settings "resources" (dict (printf "tessera_%s" $group) 1) -}}
{{- end -}}
{{- $_ := set $args.llm "gpus_per_node" (int .Values.groups.decoder.gpus) -}}
{{- toYaml $args -}}
{{- end }}
