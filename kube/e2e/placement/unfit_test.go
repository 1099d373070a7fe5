package placement

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// The two spare nodes of the last group are of the rack that does not fit.
var spare = []string{nodeName(groups-1, rackNodes), nodeName(groups-1, rackNodes+1)}

const three = `      - {name: "cn[0-2]", role: compute}
`

// tooFewNodes has a rack for more nodes than there are of its group: nothing of it is made. With one more node it is ready.
func tooFewNodes(c *cluster) {
	for _, name := range spare {
		c.kubectl("label", "node", name, "--overwrite", "group=small")
	}
	c.create(rackText("wide", "small", 3, three))
	c.phase("wide", v1alpha1.PhasePending, v1alpha1.ConditionPlaced, "TooFewNodes", "2 of 3 nodes are ready")
	leaves, sets := new(v1alpha1.RackLeafList), new(appsv1.StatefulSetList)
	must(c.t, c.get(leaves, "-n", "lab", "rackleaves", "-l", v1alpha1.LabelRack+"=wide"))
	must(c.t, c.get(sets, "-n", "lab", "statefulsets", "-l", v1alpha1.LabelRack+"=wide"))
	if len(leaves.Items)+len(sets.Items) > 0 {
		c.t.Errorf("of a rack without nodes there are %d RackLeafs and %d StatefulSets", len(leaves.Items), len(sets.Items))
	}
	c.kubectl("label", "node", nodeName(groups-2, rackNodes), "--overwrite", "group=small")
	c.phase("wide", v1alpha1.PhaseReady, v1alpha1.ConditionPlaced, "Placed", "leaf0 on "+nodeName(groups-2, rackNodes))
	c.kubectl("-n", "lab", "delete", "rack", "wide")
}

// tooFewPorts has a rack for nodes with three ports each, which would need four on each: a leaf and three hosts. The scheduler
// does not find a place for one of the four, and the Rack says so. With more ports it is ready.
func tooFewPorts(c *cluster) {
	for _, name := range spare {
		c.devices(name, 3)
		c.kubectl("label", "node", name, "--overwrite", "group=tight")
	}
	c.create(rackText("tight", "tight", 2, `      - {name: "cn[0-5]", role: compute}`+"\n"))
	c.eventually(func() error {
		k, err := c.rack("tight")
		if err != nil {
			return err
		}
		pods := new(corev1.PodList)
		if err := c.get(pods, "-n", "lab", "pods", "-l", v1alpha1.LabelRack+"=tight"); err != nil {
			return err
		}
		waits := 0
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == "" {
				waits++
			}
		}
		const reason, text = "Unschedulable", "Insufficient " + v1alpha1.ResourcePort
		if said := says(k, v1alpha1.ConditionVerified, reason, text) || says(k, v1alpha1.ConditionConnected, reason, text); waits != 2 || !said || k.Status.Phase != v1alpha1.PhaseStarting {
			return fmt.Errorf("%d of %d Pods wait; %s: %+v", waits, len(pods.Items), k.Status.Phase, k.Status.Conditions)
		}
		return nil
	})
	for _, name := range spare {
		c.devices(name, 64)
	}
	c.phase("tight", v1alpha1.PhaseReady, v1alpha1.ConditionVerified, "Verified", "")
	c.kubectl("-n", "lab", "delete", "rack", "tight")
}

// devices lets a node offer so many ports and NICs.
func (c *cluster) devices(node string, n int) {
	c.t.Helper()
	offered := fmt.Sprintf(`{%q:"%d",%q:"%d"}`, v1alpha1.ResourcePort, n, v1alpha1.ResourceNIC, n)
	c.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"capacity":%s,"allocatable":%s}}`, offered, offered))
}

// remove deletes all Racks: nothing of them is left.
func remove(c *cluster) {
	c.kubectl("-n", "lab", "delete", "racks", "--all")
	c.eventually(func() error {
		out, err := c.lab.Kubectl(c.t.Context(), "", "-n", "lab", "get", "racks,rackleaves,daemonsets,statefulsets,pods", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("%d are left: %.200s", strings.Count(out, "\n"), out)
		}
		return err
	})
}
