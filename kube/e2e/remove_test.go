package e2e

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/kube/e2e/lab"
)

// remove deletes the rack: nothing of it is on the nodes, nor of Pods with a NIC that asked for no rack, or whose host is not
// there, or that were deleted before they had begun.
func remove(c *cluster) {
	strange := strings.Replace(user("norack", "n1", "", `[sleep, "1000"]`), "annotations: {rdmalab.io/rack: lab/r0}", "annotations: {}", 1)
	c.apply(strange)
	c.eventually(patience, func() error {
		out, err := c.Kubectl(c.t.Context(), "", "-n", "team", "get", "pod", "norack", "-o", "jsonpath={.status.phase}")
		if err == nil && out != "Running" {
			err = fmt.Errorf("a Pod with a NIC and no rack is %s", out)
		}
		return err
	})
	for i := range 4 {
		c.apply(user(fmt.Sprint("nowhere", i), "n1", "ms1", `[sleep, "1000"]`))
	}
	c.kubectl("-n", "team", "delete", "pod", "--all", "--wait=true")
	c.kubectl("-n", "lab", "delete", "rack", "r0", "--wait=true", "--timeout=120s")
	for n := 1; n <= 2; n++ {
		c.eventually(patience, func() error { return bare(c.Node(n)) })
	}
}

// bare returns an error unless nothing of a rack is on a node. It says what the records are.
func bare(n *lab.Node) error {
	out, err := n.Run("find", "/run/rdmalab/kube", "-mindepth", "1")
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(strings.Fields(out), func(f string) bool {
		return f == "/run/rdmalab/kube/nic" || f == "/run/rdmalab/kube/racks" || f == "/run/rdmalab/kube/lock"
	})
	mounts, err := n.Run("cat", "/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(mounts) {
		if strings.Contains(line, " /run/rdmalab/kube/nic/") {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	if len(left) == 0 {
		return nil
	}
	records, err := n.Run("sh", "-c", "for f in /run/rdmalab/kube/racks/*/*/*.json; do [ ! -e $f ] || { echo $f: $(cat $f); }; done; ls -la --time-style=full-iso /run/rdmalab/kube/nic")
	return fmt.Errorf("left on %s: %v; records and folders of devices: %s %w", n.Group(), left, records, err)
}
