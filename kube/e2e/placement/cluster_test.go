// Package placement tests the operator with the real API server, controller manager and scheduler, and a hundred nodes that kwok
// plays: `make e2e-kube`.
//
// What kwok plays is only what a kubelet, a Pod and a leaf report (stages.yaml). So this suite shows where racks are placed, what
// the scheduler counts of rdmalab.io/port, and what the status of a Rack says of many nodes. It cannot show that a container
// starts, what the CNI plugin and the device plugin do, a link, a trunk, or that `kubectl exec` reaches a Pod: for these are the
// two real kubelets of package e2e.
package placement

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/e2e/lab"
)

// patience is how long anything may take: the machine may have other things to do.
const patience = 5 * time.Minute

//go:embed stages.yaml
var stages string

// played is the label of the nodes that kwok plays. It selects by labels and not by annotations: of an annotation that is taken
// away kwok hears nothing, and the node's heartbeat would go on.
const played = "rdmalab.io/played"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// env returns a variable that make e2e-kube sets.
func env(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is set by make e2e-kube", name)
	}
	return v
}

// cluster is the lab with what tests ask it.
type cluster struct {
	lab *lab.Lab
	t   *testing.T
}

// start starts a control plane in which the objects of the product are, without its Deployment and DaemonSet: the operator runs
// beside, as its ServiceAccount.
func start(t *testing.T) *cluster {
	bin, out := env(t, "RDMALAB_KUBE_BIN"), env(t, "RDMALAB_KUBE_OUT")
	dir, err := os.MkdirTemp("", "rdmalab-placement-")
	must(t, err)
	// kwok's watches begin at version 0. The API server makes of these watches that begin with a list, and refuses them with an etcd
	// that does not report how far a watch is, as Debian's: all that kwok knows would be half a minute old.
	l, err := lab.Start(context.Background(), lab.Config{Dir: dir, Bin: bin, API: []string{"--feature-gates=WatchList=false"}, Log: t.Logf})
	must(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("logs are in %s", dir)
			return
		}
		must(t, os.RemoveAll(dir))
	})
	c := &cluster{lab: l, t: t}
	for _, name := range []string{"namespace", "crd", "rbac"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "config", name+".yaml"))
		must(t, err)
		c.eventually(func() error { // an API server that has just begun refuses some for a moment
			_, err := l.Kubectl(t.Context(), string(text), "apply", "-f", "-")
			return err
		})
	}
	c.kubectl("wait", "--for=condition=Established", "crd", "--all")
	file := filepath.Join(dir, "stages.yaml")
	must(t, os.WriteFile(file, []byte(stages), 0o644))
	must(t, l.Beside("kwok", filepath.Join(bin, "kwok"), "--kubeconfig="+l.Kubeconfig(), "--config="+file, "--manage-nodes-with-label-selector="+played+"=yes", "--node-lease-duration-seconds=40"))
	conf, err := l.Account(t.Context(), "rdmalab-system", "rdmalab-operator")
	must(t, err)
	must(t, l.Beside("operator", "env", "KUBECONFIG="+conf, filepath.Join(out, "rdmalab-kube"), "operator", "--image=image:1", "--lease-namespace=rdmalab-system", "--probes=0"))
	return c
}

func (c *cluster) with(t *testing.T) *cluster { return &cluster{c.lab, t} }

// kubectl runs kubectl, which must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.lab.Kubectl(c.t.Context(), "", args...)
	must(c.t, err)
	return out
}

// create makes the objects of a text.
func (c *cluster) create(text string) {
	c.t.Helper()
	_, err := c.lab.Kubectl(c.t.Context(), text, "create", "-f", "-")
	must(c.t, err)
}

// get reads an object or a list.
func (c *cluster) get(into any, args ...string) error {
	out, err := c.lab.Kubectl(c.t.Context(), "", append([]string{"get", "-o", "json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	return err
}

// eventually waits until f returns nil, and returns how long that took.
func (c *cluster) eventually(f func() error) time.Duration {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		err := f()
		switch {
		case err == nil:
			return time.Since(begin)
		case time.Since(begin) > patience, c.t.Context().Err() != nil:
			c.t.Fatal(err)
		}
	}
}

// rack reads a Rack.
func (c *cluster) rack(name string) (*v1alpha1.Rack, error) {
	k := new(v1alpha1.Rack)
	return k, c.get(k, "-n", "lab", "rack", name)
}

// phase waits for a phase of a Rack, whose condition says a text; "": nothing of it matters.
func (c *cluster) phase(name string, want v1alpha1.Phase, condition, reason, text string) *v1alpha1.Rack {
	c.t.Helper()
	var k *v1alpha1.Rack
	took := c.eventually(func() (err error) {
		if k, err = c.rack(name); err != nil {
			return err
		}
		if k.Status.Phase == want && (condition == "" || says(k, condition, reason, text)) {
			return nil
		}
		return fmt.Errorf("rack %s is %s, not %s by %s %s %q: %+v", name, k.Status.Phase, want, condition, reason, text, k.Status.Conditions)
	})
	c.t.Logf("rack %s is %s after %v", name, want, took.Round(100*time.Millisecond))
	return k
}

// says reports whether a condition of a Rack has a reason, and a text in its message.
func says(k *v1alpha1.Rack, condition, reason, text string) bool {
	for _, d := range k.Status.Conditions {
		if d.Type == condition {
			return d.Reason == reason && strings.Contains(d.Message, text)
		}
	}
	return false
}

// node waits until a node is ready, or is not.
func (c *cluster) node(name string, want bool) {
	c.t.Helper()
	c.eventually(func() error {
		n := new(corev1.Node)
		if err := c.get(n, "node", name); err != nil {
			return err
		}
		if works(n) != want {
			return fmt.Errorf("node %s: ready is not %v: %+v", name, want, n.Status.Conditions)
		}
		return nil
	})
}

func works(n *corev1.Node) bool {
	for _, d := range n.Status.Conditions {
		if d.Type == corev1.NodeReady {
			return d.Status == corev1.ConditionTrue
		}
	}
	return false
}
