package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/cni"
	"github.com/rdmalab/rdmalab/kube/e2e/lab"
)

// life tells one incarnation of a Pod's container from another: the UID of the Pod, and how often the container was started
// again.
type life struct {
	uid      string
	restarts int32
}

// lives returns the lives of the Pods of the rack: leaves by leaf@NODE, hosts by their names.
func (c *cluster) lives() map[string]life {
	c.t.Helper()
	var list corev1.PodList
	c.eventually(patience, func() error { return c.get(&list, "-n", "lab", "pods") })
	out := make(map[string]life)
	for i := range list.Items {
		p := &list.Items[i]
		name := p.Labels[v1alpha1.LabelHost]
		if name == "" {
			name = "leaf@" + p.Spec.NodeName
		}
		l := life{uid: string(p.UID)}
		if len(p.Status.ContainerStatuses) > 0 {
			l.restarts = p.Status.ContainerStatuses[0].RestartCount
		}
		out[name] = l
	}
	return out
}

// same fails unless the Pods called names live on as they did.
func (c *cluster) same(before map[string]life, names ...string) {
	c.t.Helper()
	after := c.lives()
	for _, name := range names {
		if before[name] != after[name] || before[name] == (life{}) {
			c.t.Errorf("%s is not what it was: %+v, before %+v", name, after[name], before[name])
		}
	}
}

var (
	leaves = []string{"leaf@n1", "leaf@n2"}
	hosts  = []string{"cn0", "cn1", "ms0", "ms1"}
	all    = append(append([]string{}, leaves...), hosts...)
)

// works fails unless programs on cn0 reach ms1 on the other node: it runs ib_write_bw between them.
func (c *cluster) works() {
	c.t.Helper()
	c.kubectl("-n", "team", "delete", "pod", "--all", "--wait=true")
	userPod(c)
}

// event waits for an event of an object with a text.
func (c *cluster) event(namespace, object, text string) {
	c.t.Helper()
	c.eventually(patience, func() error {
		out, err := c.Kubectl(c.t.Context(), "", "-n", namespace, "get", "events", "--field-selector", "involvedObject.name="+object, "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("no event of %s says %q: %s", object, text, out)
		}
		return err
	})
}

// offers waits until a node offers so many NICs.
func (c *cluster) offers(n int, want string) {
	c.t.Helper()
	c.eventually(patience, func() error {
		out, err := c.Kubectl(c.t.Context(), "", "get", "node", lab.NodeName(n), "-o", `jsonpath={.status.allocatable.rdmalab\.io/nic}`)
		if err == nil && out != want {
			err = fmt.Errorf("node %d offers %q, not %q", n, out, want)
		}
		return err
	})
}

// pluginLost damages the network's list of a node: what can be repaired is repaired, with an event; what cannot takes the NICs
// away until it is, and the rack says so. Racks that run are not touched.
func pluginLost(c *cluster) {
	before := c.lives()
	list := c.Node(1).Conflist()
	sound, err := os.ReadFile(list)
	must(c.t, err)
	must(c.t, os.Remove(c.Node(1).Plugin(cni.Program)))
	c.event("default", "n1", "was missing, or another program")
	folder := c.Node(1).Plugin(cni.Program) // in place of the program, so that it cannot be installed
	must(c.t, os.Remove(folder))
	must(c.t, os.MkdirAll(filepath.Join(folder, "x"), 0o755))
	c.offers(1, "0")
	c.event("default", "n1", "install /opt/cni/bin/rdmalab-kube-cni")
	c.eventually(patience, func() error {
		k, err := c.rack("r0")
		if err != nil {
			return err
		}
		for _, d := range k.Status.Conditions {
			if d.Type == v1alpha1.ConditionPlaced && d.Reason == "PluginMissing" && k.Status.Phase == v1alpha1.PhaseDegraded {
				return nil
			}
		}
		return fmt.Errorf("%s: %+v", k.Status.Phase, k.Status.Conditions)
	})
	must(c.t, os.RemoveAll(folder))
	must(c.t, replaceFile(list, []byte(strings.ReplaceAll(string(sound), cni.Program, "loopback")))) // sound, without the entry
	c.offers(1, "64")
	text, err := os.ReadFile(list)
	must(c.t, err)
	if !strings.Contains(string(text), cni.Program) {
		c.t.Errorf("the entry is not back: %s", text)
	}
	must(c.t, replaceFile(list, sound))
	c.phase("r0", v1alpha1.PhaseReady)
	c.same(before, all...)
}

// replaceFile writes a file in one step, as those who install networks do.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func kubeletAgain(c *cluster) {
	before := c.lives()
	must(c.t, c.Node(2).KillKubelet())
	// The kubelet counts none until the agent has registered with it again; that it did is what the Pod below needs.
	c.works()
	c.offers(2, "64")
	c.phase("r0", v1alpha1.PhaseReady)
	c.same(before, all...)
}

func apiAgain(c *cluster) {
	before := c.lives()
	c.Stop("apiserver")
	time.Sleep(3 * time.Second) // the fault lasts so long
	must(c.t, c.StartPart("apiserver"))
	must(c.t, c.AwaitAPI(c.t.Context()))
	c.works()
	c.phase("r0", v1alpha1.PhaseReady)
	c.same(before, all...)
}

// operatorAgain takes the operator away, and has it again on node 2, which later steps cut off and kill.
func operatorAgain(c *cluster) {
	before := c.lives()
	c.kubectl("-n", "rdmalab-system", "scale", "deployment", "rdmalab-operator", "--replicas=0")
	c.eventually(patience, func() error {
		if out := c.kubectl("-n", "rdmalab-system", "get", "pods", "-l", "app=rdmalab-operator", "-o", "name"); out != "" {
			return fmt.Errorf("there is still %s", out)
		}
		return nil
	})
	c.works()
	c.kubectl("cordon", "n1")
	defer c.kubectl("uncordon", "n1")
	c.kubectl("-n", "rdmalab-system", "scale", "deployment", "rdmalab-operator", "--replicas=1")
	c.eventually(patience, func() error {
		out, err := c.Kubectl(c.t.Context(), "", "-n", "rdmalab-system", "get", "pods", "-l", "app=rdmalab-operator", "-o", "jsonpath={.items[*].spec.nodeName} {.items[*].status.phase}")
		if err == nil && out != "n2 Running" {
			err = fmt.Errorf("the operator is %q", out)
		}
		return err
	})
	c.kubectl("-n", "lab", "annotate", "rack", "r0", "test=1", "--overwrite")
	c.phase("r0", v1alpha1.PhaseReady)
	c.same(before, all...)
}

// kill kills the program of a Pod's container on a node.
func (c *cluster) kill(n int, pattern string) {
	c.t.Helper()
	out, err := c.Node(n).Run("sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q '^/rdmalab-kube `+pattern+`' && [ "$(readlink $p/ns/net)" != "$(readlink /proc/self/ns/net)" ] && grep -q '/`+c.Node(n).Group()+`/' $p/cgroup && kill -9 ${p#/proc/}; done; true`)
	if err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// switchCrash kills the program of a leaf: the container is started again in the same network, and no link is lost.
func switchCrash(c *cluster) {
	before := c.lives()
	c.kill(2, "leaf")
	c.eventually(patience, func() error {
		l := c.lives()["leaf@n2"]
		if l.uid != before["leaf@n2"].uid || l.restarts != before["leaf@n2"].restarts+1 {
			return fmt.Errorf("%+v, before %+v", l, before["leaf@n2"])
		}
		return nil
	})
	c.phase("r0", v1alpha1.PhaseReady)
	c.works()
	c.same(before, append([]string{"leaf@n1"}, hosts...)...)
}

// leafAgain deletes the Pod of a leaf: the new one gets the links of the node's hosts, which start again.
func leafAgain(c *cluster) {
	before := c.lives()
	pod := strings.TrimSpace(c.kubectl("-n", "lab", "get", "pods", "-l", "rdmalab.io/role=leaf", "--field-selector", "spec.nodeName=n2", "-o", "name"))
	c.kubectl("-n", "lab", "delete", pod, "--wait=true")
	c.eventually(patience, func() error {
		for _, h := range []string{"cn1", "ms1"} {
			if l := c.lives()[h]; l.uid != before[h].uid || l.restarts <= before[h].restarts {
				return fmt.Errorf("%s: %+v, before %+v", h, l, before[h])
			}
		}
		return nil
	})
	c.phase("r0", v1alpha1.PhaseReady)
	c.works()
	c.same(before, "leaf@n1", "cn0", "ms0")
}

func hostAgain(c *cluster) {
	before := c.lives()
	c.kubectl("-n", "lab", "delete", "pod", "r0-ms1-0", "--wait=true")
	c.eventually(patience, func() error {
		if l := c.lives()["ms1"]; l.uid == "" || l.uid == before["ms1"].uid {
			return fmt.Errorf("ms1 is not made again: %+v", l)
		}
		return nil
	})
	c.phase("r0", v1alpha1.PhaseReady)
	c.works()
	c.same(before, "leaf@n1", "leaf@n2", "cn0", "cn1", "ms0")
}

// nodeState waits for the state of a node: True, False or Unknown.
func (c *cluster) nodeState(n int, want string) {
	c.t.Helper()
	c.eventually(patience, func() error {
		out, err := c.Kubectl(c.t.Context(), "", "get", "node", lab.NodeName(n), "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && out != want {
			err = fmt.Errorf("node %d: Ready is %q, not %q", n, out, want)
		}
		return err
	})
}

// partition cuts a node off: it is a partition, and no death: all lives on, and works when the network heals.
func partition(c *cluster) {
	c.kubectl("-n", "team", "delete", "pod", "--all", "--wait=true")
	before := c.lives()
	must(c.t, c.Cut(2, true))
	defer func() { must(c.t, c.Cut(2, false)) }() // later steps need the network whatever happens here
	c.nodeState(2, "Unknown")
	c.phase("r0", v1alpha1.PhaseDegraded)
	k, err := c.rack("r0")
	must(c.t, err)
	if got := strings.Join(k.Status.Lost, " "); got != "cn1 ms1" {
		c.t.Errorf("lost are %q", got)
	}
	must(c.t, c.Cut(2, false))
	c.nodeState(2, "True")
	c.phase("r0", v1alpha1.PhaseReady)
	c.same(before, all...)
	c.works()
}

// nodeDies kills a node as by its power: nothing is moved; when it is back, its leaf and hosts are made again there.
func nodeDies(c *cluster) {
	c.kubectl("-n", "team", "delete", "pod", "--all", "--wait=true")
	before := c.lives()
	must(c.t, c.Node(2).Kill())
	c.nodeState(2, "Unknown")
	c.phase("r0", v1alpha1.PhaseDegraded)
	begin := time.Now()
	must(c.t, c.Node(2).Start())
	c.nodeState(2, "True")
	c.phase("r0", v1alpha1.PhaseReady)
	c.t.Logf("Ready %v after the node is on again", time.Since(begin).Round(time.Millisecond))
	c.same(before, "leaf@n1", "cn0", "ms0")
	c.works()
}
