#!/bin/sh
# Writes the templates of the chart from kube/config, of which kube/install.yaml is made, too: what values change is put in the
# places of it. usage: templates.sh CONFIG OUT
set -eu
config=$1 out=$2
mkdir -p "$out"
for f in namespace crd rbac operator agent; do
	sed -e 's|namespace: rdmalab-system|namespace: {{ .Values.namespace }}|' -e 's|^  name: rdmalab-system$|  name: {{ .Values.namespace }}|' \
		-e 's|image: rdmalab.local/kube:dev|image: {{ .Values.image.name }}|' -e 's|imagePullPolicy: IfNotPresent|imagePullPolicy: {{ .Values.image.pullPolicy }}|' \
		"$config/$f.yaml" > "$out/$f.yaml"
done
log='{{ if ne .Values.logFormat "text" }}, --log-format, {{ .Values.logFormat }}{{ end }}'
pull='{{ if ne .Values.image.pullPolicy "IfNotPresent" }}, --pull-policy, {{ .Values.image.pullPolicy }}{{ end }}'
selector() { printf '%s' "{{- with .Values.$1.nodeSelector }}\\
      nodeSelector: {{ toJson . }}\\
{{- end }}"; }
sed -i -e "s|--image, \"rdmalab.local/kube:dev\"]|--image, {{ .Values.image.name \\| quote }}$pull$log]|" \
	-e "s|^      serviceAccountName: .*|&\\
$(selector operator)|" \
	-e 's|^        - {key: node.kubernetes.io/unreachable, .*|&\
{{- range .Values.operator.tolerations }}\
        - {{ toJson . }}\
{{- end }}|' "$out/operator.yaml"
sed -i -e "s|args: \[agent\]|args: [agent$log]|" \
	-e "s|^      serviceAccountName: .*|&\\
$(selector agent)|" \
	-e 's|^      tolerations: .*|      tolerations: {{ toJson .Values.agent.tolerations }}|' \
	-e 's|hostPath: {path: /etc/cni/net.d,|hostPath: {path: {{ .Values.agent.cniConfig \| quote }},|' \
	-e 's|hostPath: {path: /opt/cni/bin,|hostPath: {path: {{ .Values.agent.cniBin \| quote }},|' "$out/agent.yaml"
