{{- /* A controller: `component` is its command, `own` its part of the values, `aws` whether it gets the regions. */ -}}
{{- define "lcm.controller" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .top.Release.Name }}-{{ .component }}
  labels:
    {{- include "lcm.labels" .top | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ .own.replicas }}
  selector:
    matchLabels:
      {{- include "lcm.selector" .top | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata:
      labels:
        {{- include "lcm.labels" .top | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
      {{- with .own.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "lcm.serviceAccount" .top }}
      automountServiceAccountToken: {{ .aws }}
      {{- with .top.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      securityContext:
        {{- include "lcm.podSecurity" .top | nindent 8 }}
      # On SIGTERM it finishes passes in progress, hands over leadership and exits within ten seconds.
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .component }}
          image: {{ include "lcm.image" .top }}
          imagePullPolicy: {{ .top.Values.image.pullPolicy }}
          args: [{{ .component }}]
          ports:
            - {name: http, containerPort: {{ .own.port }}}
          env:
            - name: {{ .portVariable }}
              value: {{ .own.port | quote }}
            - name: WORKER_CONTROLLER_INSTANCE_ID
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: CONTROL_PLANE_API_URL
              value: http://{{ .top.Release.Name }}-control-plane:{{ .top.Values.controlPlane.port }}
            {{- if .cmlAccount }}
            - name: CML_DEFAULT_USERNAME
              valueFrom: {secretKeyRef: {name: {{ .cmlAccount }}, key: username}}
            - name: CML_DEFAULT_PASSWORD
              valueFrom: {secretKeyRef: {name: {{ .cmlAccount }}, key: password}}
            {{- end }}
            {{- include "lcm.env" .top | nindent 12 }}
            {{- if .aws }}
            {{- include "lcm.awsEnv" .top | nindent 12 }}
            {{- end }}
            {{- range $name, $value := .own.settings }}
            - name: {{ $name }}
              value: {{ $value | quote }}
            {{- end }}
            {{- with .own.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with .awsCredentials }}
          envFrom:
            - secretRef: {name: {{ . }}}
          {{- end }}
          startupProbe: {httpGet: {path: /health, port: http}, periodSeconds: 2, failureThreshold: 60}
          livenessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
          readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 5, timeoutSeconds: 3, failureThreshold: 2}
          resources:
            {{- toYaml .own.resources | nindent 12 }}
          securityContext:
            {{- include "lcm.containerSecurity" .top | nindent 12 }}
          volumeMounts:
            {{- include "lcm.mounts" .top | nindent 12 }}
            {{- if .aws }}
            {{- include "lcm.awsMounts" .top | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "lcm.volumes" .top | nindent 8 }}
        {{- if .aws }}
        {{- include "lcm.awsVolumes" .top | nindent 8 }}
        {{- end }}
      {{- with .own.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .own.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .own.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "lcm.selector" .top | nindent 14 }}
              app.kubernetes.io/component: {{ .component }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .top.Release.Name }}-{{ .component }}
  labels:
    {{- include "lcm.labels" .top | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- with .own.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .own.service.type }}
  ports:
    - {name: http, port: {{ .own.port }}, targetPort: http}
  selector:
    {{- include "lcm.selector" .top | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
{{- end }}
