package operator

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/rackfile"
)

// observe makes the status of a rack from what is there. It decides alone by its arguments.
func observe(k *v1alpha1.Rack, rack *rackfile.Rack, leaves []v1alpha1.RackLeaf, nodes []corev1.Node, own podsOf, version string) {
	placed := place(k, leaves, nodes)
	connected := connect(k, leaves, placed, own)
	verified := verify(k, rack, own)
	old(k, leaves, version)
	switch {
	case placed && connected && verified:
		k.Status.Phase, k.Status.WasReady = v1alpha1.PhaseReady, true
	case k.Status.WasReady:
		k.Status.Phase = v1alpha1.PhaseDegraded
	default:
		k.Status.Phase = v1alpha1.PhaseStarting
	}
}

// podReady reports whether a Pod is ready, and stays so.
func podReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp.IsZero() && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// place sets the condition Placed, and the hosts that are lost with their nodes.
func place(k *v1alpha1.Rack, leaves []v1alpha1.RackLeaf, nodes []corev1.Node) bool {
	by := make(map[string]*corev1.Node)
	for i := range nodes {
		by[nodes[i].Name] = &nodes[i]
	}
	var where, gone, silent []string
	k.Status.Lost = nil
	for i := range leaves {
		s := &leaves[i].Spec
		n := by[s.Node]
		switch {
		case n == nil || !works(n):
			gone = append(gone, s.Node)
			k.Status.Lost = append(k.Status.Lost, s.Hosts...)
		case !offers(n):
			silent = append(silent, s.Node)
		}
		where = append(where, s.Leaf+" on "+s.Node)
	}
	switch {
	case len(gone) > 0:
		set(k, v1alpha1.ConditionPlaced, false, "NodeLost", fmt.Sprintf("nodes that do not work: %s; lost with them: %s. Nothing is moved: memory is gone. When the nodes are back, their hosts start again with empty memory; to give a node up, delete the Rack and make it again",
			strings.Join(gone, " "), strings.Join(k.Status.Lost, " ")))
	case len(silent) > 0:
		set(k, v1alpha1.ConditionPlaced, false, "PluginMissing", fmt.Sprintf("nodes that do not offer both %s and %s, so that Pods there would get no link: %s: see the events of the nodes",
			v1alpha1.ResourceNIC, v1alpha1.ResourcePort, strings.Join(silent, " ")))
	default:
		set(k, v1alpha1.ConditionPlaced, true, "Placed", strings.Join(where, ", "))
	}
	return len(gone)+len(silent) == 0
}

// unschedulable is the reason of a condition that waits for a Pod for which the scheduler finds no place.
const unschedulable = "Unschedulable"

// linkDown is the reason of Connected while a leaf is not ready, or a port or trunk of it is down.
const linkDown = "LinkDown"

// connect sets the condition Connected.
func connect(k *v1alpha1.Rack, leaves []v1alpha1.RackLeaf, placed bool, own podsOf) bool {
	n, reason, trouble := 0, "", ""
	troubled := func(why, text string) {
		if reason != unschedulable { // the others may wait for the leaf that has no place
			reason, trouble = why, text
		}
	}
	for i := range leaves {
		l := &leaves[i]
		up, first := l.Status.Up()
		switch name := leafOn(l.Spec.Node); {
		case l.Status.Refused != "":
			troubled(linkDown, l.Spec.Leaf+": "+l.Status.Refused)
		case !own.ready[name] && own.waits[name] != "":
			troubled(unschedulable, fmt.Sprintf("%s cannot be on node %s: %s", l.Spec.Leaf, l.Spec.Node, own.waits[name]))
		case !own.ready[name]:
			troubled(linkDown, l.Spec.Leaf+" is not ready")
		case !up:
			troubled(linkDown, l.Spec.Leaf+": "+first)
		default:
			n++
		}
	}
	k.Status.Leaves = fmt.Sprintf("%d/%d", n, len(leaves))
	if trouble != "" {
		set(k, v1alpha1.ConditionConnected, false, reason, trouble)
		return false
	}
	set(k, v1alpha1.ConditionConnected, true, "Connected", fmt.Sprintf("all ports and trunks of %d leaves are up", len(leaves)))
	return placed
}

// verify sets the condition Verified.
func verify(k *v1alpha1.Rack, rack *rackfile.Rack, own podsOf) bool {
	var missing []string
	reason, why := "HostsNotReady", ""
	for _, name := range rack.HostNames() {
		if own.ready[name] {
			continue
		}
		missing = append(missing, name)
		if text := own.waits[name]; text != "" && why == "" {
			reason, why = unschedulable, fmt.Sprintf("; %s cannot be on its node: %s", name, text)
		}
	}
	k.Status.Hosts = fmt.Sprintf("%d/%d", len(rack.Hosts)-len(missing), len(rack.Hosts))
	if len(missing) > 0 {
		set(k, v1alpha1.ConditionVerified, false, reason, "not ready: "+strings.Join(missing, " ")+why)
		return false
	}
	set(k, v1alpha1.ConditionVerified, true, "Verified", "all hosts answer, and compute hosts have reached all memory hosts by WRITE, READ, CAS and FAA")
	return true
}

// ConditionCurrent says whether the leaves have the operator's version.
const ConditionCurrent = "Current"

// old sets the condition Current.
func old(k *v1alpha1.Rack, leaves []v1alpha1.RackLeaf, version string) {
	for i := range leaves {
		if v := leaves[i].Status.Version; v != "" && v != version {
			set(k, ConditionCurrent, false, "OldVersion", fmt.Sprintf("%s has version %q, the operator %q: it works on; delete the Pods of the rack to bring them up to date, with empty memory",
				leaves[i].Spec.Leaf, v, version))
			return
		}
	}
	set(k, ConditionCurrent, true, "Current", version)
}
