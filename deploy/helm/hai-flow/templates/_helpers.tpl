{{- define "hai-flow.name" -}}
{{- printf "%s" (ternary .Release.Name (printf "%s-hai-flow" .Release.Name) (contains "hai-flow" .Release.Name)) | trunc 45 | trimSuffix "-" -}}
{{- end -}}

{{- define "hai-flow.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "hai-flow.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "hai-flow.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "hai-flow.chosen" -}}
app.kubernetes.io/name: hai-flow
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hai-flow.labels" -}}
{{ include "hai-flow.chosen" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* What every pod of ours is: nobody, without rights, with a root that is read-only. */}}
{{- define "hai-flow.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end -}}

{{- define "hai-flow.container" -}}
image: {{ include "hai-flow.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "hai-flow.settings" -}}
- {name: HAI_FLOW_DATABASE_URL_FILE, value: /run/secrets/hai-flow/database_url}
- {name: HAI_FLOW_METRICS, value: "0.0.0.0:9464"}
- {name: HAI_FLOW_METRICS_TOKEN_FILE, value: /run/secrets/hai-flow/metrics_token}
{{- with .Values.witness }}
- {name: HAI_FLOW_WITNESS, value: {{ . | quote }}}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: HAI_FLOW_{{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hai-flow.mounts" -}}
- {name: secrets, mountPath: /run/secrets/hai-flow, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.files }}
- {name: files, mountPath: /etc/hai-flow, readOnly: true}
{{- end }}
{{- end -}}

{{- define "hai-flow.volumes" -}}
- name: secrets
  secret:
    secretName: {{ .Values.secret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.secret.keys.databaseUrl | quote }}, path: database_url}
      - {key: {{ .Values.secret.keys.metricsToken | quote }}, path: metrics_token}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- if .Values.files }}
- name: files
  configMap: {name: {{ include "hai-flow.name" . }}-files}
{{- end }}
{{- end -}}

{{/* Live: the process answers. Ready: it can do its work. Both on the port of the metrics, which a worker has, too. */}}
{{- define "hai-flow.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 4
  failureThreshold: 2
{{- end -}}

{{- define "hai-flow.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end -}}
