{{/*
The Serve configuration: the values of `tessera:` are the application's arguments, and the chart adds what only it
knows. `gpus_per_node` is always set: the application is built before the decoders' pods exist.
*/}}

{{- define "tessera.serveConfig" -}}
{{- $args := deepCopy .Values.tessera -}}
{{- range $section, $group := dict "router" "router" "encoder" "encoder" "llm" "decoder" -}}
{{- $_ := set (index $args $section) "resources" (dict (printf "tessera_%s" $group) 1) -}}
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
{{- end }}
