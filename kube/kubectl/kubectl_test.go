package kubectl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
)

// A mistake in the words is found before a cluster is asked: it has one line that says what to do, and exit status 2.
func TestMistakes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv(envImage, "")
	for words, want := range map[string]string{
		"fly r0": "unknown command", "inject": "name the Rack: `kubectl rdmalab inject RACK", "counters --all r0": "name the Rack first", "status": "see `kubectl rdmalab --help`",
		"status r0 -o yaml": "use json", "exec r0 ms0 -- ls": "--image", "exec r0 ms0 ls": "PROGRAM", "evacuate n1 --yes --undo": "undo", "crash r0": "accepts 2",
		"status r0": "kubeconfig", "qps r0 cn0": "kubeconfig", "-x": "unknown shorthand",
	} {
		var out bytes.Buffer
		code := run(t.Context(), strings.Fields(words), strings.NewReader(""), &out, &out)
		if code != exitUsage || strings.Count(out.String(), "\n") != 1 || !strings.HasPrefix(out.String(), name+": ") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit status %d, %q; want 2, and %q in it", words, code, &out, want)
		}
	}
	for _, words := range []string{"", "--help", "inject --help", "version", "-n lab status --help"} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(words), strings.NewReader(""), &out, &out); code != 0 || out.Len() == 0 {
			t.Errorf("%q: exit status %d: %s", words, code, &out)
		}
	}
}

// viewOf makes the view of a rack of two nodes.
func viewOf(t *testing.T) *view {
	t.Helper()
	text := "hosts:\n  - {name: cn0, role: compute}\n  - {name: \"ms[0-1]\", role: memory}\n"
	spec, err := rackspec.Parse("r0", text, 2)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{cluster: &cluster{namespace: "lab", typed: "kubectl rdmalab -n lab"}, rack: &v1alpha1.Rack{}, spec: spec, pods: map[string]*corev1.Pod{}}
	v.rack.Name = "r0"
	v.rack.Status = v1alpha1.RackStatus{
		Phase: v1alpha1.PhaseDegraded, Lost: []string{"ms0"}, Conditions: []metav1.Condition{{Type: "Placed", Status: "False", Reason: "NodeLost", Message: "a\nb"}},
	}
	for n := range 2 {
		l := v1alpha1.RackLeaf{Spec: v1alpha1.RackLeafSpec{Leaf: rackspec.Leaf(n), Machine: rackspec.Machine(n), Node: []string{"east", "west"}[n]}}
		l.Status = v1alpha1.RackLeafStatus{Version: "v1", Trunks: []v1alpha1.LinkStatus{{Name: "leaf0-leaf1", Up: n == 0, Trouble: "silent"}}}
		v.leaves = append(v.leaves, l)
	}
	return v
}

func podOf(name, node string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3, State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)}}}
	return p
}

// Pods are known by the names of the rack: a leaf's by its node, and none that ends.
func TestNamesOfPods(t *testing.T) {
	v := viewOf(t)
	ends := podOf("r0-ms1-0", "west", map[string]string{v1alpha1.LabelHost: "ms1"})
	ends.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for want, p := range map[string]*corev1.Pod{
		"leaf1": podOf("r0-leaf-x", "west", map[string]string{v1alpha1.LabelRole: v1alpha1.RoleLeaf}), "ms0": podOf("r0-ms0-0", "east", map[string]string{v1alpha1.LabelHost: "ms0"}), "": ends,
	} {
		if got := v.nodeOf(p); got != want {
			t.Errorf("Pod %s is of %q, want %q", p.Name, got, want)
		}
		v.pods[want] = p
	}
	if _, err := v.pod("ms1"); err == nil || !strings.Contains(err.Error(), "`kubectl rdmalab -n lab status r0`") {
		t.Errorf("a host without a Pod: %v", err)
	}
	if _, err := v.pod("ms9"); err == nil || !strings.Contains(err.Error(), "it has: leaf0 leaf1 cn0 ms0 ms1") {
		t.Errorf("a host that is not there: %v", err)
	}
	var out bytes.Buffer
	if err := v.status().write(&out); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"rack lab/r0 is Degraded", "Placed False NodeLost a; b", "leaf0 east no Pod 0 v1 leaf0-leaf1 up", "leaf1 west yes 3 v1 leaf0-leaf1 silent",
		"cn0 compute east leaf0", "lost with their node: ms0",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
}

// The Pod of a program may be in a namespace of level restricted, and has the NIC of the host.
func TestPodOfAProgram(t *testing.T) {
	v := viewOf(t)
	v.pods["ms0"] = podOf("r0-ms0-0", "east", nil)
	p := v.podFor("ms0", "image:1", []string{"ls"})
	c := p.Spec.Containers[0]
	if p.Annotations[v1alpha1.AnnotationRack] != "lab/r0" || p.Annotations[v1alpha1.AnnotationHost] != "ms0" || p.Spec.NodeSelector[corev1.LabelHostname] != "east" ||
		c.Resources.Limits.Name(v1alpha1.ResourceNIC, "").String() != "1" || !*c.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation {
		t.Errorf("%+v", p)
	}
}
