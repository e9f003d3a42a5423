{{/*
The Serve configuration: the values of `tessera:` are the application's arguments, and the chart adds what only it
knows. `gpus_per_node` is always set: the application is built before the decoders' pods exist.

Numbers of replicas go beside the arguments: Serve restarts every replica of an application whose arguments change, but
only adds or takes away where a number does.
*/}}

{{- define "tessera.serveConfig" -}}
{{- $args := deepCopy .Values.tessera -}}
{{- $replicas := dict -}}
{{- range $section, $group := dict "router" "router" "encoder" "encoder" "llm" "decoder" -}}
{{- $settings := index $args $section -}}
{{- $_ := set $replicas $section ($settings.replicas | default 1 | int) -}}
{{- $_ := unset $settings "replicas" -}}
{{- $_ := set $settings "resources" (dict (printf "tessera_%s" $group) 1) -}}
{{- end -}}
{{- $_ := set $args.llm "gpus_per_node" (int .Values.groups.decoder.gpus) -}}
proxy_location: EveryNode
http_options:
  host: 0.0.0.0
  port: 8000
applications:
  - name: tessera
    route_prefix: /
    import_path: router.app:build_app
    args:
      {{- toYaml $args | nindent 6 }}
    deployments:
      - name: Router
        num_replicas: {{ $replicas.router }}
      - name: EncoderPool
        num_replicas: {{ $replicas.encoder }}
      - name: LLMPool
        num_replicas: {{ $replicas.llm }}
{{- end }}
