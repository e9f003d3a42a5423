{{/*
What values.schema.json cannot say: sums and choices that exclude each other. Every message begins with the value that
is to be changed.
*/}}

{{- define "tessera.checks" -}}
{{- include "tessera.checks.release" . -}}
{{- include "tessera.checks.owned" . -}}
{{- include "tessera.checks.groups" . -}}
{{- include "tessera.checks.memory" . -}}
{{- include "tessera.checks.gpus" . -}}
{{- include "tessera.checks.upgrade" . -}}
{{- include "tessera.checks.access" . -}}
{{- end }}

{{- define "tessera.checks.release" -}}
{{- if or (gt (len .Release.Name) 47) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name)) -}}
{{- fail (printf "release name %q: KubeRay takes at most 47 small letters, digits and dashes, a letter first" .Release.Name) -}}
{{- end -}}
{{- end }}

{{- define "tessera.checks.owned" -}}
{{- range $section := list "router" "encoder" "llm" -}}
{{- if hasKey (index $.Values.tessera $section) "resources" -}}
{{- fail (printf "tessera.%s.resources: set by the chart, which pins replicas to groups.%s" $section (eq $section "llm" | ternary "decoder" $section)) -}}
{{- end -}}
{{- end -}}
{{- if hasKey .Values.tessera.llm "gpus_per_node" -}}
{{- fail "tessera.llm.gpus_per_node: set by the chart from groups.decoder.gpus" -}}
{{- end -}}
{{- end }}

{{- define "tessera.checks.groups" -}}
{{- range $name := include "tessera.groupNames" . | splitList "," -}}
{{- $section := eq $name "decoder" | ternary "llm" $name -}}
{{- $group := index $.Values.groups $name -}}
{{- $settings := index $.Values.tessera $section -}}
{{- $most := $settings.replicas | default 1 | int -}}
{{- $least := $most -}}
{{- $mostName := "replicas" -}}
{{- $leastName := "replicas" -}}
{{- with $settings.autoscaling -}}
{{- $most = int .max_replicas -}}
{{- $least = .min_replicas | default 1 | int -}}
{{- $mostName = "autoscaling.max_replicas" -}}
{{- $leastName = "autoscaling.min_replicas" -}}
{{- end -}}
{{- $mostPods := divf $most $group.replicasPerPod | ceil | int -}}
{{- $leastPods := divf $least $group.replicasPerPod | ceil | int -}}
{{- if gt (int $group.pods) (int $group.maxPods) -}}
{{- fail (printf "groups.%s.maxPods: %d is below groups.%s.pods, %d" $name (int $group.maxPods) $name (int $group.pods)) -}}
{{- end -}}
{{- if gt $mostPods (int $group.maxPods) -}}
{{- fail (printf "tessera.%s.%s: %d need %d pods, but groups.%s.maxPods is %d" $section $mostName $most $mostPods $name (int $group.maxPods)) -}}
{{- end -}}
{{- if lt $leastPods (int $group.pods) -}}
{{- fail (printf "groups.%s.pods: %d, but tessera.%s.%s %d need only %d; the others would never be ready" $name (int $group.pods) $section $leastName $least $leastPods) -}}
{{- end -}}
{{- $cpus := mulf ($settings.num_cpus | default 0.1) $group.replicasPerPod -}}
{{- if gt $cpus (float64 $group.cpus) -}}
{{- fail (printf "groups.%s.cpus: %d, but tessera.%s.num_cpus for %d replicas is %g" $name (int $group.cpus) $section (int $group.replicasPerPod) $cpus) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "tessera.checks.memory" -}}
{{- range $name, $group := .Values.groups -}}
{{- $shared := add (int $group.objectStoreGiB) (int $.Values.sharedMemoryMarginGiB) -}}
{{- if ge $shared (int64 $group.memoryGiB) -}}
{{- fail (printf "groups.%s.memoryGiB: %d, of which objectStoreGiB and sharedMemoryMarginGiB take %d" $name (int $group.memoryGiB) $shared) -}}
{{- end -}}
{{- end -}}
{{- $router := .Values.tessera.router -}}
{{- $inFlight := mul ($router.replicas | default 1 | int) (int64 $router.in_flight_bytes) -}}
{{- $held := add (int64 $router.embedding_store_bytes) $inFlight -}}
{{- $name := eq .Values.tessera.placement "colocated" | ternary "decoder" "encoder" -}}
{{- $encoders := index .Values.groups $name -}}
{{- $room := mul (int $encoders.pods) (int $encoders.objectStoreGiB) 1073741824 -}}
{{- if ge $held $room -}}
{{- fail (printf "tessera.router.embedding_store_bytes and in_flight_bytes of all Routers: %d bytes, but the object stores of groups.%s hold %d" $held $name $room) -}}
{{- end -}}
{{- end }}

{{- define "tessera.checks.gpus" -}}
{{- $encoder := .Values.groups.encoder -}}
{{- $used := mulf (.Values.tessera.encoder.num_gpus | default 0) $encoder.replicasPerPod -}}
{{- if and (ne .Values.tessera.placement "colocated") (ne $used (float64 $encoder.gpus)) -}}
{{- fail (printf "groups.encoder.gpus: %d, but tessera.encoder.num_gpus for %d replicas is %g" (int $encoder.gpus) (int $encoder.replicasPerPod) $used) -}}
{{- end -}}
{{- $decoder := .Values.groups.decoder -}}
{{- $workers := include "tessera.workers" . | int -}}
{{- $used := mulf $workers $decoder.replicasPerPod (eq $workers 1 | ternary (.Values.tessera.llm.gpu_share | default 1) 1) -}}
{{- if and $decoder.gpus (ne $used (float64 $decoder.gpus)) -}}
{{- fail (printf "groups.decoder.gpus: %d, but %d engine(s) of %d GPUs (tessera.llm.engine_kwargs) use %g; an engine cannot span pods" (int $decoder.gpus) (int $decoder.replicasPerPod) $workers $used) -}}
{{- end -}}
{{- end }}

{{- define "tessera.checks.upgrade" -}}
{{- $values := .Values -}}
{{- $incremental := eq $values.upgrade.strategy "NewClusterWithIncrementalUpgrade" -}}
{{- if and $incremental (not $values.upgrade.incremental.gatewayClassName) -}}
{{- fail "upgrade.incremental.gatewayClassName: needed by upgrade.strategy NewClusterWithIncrementalUpgrade" -}}
{{- end -}}
{{- $need := include "tessera.gpusNeeded" . | int -}}
{{- $capacity := int $values.upgrade.gpuCapacity -}}
{{- if and $capacity (lt $capacity $need) -}}
{{- fail (printf "upgrade.gpuCapacity: %d, but the groups at their most, with upgrade.strategy %s, need %d GPUs" $capacity $values.upgrade.strategy $need) -}}
{{- end -}}
{{- end }}

{{/*
GPUs at the groups' most: once, twice where a second cluster stands beside the first, or once and a surge, which is at
least one pod of each group.
*/}}
{{- define "tessera.gpusNeeded" -}}
{{- $strategy := .Values.upgrade.strategy -}}
{{- $surge := divf .Values.upgrade.incremental.maxSurgePercent 100 -}}
{{- $need := 0 -}}
{{- range $name := without (include "tessera.groupNames" . | splitList ",") "router" -}}
{{- $group := index $.Values.groups $name -}}
{{- $pods := int $group.maxPods -}}
{{- if eq $strategy "NewCluster" -}}
{{- $pods = mul 2 $pods -}}
{{- else if eq $strategy "NewClusterWithIncrementalUpgrade" -}}
{{- $pods = add $pods (max 1 (mulf $pods $surge | ceil | int)) -}}
{{- end -}}
{{- $need = add $need (mul $pods (int $group.gpus)) -}}
{{- end -}}
{{- $need -}}
{{- end }}

{{- define "tessera.checks.access" -}}
{{- $values := .Values -}}
{{- if and $values.ingress.enabled (not $values.ingress.host) -}}
{{- fail "ingress.host: needed by ingress.enabled" -}}
{{- end -}}
{{- if and $values.httpRoute.enabled (not $values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs: needed by httpRoute.enabled" -}}
{{- end -}}
{{- if eq $values.upgrade.strategy "NewClusterWithIncrementalUpgrade" -}}
{{- range $route := list "ingress" "httpRoute" -}}
{{- if (index $values $route).enabled -}}
{{- fail (printf "%s.enabled: with upgrade.strategy NewClusterWithIncrementalUpgrade KubeRay makes a Gateway and its route, which this would bypass" $route) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $apiKeys := $values.apiKeys -}}
{{- if and $apiKeys.secretName (not $apiKeys.keys) -}}
{{- fail "apiKeys.keys: empty, so that apiKeys.secretName would protect nothing; name its keys" -}}
{{- end -}}
{{- if and $apiKeys.keys (not $apiKeys.secretName) -}}
{{- fail "apiKeys.secretName: needed by apiKeys.keys" -}}
{{- end -}}
{{- $gcs := $values.gcsFaultTolerance -}}
{{- if and $gcs.enabled (eq $gcs.backend "redis") (not $gcs.redisAddress) -}}
{{- fail "gcsFaultTolerance.redisAddress: needed by gcsFaultTolerance.backend redis" -}}
{{- end -}}
{{- $cache := $values.modelCache -}}
{{- if and $cache.enabled (eq $cache.accessMode "ReadOnlyMany") (not (and $cache.existingClaim $values.huggingFace.offline)) -}}
{{- fail "modelCache.accessMode: ReadOnlyMany needs modelCache.existingClaim and huggingFace.offline" -}}
{{- end -}}
{{- end }}
