package operator

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
)

// What the scheduler says of a Pod for which it finds no place is in the condition that waits for the Pod: of a host in Verified,
// of a leaf, which has no node yet but that of its affinity, in Connected.
func TestPodsWithoutAPlace(t *testing.T) {
	scheme, err := Scheme()
	must(t, err)
	k := rackOf("1")
	r, err := rackspec.Parse("r0", hosts, 2)
	must(t, err)
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "r0-leaf", UID: "10"}}
	must(t, controllerutil.SetControllerReference(k, daemons, scheme))
	pod := func(labels map[string]string, node, wants, scheduler string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Labels: labels}}
		must(t, controllerutil.SetControllerReference(daemons, &p, scheme))
		p.Spec.NodeName = node
		if wants != "" {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{wants}}}}},
			}}}
		}
		c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		if scheduler != "" {
			c = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: scheduler}
		}
		p.Status.Conditions = []corev1.PodCondition{c}
		return p
	}
	leaf := map[string]string{v1alpha1.LabelRole: v1alpha1.RoleLeaf}
	pods := []corev1.Pod{
		pod(leaf, "a", "a", ""), pod(leaf, "", "b", "no port for the leaf"),
		pod(map[string]string{v1alpha1.LabelHost: "cn0"}, "a", "", ""), pod(map[string]string{v1alpha1.LabelHost: "cn1"}, "", "", "no port for cn1"),
	}
	var leaves []v1alpha1.RackLeaf
	var nodes []corev1.Node
	for n, name := range []string{"a", "b"} {
		l := leafOf(k, r, n, name, "v1")
		l.Status.Epoch = 1
		leaves = append(leaves, l)
		nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	observe(k, r, leaves, nodes, workloads{daemons.UID: daemons}.say(k, pods), "v1")
	for condition, want := range map[string][]string{
		v1alpha1.ConditionConnected: {"leaf1 cannot be on node b: no port for the leaf"},
		v1alpha1.ConditionVerified:  {"not ready: cn1 ms0", "cn1 cannot be on its node: no port for cn1"},
	} {
		for _, c := range k.Status.Conditions {
			if c.Type != condition {
				continue
			}
			for _, text := range want {
				if c.Reason != unschedulable || !strings.Contains(c.Message, text) {
					t.Errorf("%s: %s %q, want %q", condition, c.Reason, c.Message, text)
				}
			}
		}
	}
	if k.Status.Leaves != "1/2" || k.Status.Hosts != "1/3" || len(k.Status.Conditions) < 3 {
		t.Errorf("%+v", k.Status)
	}

	// A leaf that is not ready, behind the one without a place, does not hide what the scheduler says; a gate is not the scheduler's.
	waiting := podsOf{waits: map[string]string{leafOn("a"): "no port for the leaf"}, ready: map[string]bool{}}
	connect(k, leaves, true, waiting)
	for _, c := range k.Status.Conditions {
		if c.Type == v1alpha1.ConditionConnected && (c.Reason != unschedulable || c.Message != "leaf0 cannot be on node a: no port for the leaf") {
			t.Errorf("%s: %s %q", c.Type, c.Reason, c.Message)
		}
	}
	gated := pod(leaf, "", "b", "gated")
	gated.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
	if text := unplaced(&gated); text != "" {
		t.Errorf("a gated Pod has no place: %q", text)
	}
}
