package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// A hundred nodes in ten groups, and a rack of eight nodes in each. Group 0 has two nodes that none may be on, so its rack is on
// the other eight; of each other group the rack is on the first eight by name.
const (
	groups, groupSize = 10, 10
	rackNodes         = 8
	cordoned, noNICs  = "f00", "f01"
)

func nodeName(group, n int) string { return fmt.Sprintf("f%d%d", group, n) }
func rackName(group int) string    { return fmt.Sprintf("r%d", group) }

// on returns the nodes on which the rack of a group belongs.
func on(group int) (list []string) {
	for n := range groupSize {
		if name := nodeName(group, n); name != cordoned && name != noNICs {
			list = append(list, name)
		}
	}
	return list[:rackNodes]
}

// nodeText is a node that kwok plays, with so many ports and NICs.
func nodeText(name, group string, devices int) string {
	offered := fmt.Sprintf(`{cpu: "8", memory: 16Gi, pods: "110", rdmalab.io/port: "%d", rdmalab.io/nic: "%d"}`, devices, devices)
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {kubernetes.io/hostname: %s, %s: "yes", group: %s}}
spec: {unschedulable: %v}
status: {allocatable: %s, capacity: %s}
`, name, name, played, group, name == cordoned, offered, offered)
}

// rackText is a rack on nodes of a group.
func rackText(name, group string, nodes int, hosts string) string {
	return fmt.Sprintf(`
---
apiVersion: rdmalab.io/v1alpha1
kind: Rack
metadata: {name: %s, namespace: lab}
spec:
  nodes: %d
  nodeSelector: {group: %s}
  rack: |
    hosts:
%s`, name, nodes, group, hosts)
}

// eight are a compute host on each of eight nodes, one after the other, and a memory server where the text says.
const eight = `      - {name: "cn[0-7]", role: compute}
      - {name: big, role: memory, machine: n5}
`

func TestPlacement(t *testing.T) {
	c := start(t)
	step := func(name string, f func(c *cluster)) {
		if !t.Failed() {
			t.Run(name, func(t *testing.T) { f(c.with(t)) })
		}
	}
	step("a hundred nodes are ready", nodesReady)
	step("ten racks are ready", racksReady)
	step("every leaf and host is where its Rack says", everyPlace)
	step("a rack with too few nodes", tooFewNodes)
	step("a rack with too few ports", tooFewPorts)
	step("a node's heartbeat stops, and comes back", heartbeat)
	step("a node is deleted, and made again", nodeDeleted)
	step("all racks go", remove)
}

func nodesReady(c *cluster) {
	c.create("apiVersion: v1\nkind: Namespace\nmetadata: {name: lab, labels: {pod-security.kubernetes.io/enforce: privileged}}\n")
	var b strings.Builder
	for g := range groups {
		for n := range groupSize {
			devices := 64
			if nodeName(g, n) == noNICs {
				devices = 0
			}
			b.WriteString(nodeText(nodeName(g, n), fmt.Sprintf("g%d", g), devices))
		}
	}
	c.create(b.String())
	took := c.eventually(func() error {
		list := new(corev1.NodeList)
		if err := c.get(list, "nodes"); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if n := &list.Items[i]; works(n) && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }) {
				ready++
			}
		}
		if ready != groups*groupSize {
			return fmt.Errorf("%d nodes are ready", ready)
		}
		return nil
	})
	c.t.Logf("%d nodes are ready after %v", groups*groupSize, took)
}

func racksReady(c *cluster) {
	var b strings.Builder
	for g := range groups {
		b.WriteString(rackText(rackName(g), fmt.Sprintf("g%d", g), rackNodes, eight))
	}
	c.create(b.String())
	for g := range groups {
		k := c.phase(rackName(g), v1alpha1.PhaseReady, v1alpha1.ConditionPlaced, "Placed", "leaf0 on "+on(g)[0]+", leaf1 on "+on(g)[1])
		if k.Status.Leaves != "8/8" || k.Status.Hosts != "9/9" || len(k.Status.Lost) != 0 {
			c.t.Errorf("%s: %+v", k.Name, k.Status)
		}
		for _, want := range []struct{ condition, reason, text string }{
			{v1alpha1.ConditionAccepted, "Accepted", "9 hosts on 8 nodes"},
			{v1alpha1.ConditionConnected, "Connected", "of 8 leaves are up"},
			{v1alpha1.ConditionVerified, "Verified", "all hosts answer"},
			{"Current", "Current", ""},
		} {
			if !says(k, want.condition, want.reason, want.text) {
				c.t.Errorf("%s: not %v: %+v", k.Name, want, k.Status.Conditions)
			}
		}
	}
}
