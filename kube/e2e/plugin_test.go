package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// pluginCommand returns the command `kubectl rdmalab ARGS` with the rights of a kubeconfig.
func (c *cluster) pluginCommand(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	bin := mustEnv(c.t, "RDMALAB_KUBE_OUT")
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", filepath.Base(c.Netns()), "kubectl", "rdmalab"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig)
	return cmd
}

// pluginSays runs `kubectl rdmalab ARGS` as an administrator, and returns its exit status and what it prints.
func (c *cluster) pluginSays(args ...string) (int, string) {
	c.t.Helper()
	out, err := c.pluginCommand(c.t.Context(), c.Kubeconfig(), args...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode(), string(out)
	case err != nil:
		c.t.Fatal(err)
	}
	return 0, string(out)
}

// plugin runs `kubectl rdmalab ARGS`, which must succeed.
func (c *cluster) plugin(args ...string) string {
	c.t.Helper()
	code, out := c.pluginSays(args...)
	if code != 0 {
		c.t.Fatalf("kubectl rdmalab %s: exit status %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

// says fails unless a text has all parts.
func (c *cluster) says(text string, parts ...string) {
	c.t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			c.t.Errorf("%q is missing in: %s", p, text)
		}
	}
}

// plugin uses a rack by the names that its file has.
func plugin(c *cluster) {
	lab := func(args ...string) string { c.t.Helper(); return c.plugin(append([]string{"-n", "lab"}, args...)...) }
	c.says(lab("status", "r0"), "rack lab/r0 is Ready", "Verified", "leaf0", "n1", "ms1", "memory")
	var s struct {
		Phase  v1alpha1.Phase
		Leaves []struct {
			Name, Node string
			Ready      bool
			Trunks     []v1alpha1.LinkStatus
		}
		Hosts []struct {
			Name, Node string
			Ready      bool
		}
	}
	must(c.t, json.Unmarshal([]byte(lab("status", "r0", "-o", "json")), &s))
	if len(s.Leaves) != 2 || len(s.Hosts) != 4 || !s.Leaves[1].Ready || s.Leaves[1].Node != "n2" || len(s.Leaves[0].Trunks) != 1 || !s.Hosts[3].Ready || s.Hosts[3].Node != "n2" {
		c.t.Errorf("status: %+v", s)
	}
	c.says(lab("perf", "r0", "write_bw", "--from", "cn0", "--to", "ms1", "--duration", "1s"), "MiB/sec")
	c.says(lab("counters", "r0", "ms1"), "rcvd_pkts", "rx_write_requests")
	c.says(lab("qps", "r0", "cn0"), "QPN")
	c.says(lab("logs", "r0", "leaf1"), "level=")
	pluginFaults(c, lab)
	c.says(lab("exec", "r0", "ms1", "--image", userImage, "--", "ibv_devinfo", "-d", "rxe0"), "PORT_ACTIVE")
	if code, out := c.pluginSays("-n", "lab", "exec", "r0", "cn0", "--image", userImage, "--", "sh", "-c", "echo said; exit 7"); code != 7 || out != "said\n" {
		c.t.Errorf("exec of a program with exit status 7: %d: %s", code, out)
	}
	before := c.lives()
	c.says(lab("crash", "r0", "leaf1"), "leaf1 has crashed", "with the same links")
	c.phase("r0", v1alpha1.PhaseReady)
	c.says(lab("crash", "r0", "ms1"), "ms1 has crashed", "memory is gone")
	c.phase("r0", v1alpha1.PhaseReady)
	c.same(before, "leaf@n1", "cn0", "cn1", "ms0")
	if l := c.lives()["ms1"]; l.uid != before["ms1"].uid || l.restarts != before["ms1"].restarts+1 {
		c.t.Errorf("ms1 was not started again in its Pod: %+v, before %+v", l, before["ms1"])
	}
	pluginMistakes(c)
	pluginRights(c)
}

// pluginFaults injects a fault on a link, sees it in a capture, and ends it.
func pluginFaults(c *cluster, lab func(args ...string) string) {
	c.says(lab("inject", "r0", "loss", "100%", "--link", "ms1", "--id", "cut"), "cut")
	c.says(lab("faults", "r0"), "cut")
	file := filepath.Join(c.t.TempDir(), "x.pcapng")
	capture := c.pluginCommand(c.t.Context(), c.Kubeconfig(), "-n", "lab", "capture", "r0", "ms1", "--for", "20s", "--count", "5", "-w", file)
	said := new(strings.Builder)
	capture.Stdout, capture.Stderr = said, said
	must(c.t, capture.Start())
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && c.t.Context().Err() == nil; {
		if code, out := c.pluginSays("-n", "lab", "perf", "r0", "write_lat", "--from", "cn0", "--to", "ms1", "--iters", "1", "--timeout", "1s"); code == 0 {
			c.t.Errorf("with all packets lost: %s", out)
		}
	}
	must(c.t, capture.Wait())
	c.says(said.String(), "touched by a fault")
	if st, err := os.Stat(file); err != nil || st.Size() == 0 {
		c.t.Errorf("the capture: %v %v", st, err)
	}
	c.says(lab("heal", "r0"), "")
	c.says(lab("perf", "r0", "write_lat", "--from", "cn0", "--to", "ms1", "--iters", "100"), "us")
}

// pluginMistakes makes mistakes: each has one line that says what to do, and exit status 2.
func pluginMistakes(c *cluster) {
	for words, want := range map[string]string{
		"-n lab status r1":                "it has: r0",
		"-n lab counters r0 ms9":          "ms0 ms1",
		"-n lab crash r0 ms9":             "it has: leaf0 leaf1 cn0 cn1 ms0 ms1",
		"-n lab inject r0 loss --link x":  "loss of how many?",
		"-n lab inject":                   "name the Rack",
		"-n lab counters r0 ms0 --rack x": "leave out --rack",
		"fly r0":                          "unknown command",
		"-n lab exec r0 ms0 -- ls":        "--image",
		"evacuate n1 --yes":               "node n1 works",
		"evacuate n9":                     "no node",
		"-n lab status r0 -o yaml":        "use json",
	} {
		code, out := c.pluginSays(strings.Fields(words)...)
		if code != 2 || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
			c.t.Errorf("kubectl rdmalab %s: exit status %d, want 2 and one line with %q: %s", words, code, want, out)
		}
	}
}

// pluginRole has the rights that the documentation names for all commands but exec and evacuate.
const pluginRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: rdmalab-user, namespace: lab}
rules:
  - {apiGroups: [rdmalab.io], resources: [racks, rackleaves], verbs: [get, list]}
  - {apiGroups: [""], resources: [pods, pods/log], verbs: [get, list]}
  - {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rdmalab-user, namespace: lab}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: rdmalab-user}
subjects: [{kind: User, name: dev, apiGroup: rbac.authorization.k8s.io}]
`

// pluginRights runs the plugin as a user with the rights that it needs, and as one without them.
func pluginRights(c *cluster) {
	c.apply(pluginRole)
	text, err := os.ReadFile(c.Kubeconfig())
	must(c.t, err)
	as := func(user string) string {
		f := filepath.Join(c.t.TempDir(), user)
		must(c.t, os.WriteFile(f, text, 0o600))
		if out, err := exec.Command("kubectl", "--kubeconfig", f, "config", "view", "-o", "jsonpath={.users[0].name}").CombinedOutput(); err != nil {
			c.t.Fatalf("%v: %s", err, out)
		} else if out, err := exec.Command("kubectl", "--kubeconfig", f, "config", "set", "users."+string(out)+".act-as", user).CombinedOutput(); err != nil {
			c.t.Fatalf("%v: %s", err, out)
		}
		return f
	}
	dev, stranger := as("dev"), as("stranger")
	for _, words := range []string{"status r0", "counters r0 ms0", "logs r0 ms0", "crash r0 ms0"} {
		if out, err := c.pluginCommand(c.t.Context(), dev, append([]string{"-n", "lab"}, strings.Fields(words)...)...).CombinedOutput(); err != nil {
			c.t.Errorf("%s as dev: %v: %s", words, err, out)
		}
	}
	c.phase("r0", v1alpha1.PhaseReady)
	out, err := c.pluginCommand(c.t.Context(), stranger, "-n", "lab", "status", "r0").CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "forbidden") {
		c.t.Errorf("status as one without rights: %v: %s", err, out)
	}
}

// evacuate gives a dead node up: the cluster removes its Pods; when it is back and may have Pods again, the rack is Ready.
func evacuate(c *cluster) {
	c.kubectl("-n", "team", "delete", "pod", "--all", "--wait=true")
	before := c.lives()
	must(c.t, c.Node(2).Kill())
	c.nodeState(2, "Unknown")
	if code, out := c.pluginSays("evacuate", "n2"); code != 2 || !strings.Contains(out, "--yes") {
		c.t.Errorf("evacuate without a terminal: %d: %s", code, out)
	}
	c.says(c.plugin("evacuate", "n2", "--yes"), "n2 is given up")
	c.eventually(patience, func() error {
		if l := c.lives()["ms1"]; l.uid == before["ms1"].uid {
			return fmt.Errorf("the Pod of ms1 is not removed: %+v", l)
		}
		return nil
	})
	c.phase("r0", v1alpha1.PhaseDegraded)
	must(c.t, c.Node(2).Start())
	c.nodeState(2, "True")
	c.plugin("evacuate", "n2", "--undo")
	c.phase("r0", v1alpha1.PhaseReady)
	c.same(before, "leaf@n1", "cn0", "ms0")
	c.works()
}
