// Package e2e tests the whole product on a Kubernetes cluster of two nodes with real kubelets (package lab): `make e2e-kube`.
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/e2e/lab"
)

// patience is how long anything may take: the machine may have other things to do.
const patience = 5 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustEnv(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is set by make e2e-kube", name)
	}
	return v
}

// cluster is the lab with what tests ask it.
type cluster struct {
	*lab.Lab
	t *testing.T
}

func (c *cluster) with(t *testing.T) *cluster { return &cluster{c.Lab, t} }

// kubectl runs kubectl, which must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.Kubectl(c.t.Context(), "", args...)
	must(c.t, err)
	return out
}

// apply applies a text.
func (c *cluster) apply(text string) {
	c.t.Helper()
	c.eventually(time.Minute, func() error { // an API server that has just begun refuses some for a moment
		_, err := c.Kubectl(c.t.Context(), text, "apply", "-f", "-")
		return err
	})
}

// get reads an object.
func (c *cluster) get(into any, args ...string) error {
	out, err := c.Kubectl(c.t.Context(), "", append([]string{"get", "-o", "json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	return err
}

// longestLook is how much of the time between two looks counts: the processes of a test may be stopped meanwhile.
const longestLook = 2 * time.Second

// eventually waits until f returns nil, and returns how long that took.
func (c *cluster) eventually(wait time.Duration, f func() error) time.Duration {
	c.t.Helper()
	begin := time.Now()
	for last, spent := begin, time.Duration(0); ; {
		err := f()
		switch {
		case err == nil:
			return time.Since(begin)
		case spent > wait:
			c.t.Fatalf("after %v: %v", wait, err)
		case c.t.Context().Err() != nil:
			c.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		spent, last = spent+min(time.Since(last), longestLook), time.Now()
	}
}

// phase waits for a phase of a rack.
func (c *cluster) phase(rack string, want v1alpha1.Phase) time.Duration {
	c.t.Helper()
	return c.phaseIn("lab", rack, want)
}

// phaseIn is phase for a rack of a namespace.
func (c *cluster) phaseIn(namespace, rack string, want v1alpha1.Phase) time.Duration {
	c.t.Helper()
	return c.eventually(patience, func() error {
		k := new(v1alpha1.Rack)
		err := c.get(k, "-n", namespace, "rack", rack)
		if err == nil && k.Status.Phase != want {
			err = fmt.Errorf("rack %s is %s, not %s: %+v", rack, k.Status.Phase, want, k.Status.Conditions)
		}
		return err
	})
}

func (c *cluster) rack(name string) (*v1alpha1.Rack, error) {
	k := new(v1alpha1.Rack)
	return k, c.get(k, "-n", "lab", "rack", name)
}

// start starts a cluster of two nodes, in which the product is installed.
func start(t *testing.T) *cluster {
	bin := mustEnv(t, "RDMALAB_KUBE_BIN")
	dir, err := os.MkdirTemp("", "rdmalab-kube-")
	must(t, err)
	begin := time.Now()
	l, err := lab.Start(context.Background(), lab.Config{
		Dir: dir, Bin: bin, Nodes: 2, Images: images(t, dir), Pause: pauseImage, Log: func(format string, args ...any) { t.Logf(format, args...) },
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("RDMALAB_KUBE_HOLD") != "" {
			t.Logf("held: kubectl is: ip netns exec %s kubectl --kubeconfig %s", filepath.Base(l.Netns()), l.Kubeconfig())
			fmt.Println("held", filepath.Base(l.Netns()), l.Kubeconfig(), os.Getpid())
			for {
				if _, err := os.Stat(os.Getenv("RDMALAB_KUBE_HOLD")); err != nil {
					break
				}
				time.Sleep(time.Second)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("logs are in %s", dir)
			return
		}
		must(t, os.RemoveAll(dir))
	})
	c := &cluster{l, t}
	c.eventually(patience, func() error {
		out, err := c.Kubectl(t.Context(), "", "get", "nodes")
		if err == nil && strings.Count(out, " Ready ") != 2 {
			err = fmt.Errorf("not ready: %s", out)
		}
		return err
	})
	t.Logf("a cluster of two nodes is ready after %v", time.Since(begin).Round(time.Millisecond))
	return c
}

// rackFile is the rack of the tests: two nodes, with one compute host and one memory server each.
const rackFile = `
apiVersion: rdmalab.io/v1alpha1
kind: Rack
metadata: {name: r0, namespace: lab}
spec:
  nodes: 2
  users: [team]
  rack: |
    hosts:
      - {name: "cn[0-1]", role: compute}
      - {name: "ms[0-1]", role: memory}
`

const namespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: lab, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {pod-security.kubernetes.io/enforce: restricted}}
`

func TestKube(t *testing.T) {
	c := start(t)
	step := func(name string, f func(c *cluster)) { t.Run(name, func(t *testing.T) { f(c.with(t)) }) }
	step("install", install)
	step("rack is ready", ready)
	if t.Failed() {
		return
	}
	step("a user's Pod", userPod)
	step("who may use what", rights)
	step("kubectl rdmalab", plugin)
	step("the stores start", storesUp)
	keep, lose := load{}, load{}
	step("clients of the stores begin", func(c *cluster) { keep = storesBegin(c, "") })
	step("the plugin is lost", pluginLost)
	step("the kubelet starts again", kubeletAgain)
	step("the API server starts again", apiAgain)
	step("the operator is gone, and back", operatorAgain)
	step("a switch crashes", switchCrash)
	step("a partition", partition)
	step("the stores are linearizable", func(c *cluster) { storesEnd(c, keep) })
	step("clients of the stores begin again", func(c *cluster) { lose = storesBegin(c, "loss") })
	step("a leaf's Pod is made again", leafAgain)
	step("a host's Pod is made again", hostAgain)
	step("a node dies, and comes back", nodeDies)
	step("no wrong value is read of what is lost", func(c *cluster) { storesEnd(c, lose) })
	step("a node is given up", evacuate)
	step("the stores go", storesGone)
	step("upgrade", upgrade)
	step("delete", remove)
}

// install installs the product by its one file.
func install(c *cluster) {
	text, err := os.ReadFile("../install.yaml")
	must(c.t, err)
	c.apply(string(text))
	c.apply(namespaces)
	took := c.eventually(patience, func() error {
		for n := 1; n <= 2; n++ {
			out, err := c.Kubectl(c.t.Context(), "", "get", "node", lab.NodeName(n), "-o", `jsonpath={.status.allocatable.rdmalab\.io/nic}`)
			if err != nil || out != "64" {
				return fmt.Errorf("node %d offers %q: %w", n, out, err)
			}
		}
		return nil
	})
	c.t.Logf("both nodes offer NICs %v after the installation", took.Round(time.Millisecond))
}

func ready(c *cluster) {
	c.apply(rackFile)
	took := c.phase("r0", v1alpha1.PhaseReady)
	c.t.Logf("Ready after %v", took.Round(time.Millisecond))
}

// restricted is what the level restricted of Pod Security wants.
const restricted = `allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 1000, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}`

// user is a user's Pod on a node, which runs a command with the NIC of a host; host "" leaves the choice.
func user(name, node, host, command string) string {
	if host != "" {
		host = ", rdmalab.io/host: " + host
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: team, annotations: {rdmalab.io/rack: lab/r0%s}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: %s}
  containers:
  - name: c
    image: %s
    command: %s
    resources: {limits: {rdmalab.io/nic: "1"}}
    securityContext: {%s}
`, name, host, node, userImage, command, restricted)
}
