// Package api tests the operator with a real API server and etcd: `make e2e-kube`.
package api

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// The API server refuses what the schema says, and any change of what is fixed; the operator refuses a text that is no rack,
// and says why.
func TestRefused(t *testing.T) {
	cfg, c := apiServer(t)
	ctx := t.Context()
	for want, change := range map[string]func(*v1alpha1.Rack){
		"greater than or equal to 2": func(k *v1alpha1.Rack) { k.Spec.Nodes = 1 },
		"less than or equal to 16":   func(k *v1alpha1.Rack) { k.Spec.Nodes = 17 },
		"at least 1 chars":           func(k *v1alpha1.Rack) { k.Spec.Rack = "" },
		"at most 30 characters":      func(k *v1alpha1.Rack) { k.Name = strings.Repeat("x", 31) },
		"users":                      func(k *v1alpha1.Rack) { k.Spec.Users = []string{"../x"} },
	} {
		k := rackOf("bad", hosts)
		change(k)
		if err := c.Create(ctx, k); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	defer runs(t, cfg)()
	k := rackOf("text", "hosts:\n  - {name: cn0, role: compyte}\n")
	must(t, c.Create(ctx, k))
	eventually(t, func() error {
		must(t, c.Get(ctx, client.ObjectKeyFromObject(k), k))
		if k.Status.Phase != v1alpha1.PhaseRefused || k.Status.ObservedGeneration != k.Generation {
			return fmt.Errorf("phase %q of generation %d", k.Status.Phase, k.Status.ObservedGeneration)
		}
		return nil
	})
	if text := k.Status.Conditions[0].Message; !strings.Contains(text, "spec.rack:2:") || !strings.Contains(text, "did you mean compute?") {
		t.Errorf("the text of a mistake: %s", text)
	}
	k.Spec.Rack = hosts
	if err := c.Update(ctx, k); err == nil || !strings.Contains(err.Error(), "all but users is fixed") {
		t.Errorf("the text of a rack was changed: %v", err)
	}
	must(t, c.Get(ctx, client.ObjectKeyFromObject(k), k))
	k.Spec.Users = []string{"team"}
	must(t, c.Update(ctx, k))
	must(t, c.Delete(ctx, k))
	eventually(t, func() error { return gone(c.Get(ctx, client.ObjectKeyFromObject(k), k)) })
}

// A rack waits for nodes, is placed on the first ones by name, stays there, and becomes Ready by what leaves and Pods report.
func TestPlacedAndReady(t *testing.T) {
	cfg, c := apiServer(t)
	ctx := t.Context()
	stop := runs(t, cfg)
	k := rackOf("r0", hosts)
	must(t, c.Create(ctx, k))
	phase := func(want v1alpha1.Phase) {
		t.Helper()
		eventually(t, func() error {
			must(t, c.Get(ctx, client.ObjectKeyFromObject(k), k))
			if k.Status.Phase != want {
				return fmt.Errorf("%s, not %s: %+v", k.Status.Phase, want, k.Status.Conditions)
			}
			return nil
		})
	}
	nodeOf(t, c, "b")
	phase(v1alpha1.PhasePending)
	nodeOf(t, c, "c")
	phase(v1alpha1.PhaseStarting)
	stop()
	nodeOf(t, c, "a") // comes first by name, and too late
	defer runs(t, cfg)()
	var leaves v1alpha1.RackLeafList
	must(t, c.List(ctx, &leaves))
	where := map[string]string{}
	for _, l := range leaves.Items {
		where[l.Spec.Leaf] = l.Spec.Node + " " + strings.Join(l.Spec.Hosts, " ")
	}
	if len(where) != 2 || where["leaf0"] != "b cn0 ms0" || where["leaf1"] != "c cn1" {
		t.Errorf("placed: %v", where)
	}
	var sets appsv1.StatefulSetList
	eventually(t, func() error {
		must(t, c.List(ctx, &sets))
		if len(sets.Items) != 3 {
			return fmt.Errorf("%d StatefulSets", len(sets.Items))
		}
		return nil
	})
	for _, s := range sets.Items {
		for _, tol := range s.Spec.Template.Spec.Tolerations {
			if tol.TolerationSeconds != nil {
				t.Errorf("%s does not tolerate a lost node for ever", s.Name)
			}
		}
	}
	daemons := &appsv1.DaemonSet{}
	must(t, c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "r0-leaf"}, daemons))
	for i := range leaves.Items {
		l := &leaves.Items[i]
		l.Status = v1alpha1.RackLeafStatus{Address: "10.0.0.1", Epoch: 1, Version: "v1", Trunks: []v1alpha1.LinkStatus{{Name: "leaf0-leaf1", Up: true}}}
		must(t, c.Status().Update(ctx, l))
		podOf(t, c, daemons, "leaf-"+l.Spec.Node, l.Spec.Node, map[string]string{v1alpha1.LabelRole: v1alpha1.RoleLeaf})
	}
	// What anybody has made with the rack's labels is none of its Pods.
	for i, s := range sets.Items {
		podOf(t, c, nil, fmt.Sprint("stranger", i), "b", map[string]string{v1alpha1.LabelHost: s.Spec.Template.Labels[v1alpha1.LabelHost]})
	}
	eventually(t, func() error {
		must(t, c.Get(ctx, client.ObjectKeyFromObject(k), k))
		if k.Status.Hosts != "0/3" || k.Status.Leaves != "2/2" {
			return fmt.Errorf("hosts %s, leaves %s", k.Status.Hosts, k.Status.Leaves)
		}
		return nil
	})
	foreign := sets.Items[0].DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: "foreign", Labels: foreign.Labels}
	must(t, c.Create(ctx, foreign))
	for i := range sets.Items {
		h := sets.Items[i].Spec.Template.Labels[v1alpha1.LabelHost]
		podOf(t, c, &sets.Items[i], h, "b", map[string]string{v1alpha1.LabelHost: h})
	}
	phase(v1alpha1.PhaseReady)
	// A trunk that is down, and a node that is lost, make the rack Degraded; nothing is moved.
	l := &leaves.Items[0]
	must(t, c.Get(ctx, client.ObjectKeyFromObject(l), l))
	l.Status.Trunks[0].Up = false
	must(t, c.Status().Update(ctx, l))
	phase(v1alpha1.PhaseDegraded)
	l.Status.Trunks[0].Up = true
	must(t, c.Status().Update(ctx, l))
	phase(v1alpha1.PhaseReady)
	n := new(corev1.Node)
	must(t, c.Get(ctx, client.ObjectKey{Name: "b"}, n))
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	must(t, c.Status().Update(ctx, n))
	phase(v1alpha1.PhaseDegraded)
	if got := strings.Join(k.Status.Lost, " "); got != "cn0 ms0" {
		t.Errorf("lost: %q", got)
	}
	// Pods on a lost node do not keep a Rack from being deleted; others do, until they are gone.
	must(t, c.Delete(ctx, k))
	eventually(t, func() error { must(t, c.List(ctx, &sets)); return none(len(sets.Items) - 1) })
	if len(sets.Items) != 1 || sets.Items[0].Name != "foreign" {
		t.Errorf("the foreign StatefulSet is gone: %v", sets.Items)
	}
	must(t, c.Get(ctx, client.ObjectKeyFromObject(k), k))
	must(t, c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "leaf-c"}}, client.GracePeriodSeconds(0)))
	eventually(t, func() error { return gone(c.Get(ctx, client.ObjectKeyFromObject(k), k)) })
}

// An operator of another version changes the version of the RackLeafs that are there, and nothing else of them.
func TestUpgrade(t *testing.T) {
	cfg, c := apiServer(t)
	ctx := t.Context()
	nodeOf(t, c, "a")
	nodeOf(t, c, "b")
	stop := runs(t, cfg)
	must(t, c.Create(ctx, rackOf("r0", hosts)))
	var leaves v1alpha1.RackLeafList
	of := func(version string) error {
		must(t, c.List(ctx, &leaves))
		if len(leaves.Items) != 2 {
			return fmt.Errorf("%d leaves", len(leaves.Items))
		}
		for _, l := range leaves.Items {
			if l.Spec.Version != version {
				return fmt.Errorf("%s has version %q, not %q", l.Name, l.Spec.Version, version)
			}
		}
		return nil
	}
	eventually(t, func() error { return of("v1") })
	before := leaves.Items[0].DeepCopy()
	stop()
	defer runsAs(t, cfg, "v2")()
	eventually(t, func() error { return of("v2") })
	l := &leaves.Items[0]
	if l.UID != before.UID || l.Spec.Node != before.Spec.Node {
		t.Errorf("%+v became %+v", before.Spec, l.Spec)
	}
	l.Spec.Node = "c"
	if err := c.Update(ctx, l); err == nil || !strings.Contains(err.Error(), "keeps its rack, node, leaf and machine") {
		t.Errorf("a RackLeaf was moved: %v", err)
	}
}

// What another Rack of the name has left is not taken: the Rack says so, and goes on when it is gone.
func TestNotOfThisRack(t *testing.T) {
	cfg, c := apiServer(t)
	ctx := t.Context()
	nodeOf(t, c, "a")
	nodeOf(t, c, "b")
	old := &v1alpha1.RackLeaf{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r0-leaf0", Labels: map[string]string{v1alpha1.LabelRack: "r0"}},
		Spec:       v1alpha1.RackLeafSpec{Rack: "r0", Node: "gone", Leaf: "leaf0", Machine: "n0", Version: "v1"},
	}
	must(t, c.Create(ctx, old))
	k := rackOf("r0", hosts)
	must(t, c.Create(ctx, k))
	defer runs(t, cfg)()
	eventually(t, func() error {
		must(t, c.Get(ctx, client.ObjectKeyFromObject(k), k))
		for _, d := range k.Status.Conditions {
			if d.Type == v1alpha1.ConditionPlaced && d.Status == metav1.ConditionFalse && d.Reason == "Error" && strings.Contains(d.Message, "r0-leaf0 is not of this Rack") {
				return nil
			}
		}
		return fmt.Errorf("%+v", k.Status.Conditions)
	})
	var sets appsv1.StatefulSetList
	must(t, c.List(ctx, &sets))
	must(t, none(len(sets.Items)))
	foreign := daemonsOf("r0-leaf") // of another user, without the label of a rack
	must(t, c.Create(ctx, foreign))
	must(t, c.Delete(ctx, old))
	eventually(t, func() error {
		must(t, c.Get(ctx, client.ObjectKeyFromObject(k), k))
		for _, d := range k.Status.Conditions {
			if d.Type == v1alpha1.ConditionPlaced && d.Status == metav1.ConditionFalse && strings.Contains(d.Message, "r0-leaf is not of this Rack") {
				return nil
			}
		}
		return fmt.Errorf("%+v", k.Status.Conditions)
	})
	must(t, c.Delete(ctx, foreign))
	eventually(t, func() error {
		must(t, c.List(ctx, &sets))
		if len(sets.Items) != 3 {
			return fmt.Errorf("%d StatefulSets", len(sets.Items))
		}
		return nil
	})
	// A workload of another user, whose Pods have the rack's label and itself has not, does not keep the Rack.
	other := daemonsOf("r0-client")
	must(t, c.Create(ctx, other))
	podOf(t, c, other, "r0-client-a", "a", map[string]string{v1alpha1.LabelHost: "cn0"})
	must(t, c.Delete(ctx, k))
	eventually(t, func() error { return gone(c.Get(ctx, client.ObjectKeyFromObject(k), k)) })
}

// daemonsOf is a DaemonSet without the label of a rack.
func daemonsOf(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return d
}

// Fifty racks, whose operator is stopped and started in the middle, are all placed; and all go.
func TestManyRacksAndAnOperatorThatStops(t *testing.T) {
	const racks = 50
	cfg, c := apiServer(t)
	ctx := t.Context()
	nodeOf(t, c, "a")
	nodeOf(t, c, "b")
	stop := runs(t, cfg)
	for i := range racks {
		must(t, c.Create(ctx, rackOf(fmt.Sprintf("r%d", i), hosts)))
	}
	var sets appsv1.StatefulSetList
	count := func(want int) error {
		must(t, c.List(ctx, &sets))
		if len(sets.Items) < want {
			return fmt.Errorf("%d of %d StatefulSets", len(sets.Items), want)
		}
		return nil
	}
	eventually(t, func() error { return count(racks) })
	stop()
	stop = runs(t, cfg)
	eventually(t, func() error { return count(racks * 3) })
	for i := range racks {
		must(t, c.Delete(ctx, rackOf(fmt.Sprintf("r%d", i), hosts)))
	}
	var list v1alpha1.RackList
	left := func() int { must(t, c.List(ctx, &list)); return len(list.Items) }
	eventually(t, func() error { return none(max(0, left()-racks/2)) })
	stop()
	defer runs(t, cfg)()
	eventually(t, func() error { return none(left()) })
}
