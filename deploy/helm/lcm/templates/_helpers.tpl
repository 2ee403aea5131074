{{- define "lcm.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "lcm.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lcm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "lcm.serviceAccount" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
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

{{- define "lcm.env" -}}
- name: BIND_HOST
  value: 0.0.0.0
- name: LCM_DATA_DIR
  value: /var/lib/lcm
- name: LCM_CONTROLLER_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.existingSecret }}, key: controller-token}}
{{- if .Values.etcd.tlsSecret }}
- name: ETCD_CA_FILE
  value: /etc/lcm/etcd/ca.crt
- name: ETCD_CERT_FILE
  value: /etc/lcm/etcd/tls.crt
- name: ETCD_KEY_FILE
  value: /etc/lcm/etcd/tls.key
{{- end }}
{{- if .Values.etcd.userSecret }}
- name: ETCD_USER
  valueFrom: {secretKeyRef: {name: {{ .Values.etcd.userSecret }}, key: user}}
- name: ETCD_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.etcd.userSecret }}, key: password}}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "lcm.mounts" -}}
- {name: data, mountPath: /var/lib/lcm}
- {name: tmp, mountPath: /tmp}
{{- if .Values.etcd.tlsSecret }}
- {name: etcd-tls, mountPath: /etc/lcm/etcd, readOnly: true}
{{- end }}
{{- end }}

{{- define "lcm.volumes" -}}
- {name: data, emptyDir: {}}
- {name: tmp, emptyDir: {}}
{{- if .Values.etcd.tlsSecret }}
- {name: etcd-tls, secret: {secretName: {{ .Values.etcd.tlsSecret }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{- define "lcm.awsEnv" -}}
- name: AWS_DEFAULT_REGION
  value: {{ .Values.awsDefaultRegion | quote }}
{{- if .Values.regions }}
- name: AWS_REGION_CONFIGS
  value: /etc/lcm/regions/regions.yaml
{{- end }}
{{- end }}

{{- define "lcm.awsMounts" -}}
{{- if .Values.regions }}
- {name: regions, mountPath: /etc/lcm/regions, readOnly: true}
{{- end }}
{{- end }}

{{- define "lcm.awsVolumes" -}}
{{- if .Values.regions }}
- {name: regions, configMap: {name: {{ .Release.Name }}-regions}}
{{- end }}
{{- end }}
