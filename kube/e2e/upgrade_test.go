package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/image"
	"github.com/rdmalab/rdmalab/kube/operator"
)

// upgrade installs another version: the rack that runs stays as it is, and says so; its Pods are replaced one by one, and come up
// with the new version. A leaf that is new does not work with an old one, and says why.
func upgrade(c *cluster) {
	before := c.lives()
	text, err := os.ReadFile("../install.yaml")
	must(c.t, err)
	c.apply(strings.ReplaceAll(string(text), image.Name, nextImage))
	c.kubectl("-n", "rdmalab-system", "rollout", "status", "deployment/rdmalab-operator", "--timeout=5m")
	c.kubectl("-n", "rdmalab-system", "rollout", "status", "daemonset/rdmalab-node", "--timeout=5m")
	current := c.condition("r0", operator.ConditionCurrent, metav1.ConditionFalse)
	c.says(current, nextVersion, "delete the Pods")
	c.phase("r0", v1alpha1.PhaseReady)
	time.Sleep(3 * time.Second) // what replaces Pods by itself would do so now
	c.same(before, all...)
	c.works()

	old := c.version("leaf0")
	c.replace("-l", "rdmalab.io/role=leaf", "--field-selector", "spec.nodeName=n2")
	c.eventually(patience, func() error {
		if v := c.version("leaf1"); v != nextVersion {
			return fmt.Errorf("leaf1 has version %q", v)
		}
		return nil
	})
	mixed(c, old)
	c.replace("-l", "rdmalab.io/role=leaf", "--field-selector", "spec.nodeName=n1")
	for _, h := range hosts {
		c.replace("-l", "rdmalab.io/host="+h)
		c.phase("r0", v1alpha1.PhaseReady)
	}
	c.condition("r0", operator.ConditionCurrent, metav1.ConditionTrue)
	for _, l := range []string{"leaf0", "leaf1"} {
		if v := c.version(l); v != nextVersion {
			c.t.Errorf("%s has version %q", l, v)
		}
	}
	if out := c.kubectl("-n", "lab", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"); strings.Contains(out, image.Name) {
		c.t.Errorf("images: %s", out)
	}
	c.works()
}

// mixed waits until the rack, whose leaves have two versions, says that they do not work with each other, and why.
func mixed(c *cluster, old string) {
	c.eventually(patience, func() error {
		text := c.condition("r0", v1alpha1.ConditionConnected, metav1.ConditionFalse)
		for _, part := range []string{"version", old, nextVersion} {
			if !strings.Contains(text, part) {
				return fmt.Errorf("%q is missing in: %s", part, text)
			}
		}
		return nil
	})
	c.phase("r0", v1alpha1.PhaseDegraded)
}

// replace deletes Pods of the rack by a selector, and waits until they are gone.
func (c *cluster) replace(selector ...string) {
	c.t.Helper()
	c.kubectl(append([]string{"-n", "lab", "delete", "pods", "--wait=true"}, selector...)...)
}

// version returns what a leaf says that it is.
func (c *cluster) version(leaf string) string {
	c.t.Helper()
	out, err := c.Kubectl(c.t.Context(), "", "-n", "lab", "get", "rackleaf", "r0-"+leaf, "-o", "jsonpath={.status.version}")
	must(c.t, err)
	return out
}

// condition waits for the status of a condition, and returns its message.
func (c *cluster) condition(rack, kind string, want metav1.ConditionStatus) (message string) {
	c.t.Helper()
	c.eventually(patience, func() error {
		k, err := c.rack(rack)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(k.Status.Conditions, func(d metav1.Condition) bool { return d.Type == kind && d.Status == want })
		if i < 0 {
			return fmt.Errorf("%s is not %s: %+v", kind, want, k.Status.Conditions)
		}
		message = k.Status.Conditions[i].Message
		return nil
	})
	return message
}
