{{- define "lcm.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lcm.labels" -}}
{{ include "lcm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- /* The components, by their command: where their values are, the name of their port's setting, and what they use. */ -}}
{{- define "lcm.components" -}}
control-plane: {values: controlPlane, port: CONTROL_PLANE_PORT, regions: true, aws: false}
worker-controller: {values: workerController, port: WORKER_CONTROLLER_PORT, regions: true, aws: true}
resource-scheduler: {values: resourceScheduler, port: RESOURCE_SCHEDULER_PORT, regions: false, aws: false}
lablet-controller: {values: labletController, port: LABLET_CONTROLLER_PORT, regions: false, aws: false}
{{- end }}

{{- /* The image of a component: `own` may name a tag or digest of its own. */ -}}
{{- define "lcm.image" -}}
{{- $repository := required "image.repository is required: where your registry holds the image of LCM" .top.Values.image.repository -}}
{{- $own := .own.image | default dict -}}
{{- range $name, $image := dict "image" .top.Values.image (printf "%s.image" (dig "about" "values" "" .)) $own -}}
{{- if and $image.digest $image.tag }}{{ fail (printf "%s.tag and %s.digest are both given: name one of them, and upgrade with the same one" $name $name) }}{{ end -}}
{{- end -}}
{{- if $own.digest -}}
{{ $repository }}@{{ $own.digest }}
{{- else if $own.tag -}}
{{ $repository }}:{{ $own.tag }}
{{- else if .top.Values.image.digest -}}
{{ $repository }}@{{ .top.Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .top.Values.image.tag | default .top.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "lcm.demoSecret" -}}
{{ .Values.demoSecret | default (printf "%s-demo" .Release.Name) }}
{{- end }}

{{- define "lcm.serviceAccount" -}}
{{ .own.serviceAccount.name | default (printf "%s-%s" .top.Release.Name .component) }}
{{- end }}

{{- define "lcm.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "lcm.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* A value as text. Helm reads every number as a float, which prints account ids and large limits in scientific notation. */ -}}
{{- define "lcm.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) (lt . 9007199254740992.0) (gt . -9007199254740992.0) -}}
{{- printf "%d" (int64 .) -}}
{{- else if kindIs "float64" . -}}
{{- toJson . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end }}

{{- /* The environment of a component: each name once. extraEnv takes precedence over its settings, these over all others. */ -}}
{{- define "lcm.env" -}}
{{- $values := .top.Values -}}
{{- $settings := mergeOverwrite (deepCopy (.top.Values.settings | default dict)) (deepCopy (.own.settings | default dict)) -}}
{{- range $name := list "STORE_URL" "LCM_CONTROLLER_TOKEN" "LCM_BOOTSTRAP_TOKEN" "OIDC_CLIENT_SECRET" "SMTP_PASSWORD" "SCALE_UP_LICENSE_TOKEN" "LCM_SECRET_KEY" "LCM_SECRET_KEY_FILE" "ETCD_USER" "ETCD_PASSWORD" "CML_DEFAULT_PASSWORD" -}}
{{- if hasKey $settings $name }}{{ fail (printf "settings: %s is a secret; put it into a secret that the values name (README.md)" $name) }}{{ end -}}
{{- end -}}
{{- range $name := list "BIND_HOST" "LCM_DATA_DIR" "COORDINATION" "CONTROL_PLANE_API_URL" "CONTROL_PLANE_PORT" "WORKER_CONTROLLER_PORT" "RESOURCE_SCHEDULER_PORT" "LABLET_CONTROLLER_PORT" "AWS_REGION_CONFIGS" "AWS_DEFAULT_REGION" "CML_READER_URL" -}}
{{- if hasKey $settings $name }}{{ fail (printf "settings: the chart sets %s itself; use the value for it (README.md)" $name) }}{{ end -}}
{{- end -}}
{{- $_ := required "settings.ETCD_ENDPOINTS is required: host:port of each member of etcd, separated by commas" $settings.ETCD_ENDPOINTS -}}
{{- $env := dict "BIND_HOST" "0.0.0.0" "LCM_DATA_DIR" "/var/lib/lcm" .about.port .own.port -}}
{{- if ne .component "control-plane" -}}
{{- $_ := set $env "CONTROL_PLANE_API_URL" (printf "%s://%s-control-plane:%s" (ternary "https" "http" (not (empty $values.tls.secret))) .top.Release.Name (include "lcm.text" $values.controlPlane.port)) -}}
{{- if $values.tls.secret }}{{ $_ := set $env "LCM_CA_FILE" "/etc/lcm/tls/ca.crt" }}{{ end -}}
{{- end -}}
{{- if $values.tls.secret -}}
{{- $env = merge $env (dict "TLS_CERT_FILE" "/etc/lcm/tls/tls.crt" "TLS_KEY_FILE" "/etc/lcm/tls/tls.key") -}}
{{- end -}}
{{- if $values.etcd.tlsSecret -}}
{{- $env = merge $env (dict "ETCD_CA_FILE" "/etc/lcm/etcd/ca.crt" "ETCD_CERT_FILE" "/etc/lcm/etcd/tls.crt" "ETCD_KEY_FILE" "/etc/lcm/etcd/tls.key") -}}
{{- end -}}
{{- if .about.regions -}}
{{- $_ := set $env "AWS_DEFAULT_REGION" $values.awsDefaultRegion -}}
{{- if $values.regions }}{{ $_ := set $env "AWS_REGION_CONFIGS" "/etc/lcm/regions/regions.yaml" }}{{ end -}}
{{- end -}}
{{- if and (eq .component "control-plane") $values.ingress.enabled $values.ingress.trustedProxies -}}
{{- $_ := set $env "FORWARDED_ALLOW_IPS" $values.ingress.trustedProxies -}}
{{- end -}}
{{- $env = mergeOverwrite $env $settings -}}
{{- $secrets := dict "LCM_CONTROLLER_TOKEN" (dict "name" $values.existingSecret "key" "controller-token") -}}
{{- if $values.etcd.userSecret -}}
{{- $_ := set $secrets "ETCD_USER" (dict "name" $values.etcd.userSecret "key" "user") -}}
{{- $_ := set $secrets "ETCD_PASSWORD" (dict "name" $values.etcd.userSecret "key" "password") -}}
{{- end -}}
{{- if .own.cmlAccountSecret -}}
{{- $_ := set $secrets "CML_DEFAULT_USERNAME" (dict "name" .own.cmlAccountSecret "key" "username") -}}
{{- $_ := set $secrets "CML_DEFAULT_PASSWORD" (dict "name" .own.cmlAccountSecret "key" "password") -}}
{{- end -}}
{{- if eq .component "control-plane" -}}
{{- $_ := set $secrets "STORE_URL" (dict "name" $values.existingSecret "key" "store-url") -}}
{{- $_ := set $secrets "LCM_BOOTSTRAP_TOKEN" (dict "name" $values.existingSecret "key" "bootstrap-token" "optional" true) -}}
{{- range $name, $key := dict "OIDC_CLIENT_SECRET" "oidc-client-secret" "SMTP_PASSWORD" "smtp-password" "SCALE_UP_LICENSE_TOKEN" "scale-up-license-token" -}}
{{- $_ := set $secrets $name (dict "name" $values.existingSecret "key" $key "optional" true) -}}
{{- end -}}
{{- $_ := set $env "LCM_SECRET_KEY_FILE" "/run/lcm/secret.key" -}}
{{- end -}}
{{- $extra := list -}}
{{- $key := .about.values -}}
{{- range .own.extraEnv -}}
{{- if has .name $extra }}{{ fail (printf "%s.extraEnv: %s is there twice; name it once" $key .name) }}{{ end -}}
{{- $extra = append $extra .name -}}
{{- end -}}
{{- if and (ne .component "control-plane") (not (hasKey $env "WORKER_CONTROLLER_INSTANCE_ID")) (not (has "WORKER_CONTROLLER_INSTANCE_ID" $extra)) }}
- name: WORKER_CONTROLLER_INSTANCE_ID
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end }}
{{- if .own.allReplicasReadCml }}
{{- if $values.tls.secret }}{{ fail "workerController.allReplicasReadCml: with tls.secret the certificate would have to name the address of each pod; use one of the two" }}{{ end }}
{{- if not (has "POD_IP" $extra) }}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}
{{- end }}
{{- range $name, $reference := $secrets }}
{{- if not (has $name $extra) }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {{ toJson $reference }}}
{{- end }}
{{- end }}
{{- range $name, $value := $env }}
{{- if not (or (has $name $extra) (hasKey $secrets $name) (kindIs "invalid" $value)) }}
- name: {{ $name }}
  value: {{ include "lcm.text" $value | quote }}
{{- end }}
{{- end }}
{{- with .own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- /* Last: Kubernetes replaces $(POD_IP) only if it stands before, and extraEnv may name it. */ -}}
{{- if and .own.allReplicasReadCml (not (has "CML_READER_URL" $extra)) }}
- name: CML_READER_URL
  value: http://$(POD_IP):{{ include "lcm.text" .own.port }}
{{- end }}
{{- end }}

{{- define "lcm.mounts" -}}
- {name: data, mountPath: /var/lib/lcm}
- {name: tmp, mountPath: /tmp}
{{- if .top.Values.etcd.tlsSecret }}
- {name: etcd-tls, mountPath: /etc/lcm/etcd, readOnly: true}
{{- end }}
{{- if .top.Values.tls.secret }}
- {name: tls, mountPath: /etc/lcm/tls, readOnly: true}
{{- end }}
{{- if and .about.regions .top.Values.regions }}
- {name: regions, mountPath: /etc/lcm/regions, readOnly: true}
{{- end }}
{{- if eq .component "control-plane" }}
- {name: keys, mountPath: /run/lcm}
{{- end }}
{{- include "lcm.sharedMounts" .top }}
{{- end }}

{{- define "lcm.sharedMounts" -}}
{{- if or .Values.caBundle.configMap .Values.caBundle.secret }}
- {name: ca, mountPath: /etc/lcm/ca, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lcm.volumes" -}}
- {name: data, emptyDir: {}}
- {name: tmp, emptyDir: {}}
{{- if .top.Values.etcd.tlsSecret }}
- {name: etcd-tls, secret: {secretName: {{ .top.Values.etcd.tlsSecret }}, defaultMode: 0440}}
{{- end }}
{{- if .top.Values.tls.secret }}
- {name: tls, secret: {secretName: {{ .top.Values.tls.secret }}, defaultMode: 0440}}
{{- end }}
{{- if and .about.regions .top.Values.regions }}
- {name: regions, configMap: {name: {{ .top.Release.Name }}-regions}}
{{- end }}
{{- if eq .component "control-plane" }}
- {name: keys, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- name: secret-keys
  secret:
    secretName: {{ .top.Values.existingSecret }}
    defaultMode: 0440
    items: [{key: secret-keys, path: secret-keys}]
{{- end }}
{{- include "lcm.sharedVolumes" .top }}
{{- end }}

{{- define "lcm.sharedVolumes" -}}
{{- if .Values.caBundle.configMap }}
- {name: ca, configMap: {name: {{ .Values.caBundle.configMap }}, items: [{key: ca.crt, path: ca.crt}]}}
{{- else if .Values.caBundle.secret }}
- {name: ca, secret: {secretName: {{ .Values.caBundle.secret }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lcm.probes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" (and (not .Values.demo) (not (empty .Values.tls.secret))) -}}
startupProbe: {httpGet: {path: /health, port: http, scheme: {{ $scheme }}}, periodSeconds: 2, failureThreshold: 60}
livenessProbe: {httpGet: {path: /health, port: http, scheme: {{ $scheme }}}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
readinessProbe: {httpGet: {path: /ready, port: http, scheme: {{ $scheme }}}, periodSeconds: 5, timeoutSeconds: 3, failureThreshold: 2}
{{- end }}

{{- /* Refuse a pod that would be killed while it finishes requests: the process itself takes at most 8 s more. */ -}}
{{- define "lcm.checkGrace" -}}
{{- $settings := mergeOverwrite (deepCopy (.top.Values.settings | default dict)) (deepCopy (.own.settings | default dict)) -}}
{{- $shutdown := float64 (toString (default 5 (get $settings "SHUTDOWN_SECONDS"))) -}}
{{- $least := addf .top.Values.preStopSeconds $shutdown 10 -}}
{{- if lt (float64 .top.Values.terminationGracePeriodSeconds) $least -}}
{{- fail (printf "terminationGracePeriodSeconds must be at least %v: preStopSeconds, SHUTDOWN_SECONDS and 10" $least) -}}
{{- end -}}
{{- end }}

{{- /* Parts of every pod: account, image secrets, security, priority, shutdown. */ -}}
{{- define "lcm.pod" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- include "lcm.podSecurity" . | nindent 2 }}
terminationGracePeriodSeconds: {{ include "lcm.text" .Values.terminationGracePeriodSeconds }}
{{- end }}
