package operator

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// workloads are DaemonSets and StatefulSets by their UIDs. Anybody who may make objects in the namespace may give them
// the label of a rack: what is the rack's is what its Rack controls.
type workloads map[types.UID]client.Object

// labelled selects the workloads with the label of a rack in its namespace.
func labelled(k *v1alpha1.Rack) []client.ListOption {
	return []client.ListOption{client.InNamespace(k.Namespace), client.MatchingLabels{v1alpha1.LabelRack: k.Name}}
}

// workloadsOf reads the workloads that of selects.
func workloadsOf(ctx context.Context, from client.Reader, of ...client.ListOption) (workloads, error) {
	daemons, sets := new(appsv1.DaemonSetList), new(appsv1.StatefulSetList)
	if err := from.List(ctx, daemons, of...); err != nil {
		return nil, err
	}
	if err := from.List(ctx, sets, of...); err != nil {
		return nil, err
	}
	w := make(workloads)
	for i := range daemons.Items {
		w[daemons.Items[i].UID] = &daemons.Items[i]
	}
	for i := range sets.Items {
		w[sets.Items[i].UID] = &sets.Items[i]
	}
	return w, nil
}

// of returns those that a Rack controls.
func (w workloads) of(k *v1alpha1.Rack) (list []client.Object) {
	for _, o := range w {
		if metav1.IsControlledBy(o, k) {
			list = append(list, o)
		}
	}
	return list
}

// has reports whether a Pod is of a workload that a Rack controls.
func (w workloads) has(k *v1alpha1.Rack, p *corev1.Pod) bool {
	ref := metav1.GetControllerOf(p)
	return ref != nil && w[ref.UID] != nil && metav1.IsControlledBy(w[ref.UID], k)
}

// had reports whether a Pod is of a workload that a Rack controls, or has controlled until that was deleted. The Pod of a
// workload that is gone goes, too: the cluster removes what has no owner.
func (w workloads) had(k *v1alpha1.Rack, p *corev1.Pod) bool {
	ref := metav1.GetControllerOf(p)
	if ref == nil || w[ref.UID] != nil {
		return w.has(k, p)
	}
	return (ref.Kind == "DaemonSet" || ref.Kind == "StatefulSet") && strings.HasPrefix(ref.Name, k.Name+"-")
}

// leafOn is the name of the leaf on a node among what is ready; no host has such a name.
func leafOn(node string) string { return "leaf on " + node }

// podsOf is what the Pods of a rack say: those of leaves by leafOn of their nodes, those of hosts by the hosts' names.
type podsOf struct {
	ready map[string]bool
	waits map[string]string // why the scheduler finds no place
}

// say returns what the Pods of a rack say.
func (w workloads) say(k *v1alpha1.Rack, pods []corev1.Pod) podsOf {
	own := podsOf{ready: make(map[string]bool), waits: make(map[string]string)}
	for i := range pods {
		p := &pods[i]
		if !w.has(k, p) {
			continue
		}
		name := p.Labels[v1alpha1.LabelHost]
		if p.Labels[v1alpha1.LabelRole] == v1alpha1.RoleLeaf {
			name = leafOn(nodeOf(p))
		}
		if podReady(p) {
			own.ready[name] = true
		} else if text := unplaced(p); text != "" {
			own.waits[name] = text
		}
	}
	return own
}

// unplaced returns what the scheduler says of a Pod for which it finds no place.
func unplaced(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// nodeOf returns the node of a DaemonSet's Pod, also before the scheduler has placed it: the cluster asks for it by its name.
func nodeOf(p *corev1.Pod) string {
	a := p.Spec.Affinity
	if p.Spec.NodeName != "" || a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}
