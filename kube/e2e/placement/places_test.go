package placement

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// everyPlace compares RackLeafs, workloads and what the scheduler has done with what the Racks say. The statuses of workloads
// come later than the Racks': the cluster's controllers write them one after the other.
func everyPlace(c *cluster) {
	want := wantedPlaces()
	c.eventually(func() error {
		got, err := c.places()
		if err != nil {
			return err
		}
		for name, place := range want {
			if got[name] != place {
				return fmt.Errorf("%s: %q, want %q", name, got[name], place)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("%d places, want %d: %v", len(got), len(want), got)
		}
		return nil
	})
	c.t.Logf("%d objects are where they belong", len(want))
}

// wantedPlaces are the nodes of leaves and hosts, and the counts of workloads, as the Racks of racksReady say.
func wantedPlaces() map[string]string {
	want := map[string]string{}
	for g := range groups {
		rack := rackName(g)
		host := func(name, node string) {
			want[rack+" host "+name] = node + " by default-scheduler"
			want[rack+" StatefulSet "+name] = "1 of 1 is ready"
		}
		for n, node := range on(g) {
			hosts := fmt.Sprintf("cn%d", n)
			host(hosts, node)
			if n == 5 {
				host("big", node)
				hosts += " big"
			}
			want[fmt.Sprintf("%s RackLeaf leaf%d", rack, n)] = node + " " + hosts
			want[rack+" leaf on "+node] = node + " by default-scheduler"
		}
		want[rack+" DaemonSet"] = "8 of 8 are ready"
	}
	return want
}

// places are what is there of wantedPlaces. What there are two of has a name of its own.
func (c *cluster) places() (map[string]string, error) {
	leaves, daemons, sets, pods := new(v1alpha1.RackLeafList), new(appsv1.DaemonSetList), new(appsv1.StatefulSetList), new(corev1.PodList)
	for into, kind := range map[any]string{leaves: "rackleaves", daemons: "daemonsets", sets: "statefulsets", pods: "pods"} {
		if err := c.get(into, "-n", "lab", kind); err != nil {
			return nil, err
		}
	}
	got := map[string]string{}
	put := func(labels map[string]string, name, place string) {
		name = labels[v1alpha1.LabelRack] + " " + name
		for got[name] != "" {
			name += " again"
		}
		got[name] = place
	}
	for _, l := range leaves.Items {
		put(l.Labels, "RackLeaf "+l.Spec.Leaf, l.Spec.Node+" "+strings.Join(l.Spec.Hosts, " "))
	}
	for _, d := range daemons.Items {
		put(d.Labels, "DaemonSet", fmt.Sprintf("%d of %d are ready", d.Status.NumberReady, d.Status.DesiredNumberScheduled))
	}
	for _, s := range sets.Items {
		put(s.Labels, "StatefulSet "+s.Spec.Template.Labels[v1alpha1.LabelHost], fmt.Sprintf("%d of %d is ready", s.Status.ReadyReplicas, s.Status.Replicas))
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		name := "host " + p.Labels[v1alpha1.LabelHost]
		if p.Labels[v1alpha1.LabelRole] == v1alpha1.RoleLeaf {
			name = "leaf on " + p.Spec.NodeName
		}
		put(p.Labels, name, p.Spec.NodeName+" by "+p.Spec.SchedulerName)
	}
	return got, nil
}
