package e2e

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// serverReady makes a server's Pod ready when ib_write_bw listens (port 18515): a client that comes before fails.
const serverReady = `readinessProbe: {exec: {command: [grep, -q, ":4853 .* 0A ", /proc/net/tcp, /proc/net/tcp6]}, periodSeconds: 1, timeoutSeconds: 10}
    resources:`

// admission is the reason of a Pod that a kubelet refuses because a device plugin is missing. What manages Pods makes another.
const admission = "UnexpectedAdmissionError"

// userPod runs Debian's ib_write_bw, unmodified, in a namespace with level restricted: from a compute host of one node to the
// memory server of the other.
func userPod(c *cluster) {
	phase, logs := c.writeBW()
	if phase != "Succeeded" || !strings.Contains(logs, "65536") || !strings.Contains(logs, "BW average") {
		c.t.Errorf("the client has %s: %s\nthe server: %s", phase, logs, c.kubectl("-n", "team", "logs", "server"))
		return
	}
	c.t.Log(logs)
}

// writeBW runs a server and a client, and returns how the client has ended, and what it has printed. Their ACK timeout is 4.3 s (-u 20):
// two nodes, a control plane and the stores' clients share the machine.
func (c *cluster) writeBW() (phase, logs string) {
	c.t.Helper()
	server := user("server", "n2", "ms1", `[ib_write_bw, -d, rxe0, -x, "1", -u, "20", -n, "1000"]`)
	server = strings.Replace(server, "resources:", serverReady, 1)
	c.apply(server)
	ip := ""
	c.eventually(patience, func() error {
		var p corev1.Pod
		if err := c.get(&p, "-n", "team", "pod", "server"); err != nil {
			return err
		}
		if ip = p.Status.PodIP; len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready {
			return nil
		}
		if p.Status.Reason == admission { // the node agent has not registered again with a new kubelet
			c.kubectl("-n", "team", "delete", "pod", "server", "--wait=true")
			c.apply(server)
			return errors.New("the kubelet has refused the server")
		}
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			c.t.Fatalf("the server has ended: %s", c.kubectl("-n", "team", "logs", "server"))
		}
		return fmt.Errorf("server: %+v", p.Status)
	})
	c.apply(user("client", "n1", "", fmt.Sprintf(`[ib_write_bw, -d, rxe0, -x, "1", -u, "20", -n, "1000", %q]`, ip)))
	c.eventually(patience, func() (err error) {
		phase, err = c.Kubectl(c.t.Context(), "", "-n", "team", "get", "pod", "client", "-o", `jsonpath={.status.phase}`)
		if err == nil && phase != "Succeeded" && phase != "Failed" {
			err = fmt.Errorf("client: %s", phase)
		}
		return err
	})
	return phase, c.kubectl("-n", "team", "logs", "client")
}
