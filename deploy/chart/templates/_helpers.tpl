{{- define "retally.selector" -}}
app.kubernetes.io/name: retally
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "retally.labels" -}}
{{ include "retally.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "retally.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "retally.claim" -}}
{{ .Values.storage.existingClaim | default (printf "%s-data" .Release.Name) }}
{{- end }}

{{- define "retally.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "retally.address" -}}
{{- $host := printf "$(POD_NAME).%s-pods.$(POD_NAMESPACE).svc" .Release.Name -}}
{{ .Values.advertise | default (printf "http://%s:8080" $host) }}
{{- end }}
