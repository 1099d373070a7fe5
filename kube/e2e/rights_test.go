package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// rights asks for what a Pod may not have: the rack of a namespace that does not let it, and no device.
func rights(c *cluster) {
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n")
	c.apply(strings.Replace(user("stranger", "n1", "", `[sleep, "1000"]`), "namespace: team", "namespace: other", 1))
	c.event("other", "stranger", "may not use rack lab/r0")
	c.kubectl("-n", "other", "delete", "pod", "stranger", "--wait=true")
	c.apply(strings.Replace(user("bare", "n1", "", `[sleep, "1000"]`), `resources: {limits: {rdmalab.io/nic: "1"}}`, "resources: {}", 1))
	c.event("team", "bare", "needs the limit rdmalab.io/nic: 1")
	c.apply(user("nowhere", "n1", "ms1", `[sleep, "1000"]`))
	c.event("team", "nowhere", "is not on this node")
	c.kubectl("-n", "team", "delete", "pod", "bare", "nowhere", "--wait=true")
	rootWrites(c)
	// A leaf may write only the status of its own node's RackLeaf.
	account := "system:serviceaccount:lab:" + c.kubectl("-n", "lab", "get", "serviceaccounts", "-l", "rdmalab.io/rack=r0", "-o", "jsonpath={.items[0].metadata.name}")
	for node, want := range map[string]string{"": "own node alone", "n2": "own node alone", "n1": `"kind": "RackLeaf"`} {
		if out := c.patchStatus("r0-leaf0", account, node); !strings.Contains(out, want) {
			c.t.Errorf("a leaf on node %q writes the status of leaf0, which is on n1: %s; want %s", node, out, want)
		}
	}
	for verb, what := range map[string]string{"get": "secrets", "list": "pods", "create": "pods"} {
		if out, _ := c.Kubectl(c.t.Context(), "", "auth", "can-i", verb, what, "-n", "lab", "--as", account); !strings.HasPrefix(out, "no") {
			c.t.Errorf("a leaf may %s %s: %s", verb, what, out)
		}
	}
	operator := "system:serviceaccount:rdmalab-system:rdmalab-operator"
	for verb, what := range map[string]string{"get": "secrets", "list": "secrets", "create": "pods", "update": "nodes", "delete": "pods"} {
		if out, _ := c.Kubectl(c.t.Context(), "", "auth", "can-i", verb, what, "-A", "--as", operator); !strings.HasPrefix(out, "no") {
			c.t.Errorf("the operator may %s %s: %s", verb, what, out)
		}
	}
}

// rootWrites runs a Pod as root in the rack's namespace: in the folder that has the library which other Pods load it can
// change nothing, and the NIC works for it.
func rootWrites(c *cluster) {
	const script = `[sh, -c, "cd /run/rdmalab/nic && for f in x nic.so nic.sys/x; do (: > $f) 2>/dev/null && echo wrote $f; done; ls -l nic.so && ibv_devinfo -d rxe0"]`
	text := strings.NewReplacer("namespace: team", "namespace: lab", restricted, "runAsUser: 0").Replace(user("root", "n1", "", script))
	c.apply(text)
	var phase string
	c.eventually(patience, func() (err error) {
		phase, err = c.Kubectl(c.t.Context(), "", "-n", "lab", "get", "pod", "root", "-o", "jsonpath={.status.phase}")
		if err == nil && phase != "Succeeded" && phase != "Failed" {
			err = fmt.Errorf("root: %s", phase)
		}
		return err
	})
	if logs := c.kubectl("-n", "lab", "logs", "root"); phase != "Succeeded" || strings.Contains(logs, "wrote") || !strings.Contains(logs, "PORT_ACTIVE") {
		c.t.Errorf("a root Pod has %s: %s", phase, logs)
	}
	c.kubectl("-n", "lab", "delete", "pod", "root", "--wait=true")
}

// patchStatus changes nothing in the status of a RackLeaf, as a ServiceAccount whose Pod is on a node, and returns what the
// API server says.
func (c *cluster) patchStatus(leaf, account, node string) string {
	c.t.Helper()
	pki := filepath.Dir(c.Kubeconfig())
	args := []string{
		"netns", "exec", filepath.Base(c.Netns()), "curl", "-sS", "--cacert", pki + "/ca.crt", "--cert", pki + "/admin.crt", "--key", pki + "/admin.key", "-X", "PATCH",
		"-H", "Content-Type: application/merge-patch+json", "-H", "Impersonate-User: " + account, "-d", `{"status":{}}`,
	}
	if node != "" {
		args = append(args, "-H", "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name: "+node)
	}
	out, err := exec.CommandContext(c.t.Context(), "ip", append(args, "https://192.168.240.1:6443/apis/rdmalab.io/v1alpha1/namespaces/lab/rackleaves/"+leaf+"/status")...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
