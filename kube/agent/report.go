package agent

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Reasons of the events that the agent makes of its node.
const (
	ReasonMissing = "PluginMissing"
	ReasonBack    = "PluginInstalled"
)

// reportWait bounds how long an event may take.
const reportWait = 5 * time.Second

// Reporter returns a function for Config.Report that makes events of a node, in namespace default as the kubelet
// does.
func Reporter(c kubernetes.Interface, nodeName string, log *slog.Logger) func(context.Context, string) {
	return func(ctx context.Context, wrong string) {
		kind, reason, text, level := corev1.EventTypeWarning, ReasonMissing, wrong, slog.LevelWarn
		if wrong == "" {
			kind, reason, text, level = corev1.EventTypeNormal, ReasonBack, "the CNI plugin of racks is installed again", slog.LevelInfo
		}
		log.Log(ctx, level, "CNI plugin", "reason", reason, "text", text)
		ctx, cancel := context.WithTimeout(ctx, reportWait)
		defer cancel()
		now := metav1.Now()
		_, err := c.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: nodeName + ".rdmalab-", Namespace: metav1.NamespaceDefault},
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: nodeName, UID: "", APIVersion: "v1"},
			Type:           kind, Reason: reason, Message: text, FirstTimestamp: now, LastTimestamp: now, Count: 1,
			Source: corev1.EventSource{Component: "rdmalab-node", Host: nodeName},
		}, metav1.CreateOptions{})
		if err != nil {
			log.Warn("event of the node", "reason", reason, "error", err)
		}
	}
}
