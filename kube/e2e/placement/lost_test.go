package placement

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// heartbeat takes a node out of kwok's hands. The cluster gives it up when it has heard nothing of it for a while; its rack, and
// no other one, is Degraded with the names of the hosts there, which stay where they are. When the node is heard of again, the
// rack is Ready.
func heartbeat(c *cluster) {
	const group, n = 3, 5
	node, rack := nodeName(group, n), rackName(group)
	before := c.uids(rack)
	c.kubectl("label", "node", node, played+"-")
	c.node(node, false)
	c.lost(rack, node)
	c.kubectl("label", "node", node, played+"=yes")
	c.node(node, true)
	c.found(rack)
	if after := c.uids(rack); !slices.Equal(after, before) {
		c.t.Errorf("Pods were made again: %v, before %v", after, before)
	}
}

// nodeDeleted deletes a node, with which the cluster removes the Pods there. The rack waits for a node of this name.
func nodeDeleted(c *cluster) {
	const group, n = 4, 5
	node, rack := nodeName(group, n), rackName(group)
	before := c.uids(rack)
	c.kubectl("delete", "node", node)
	c.lost(rack, node)
	c.eventually(func() error { // the new Pods of the two hosts have no node
		pods := new(corev1.PodList)
		if err := c.get(pods, "-n", "lab", "pods", "-l", v1alpha1.LabelRack+"="+rack+","+v1alpha1.LabelHost); err != nil {
			return err
		}
		waits := 0
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == "" {
				waits++
			}
		}
		if waits != 2 {
			return fmt.Errorf("%d hosts wait for their node", waits)
		}
		return nil
	})
	c.create(nodeText(node, fmt.Sprintf("g%d", group), 64))
	c.node(node, true)
	c.found(rack)
	left := 0
	for _, id := range c.uids(rack) {
		if slices.Contains(before, id) {
			left++
		}
	}
	if left != len(before)-3 { // a leaf and two hosts
		c.t.Errorf("%d of %d Pods are the same", left, len(before))
	}
}

// lost waits until a rack says that the hosts of a node are lost, and looks at the others.
func (c *cluster) lost(rack, node string) {
	c.t.Helper()
	k := c.phase(rack, v1alpha1.PhaseDegraded, v1alpha1.ConditionPlaced, "NodeLost", "nodes that do not work: "+node+"; lost with them: cn5 big")
	if !slices.Equal(k.Status.Lost, []string{"cn5", "big"}) {
		c.t.Errorf("lost: %v", k.Status.Lost)
	}
	c.eventually(func() error { // the cluster says of Pods there that they are not ready, or removes them
		k, err := c.rack(rack)
		if err == nil && (k.Status.Leaves != "7/8" || k.Status.Hosts != "7/9" || !says(k, v1alpha1.ConditionVerified, "HostsNotReady", "cn5") && !says(k, v1alpha1.ConditionVerified, "Unschedulable", "cn5")) {
			err = fmt.Errorf("%+v", k.Status)
		}
		return err
	})
	for g := range groups {
		if rackName(g) == rack {
			continue
		}
		k, err := c.rack(rackName(g))
		must(c.t, err)
		if k.Status.Phase != v1alpha1.PhaseReady || len(k.Status.Lost) > 0 {
			c.t.Errorf("%s is %s, and has lost %v, though %s is none of its nodes", k.Name, k.Status.Phase, k.Status.Lost, node)
		}
	}
}

// found waits until a rack is whole again.
func (c *cluster) found(rack string) {
	c.t.Helper()
	k := c.phase(rack, v1alpha1.PhaseReady, v1alpha1.ConditionPlaced, "Placed", "")
	if len(k.Status.Lost) > 0 || k.Status.Leaves != "8/8" || k.Status.Hosts != "9/9" {
		c.t.Errorf("%s: %+v", rack, k.Status)
	}
}

// uids returns the UIDs of a rack's Pods in their order.
func (c *cluster) uids(rack string) (list []string) {
	c.t.Helper()
	pods := new(corev1.PodList)
	must(c.t, c.get(pods, "-n", "lab", "pods", "-l", v1alpha1.LabelRack+"="+rack))
	for i := range pods.Items {
		list = append(list, string(pods.Items[i].UID))
	}
	slices.Sort(list)
	return list
}
