package operator

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const hosts = "hosts:\n  - {name: \"cn[0-1]\", role: compute}\n  - {name: ms0, role: memory}\n"

func rackOf(uid string) *v1alpha1.Rack {
	return &v1alpha1.Rack{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "r0", UID: types.UID(uid)}, Spec: v1alpha1.RackSpec{Nodes: 2, Rack: hosts}}
}

// Of the objects that the operator makes and cannot read, a Rack and a former one of its name have none in common, and the
// Pods have those of their own Rack. So no secret is taken over, and none is removed with its former owner.
func TestObjectsOfARackOfTheSameName(t *testing.T) {
	r, err := rackspec.Parse("r0", hosts, 2)
	must(t, err)
	names := map[string]string{} // Rack by kind and name
	for _, uid := range []string{"0a1b2c3d-0000-0000-0000-000000000001", "1a1b2c3d-0000-0000-0000-000000000001"} {
		w := &wanted{Rack: rackOf(uid), rack: r, image: "image:1"}
		list, err := w.objects()
		must(t, err)
		made := map[string]bool{}
		for _, o := range list {
			made[fmt.Sprintf("%T %s", o, o.GetName())] = true
		}
		for _, o := range list {
			var spec *corev1.PodSpec
			switch o := o.(type) {
			case *appsv1.DaemonSet:
				spec = &o.Spec.Template.Spec
				if !made["*v1.ServiceAccount "+spec.ServiceAccountName] {
					t.Errorf("%s has account %s", o.Name, spec.ServiceAccountName)
				}
			case *appsv1.StatefulSet:
				spec = &o.Spec.Template.Spec
			default:
				name := fmt.Sprintf("%T %s", o, o.GetName())
				if names[name] != "" {
					t.Errorf("%s is of both Racks", name)
				}
				names[name] = uid
				continue
			}
			for _, v := range spec.Volumes {
				if v.ConfigMap != nil && !made["*v1.ConfigMap "+v.ConfigMap.Name] || v.Secret != nil && !made["*v1.Secret "+v.Secret.SecretName] {
					t.Errorf("%s has volume %+v", o.GetName(), v)
				}
			}
		}
	}
}

// The network's policy lets pass what the rack file says that the trunks go by.
func TestPolicyLetsTheCarrierPass(t *testing.T) {
	for text, want := range map[string]corev1.Protocol{
		"": corev1.ProtocolUDP, "fabric: {leaves: 2, spines: 0, carrier: tcp}\n": corev1.ProtocolTCP,
	} {
		r, err := rackspec.Parse("r", "hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n"+text, 2)
		if err != nil {
			t.Fatal(err)
		}
		w := &wanted{Rack: rackOf("1"), rack: r, image: "image:1"}
		if got := *w.policy().Spec.Ingress[0].Ports[0].Protocol; got != want {
			t.Errorf("with %q %v passes, want %v", text, got, want)
		}
	}
}

// A Pod is of a Rack by its owners, and not by labels, which anybody may set.
func TestOwners(t *testing.T) {
	scheme, err := Scheme()
	must(t, err)
	k, former := rackOf("1"), rackOf("2")
	set := func(name, uid string, owner *v1alpha1.Rack) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, UID: types.UID(uid)}}
		if owner != nil {
			must(t, controllerutil.SetControllerReference(owner, s, scheme))
		}
		return s
	}
	own, other, old, gone := set("r0-cn0", "10", k), set("r0-x", "11", nil), set("r0-cn1", "12", former), set("r0-ms0", "13", k)
	w := workloads{own.UID: own, other.UID: other, old.UID: old}
	if list := w.of(k); len(list) != 1 || list[0].GetName() != "r0-cn0" {
		t.Errorf("workloads: %v", list)
	}
	for what, c := range map[string]struct {
		owner    client.Object
		has, had bool
	}{
		"own": {own, true, true}, "of a workload that is gone": {gone, false, true}, "of a foreign one": {other, false, false},
		"of a former Rack's": {old, false, false}, "without an owner": {nil, false, false}, "of a workload with another name": {set("x", "14", nil), false, false},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "p", Labels: map[string]string{v1alpha1.LabelRack: "r0", v1alpha1.LabelHost: "cn0"}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if c.owner != nil {
			must(t, controllerutil.SetControllerReference(c.owner, p, scheme))
		}
		if w.has(k, p) != c.has || w.had(k, p) != c.had || w.say(k, []corev1.Pod{*p}).ready["cn0"] != c.has {
			t.Errorf("%s: has %v, had %v", what, w.has(k, p), w.had(k, p))
		}
	}
}

// What a rack on Kubernetes cannot have is refused by name.
func TestUnfit(t *testing.T) {
	for want, text := range map[string]string{
		"fabric": hosts + "fabric: {leaves: 3, spines: 2}\n", "cable": hosts + "cable: memory\n", "nics": "hosts:\n  - {name: cn0, role: compute, nics: 2}\n  - {name: ms0, role: memory}\n",
		"machines":  hosts + "machines: []\n",
		"host leaf": hosts + "  - {name: leaf, role: memory}\n", "host nic": hosts + "  - {name: nic, role: memory}\n",
	} {
		if _, err := rackspec.Parse("r0", text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	r, err := rackspec.Parse("r0", hosts, 2)
	must(t, err)
	if _, err := r.Encode(); err != nil {
		t.Error(err)
	}
}

// A node whose plugin offers only one of the two resources gets no leaf: the leaf's Pod, or that of a user, would wait.
func TestNodeThatOffersOneResource(t *testing.T) {
	some := resource.MustParse("4")
	for text, c := range map[string]struct {
		list corev1.ResourceList
		want bool
	}{
		"both":      {corev1.ResourceList{v1alpha1.ResourceNIC: some, v1alpha1.ResourcePort: some}, true},
		"only NICs": {corev1.ResourceList{v1alpha1.ResourceNIC: some}, false},
		"no NICs":   {corev1.ResourceList{v1alpha1.ResourceNIC: resource.MustParse("0"), v1alpha1.ResourcePort: some}, false},
		"none":      {nil, false},
	} {
		n := corev1.Node{Status: corev1.NodeStatus{Allocatable: c.list, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		if got := len(fit([]corev1.Node{n}, nil)) == 1; got != c.want {
			t.Errorf("%s: fit is %v", text, got)
		}
	}
}

// Leaves and hosts write their logs in the operator's format; without one, their Pods are as before.
func TestLogFormatOfPods(t *testing.T) {
	r, err := rackspec.Parse("r0", hosts, 2)
	must(t, err)
	for format, want := range map[string]string{"": "", "text": "", "json": "--log-format json"} {
		w := &wanted{Rack: rackOf("1"), rack: r, image: "image:1", logs: format}
		for _, program := range []string{"leaf", "host"} {
			args := w.container(program, leafCPU, program).Args
			if got := strings.Join(args[1:], " "); args[0] != program || got != want {
				t.Errorf("format %q: %s has %q, want %q behind its name", format, program, args, want)
			}
		}
	}
}

// Leaves and hosts are fetched as the operator is told; without that, their Pods are as before.
func TestPullPolicyOfPods(t *testing.T) {
	r, err := rackspec.Parse("r0", hosts, 2)
	must(t, err)
	for policy, want := range map[corev1.PullPolicy]corev1.PullPolicy{"": corev1.PullIfNotPresent, corev1.PullNever: corev1.PullNever} {
		w := &wanted{Rack: rackOf("1"), rack: r, image: "image:1", pull: policy}
		if got := w.container("host", hostCPU, "host").ImagePullPolicy; got != want {
			t.Errorf("policy %q: the Pods have %q, want %q", policy, got, want)
		}
	}
}
