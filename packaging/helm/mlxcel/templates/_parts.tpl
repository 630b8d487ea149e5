{{- define "mlxcel.labels" -}}
app.kubernetes.io/name: mlxcel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mlxcel.environment" -}}
- {name: MLXCEL_HOME, value: /models}
{{- if .Values.model.hubTokenSecret }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.model.hubTokenSecret }}, key: token}}
{{- end }}
{{- end }}

{{- define "mlxcel.container" -}}
name: server
image: {{ .Values.image.name }}:{{ .Values.image.tag }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
- serve
- --model
- {{ .Values.model.name | quote }}
- --offline
- --host
- 0.0.0.0
- --port
- {{ .Values.server.port | quote }}
- --drain-timeout
- {{ .Values.drainSeconds | quote }}
- --log-format
- json
{{- if .Values.server.apiKeySecret }}
- --api-key-file
- /keys/keys
{{- else }}
- --allowed-hosts
- {{ .Values.server.allowedHosts | quote }}
{{- end }}
{{- if gt (int .Values.group.size) 1 }}
- --device
- cpu
{{- end }}
{{- range .Values.server.args }}
- {{ . | quote }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
- {name: models, mountPath: /models}
- {name: tmp, mountPath: /tmp}
{{- if .Values.server.apiKeySecret }}
- {name: keys, mountPath: /keys, readOnly: true}
{{- end }}
resources:
  requests:
    {{- toYaml .Values.resources.requests | nindent 4 }}
  limits:
    {{- toYaml .Values.resources.limits | nindent 4 }}
    {{- if gt (int .Values.group.size) 1 }}
    {{- else }}
    {{- if .Values.gpus }}
    nvidia.com/gpu: {{ .Values.gpus | quote }}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "mlxcel.serving" -}}
ports:
- {name: http, containerPort: {{ .Values.server.port }}}
startupProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 10
  failureThreshold: {{ mul .Values.startupMinutes 6 }}
readinessProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
lifecycle:
  preStop: {exec: {command: [sleep, {{ .Values.preStopSeconds | quote }}]}}
{{- end }}

{{- define "mlxcel.pod" -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ add .Values.preStopSeconds .Values.drainSeconds 10 }}
securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
nodeSelector:
  {{- toYaml .Values.nodeSelector | nindent 2 }}
tolerations:
  {{- toYaml .Values.tolerations | nindent 2 }}
volumes:
- {name: models, persistentVolumeClaim: {claimName: {{ .Values.model.volume }}}}
- {name: tmp, emptyDir: {}}
{{- if .Values.server.apiKeySecret }}
- {name: keys, secret: {secretName: {{ .Values.server.apiKeySecret }}}}
{{- end }}
{{- if .Values.model.download }}
initContainers:
- name: model
  image: {{ .Values.image.name }}:{{ .Values.image.tag }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [download, {{ .Values.model.name | quote }}]
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  env:
  {{- include "mlxcel.environment" . | nindent 2 }}
  volumeMounts:
  - {name: models, mountPath: /models}
  - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}

{{- define "mlxcel.rank" -}}
- {name: MASTER_ADDR, value: $(LWS_LEADER_ADDRESS)}
- {name: MASTER_PORT, value: {{ .Values.group.port | quote }}}
- {name: WORLD_SIZE, value: {{ .Values.group.size | quote }}}
- name: RANK
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"}}
- name: MLXCEL_JOB_SECRET
  valueFrom: {secretKeyRef: {name: {{ .Values.group.secret }}, key: secret}}
{{- end }}
