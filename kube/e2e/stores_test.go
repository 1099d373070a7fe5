package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/store"
)

// storeRacks has a rack for each store, because stores share a rack's memory. Clients and the store's server are on the first
// node, and memory is on both: later steps break the second.
const storeRacks = `
apiVersion: v1
kind: Namespace
metadata: {name: stores, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: rdmalab.io/v1alpha1
kind: Rack
metadata: {name: clover, namespace: stores}
spec:
  nodes: 2
  rack: |
    hosts:
      - {name: cn0, role: compute, machine: n0}
      - {name: mt0, role: metadata, machine: n0}
      - {name: ms0, role: memory, machine: n0}
      - {name: ms1, role: memory, machine: n1}
---
apiVersion: rdmalab.io/v1alpha1
kind: Rack
metadata: {name: kvcs, namespace: stores}
spec:
  nodes: 2
  rack: |
    onerma: {}
    hosts:
      - {name: cn0, role: compute, machine: n0}
      - {name: mt0, role: metadata, machine: n0}
      - {name: ms0, role: memory, machine: n0}
      - {name: ms1, role: memory, machine: n1}
`

// stores are the stores; each is on a rack of its name.
var stores = []string{"clover", "kvcs"}

// driverPod is a Pod that has clients work on a store. It may wait for a node for ever, as its host does.
func driverPod(of, name, loss string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: stores, annotations: {rdmalab.io/rack: stores/%[1]s, rdmalab.io/host: cn0}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: n1}
  tolerations: [{operator: Exists, effect: NoExecute}]
  containers:
  - name: c
    image: %[3]s
    command: [/driver, check, %[1]s, cn0, mt0, %[4]q]
    resources: {limits: {rdmalab.io/nic: "1"}}
`, of, name, driverImage, loss)
}

// storesUp makes the racks of the stores, and starts these.
func storesUp(c *cluster) {
	c.apply(storeRacks)
	for _, s := range stores {
		c.phaseIn("stores", s, v1alpha1.PhaseReady)
		c.t.Log(c.plugin("-n", "stores", s, s, "start"))
	}
}

// load is the clients of all stores at work.
type load struct {
	began time.Time
	loss  string // "loss" if memory may be lost
}

// storesBegin lets clients work. loss is "loss" if memory is to be lost meanwhile.
func storesBegin(c *cluster, loss string) load {
	l := load{time.Now(), loss}
	for _, s := range stores {
		c.apply(driverPod(s, l.pod(s), loss))
		c.podPhase("stores", l.pod(s), "Running")
	}
	time.Sleep(time.Second) // some operations before anything fails
	return l
}

func (l load) pod(of string) string { return "driver-" + of + l.loss }

// storesEnd ends the clients, and fails unless each history is linearizable and lasts from the beginning to the end.
func storesEnd(c *cluster, l load) {
	took := time.Since(l.began)
	for _, s := range stores {
		c.kubectl("-n", "stores", "exec", l.pod(s), "--", "/driver", "end", s, "cn0")
	}
	for _, s := range stores {
		end := c.podPhase("stores", l.pod(s), "Succeeded", "Failed")
		logs := c.kubectl("-n", "stores", "logs", l.pod(s))
		var v store.Verdict
		if err := json.Unmarshal([]byte(logs), &v); end != "Succeeded" || err != nil {
			c.t.Errorf("%s: the driver has %s: %s", s, end, logs)
			continue
		}
		c.t.Logf("%s: %d operations in %v, %d without an answer, %d found their key lost; linearizable: %v", s, v.Operations, v.Took.Round(time.Second), v.Unknown, v.Lost, v.Linearizable)
		if !v.Linearizable || v.Took < took-10*time.Second || v.Operations < 200 {
			c.t.Errorf("%s: a history of %d operations in %v, of %v: %s", s, v.Operations, v.Took, took, v.Why)
		}
		c.kubectl("-n", "stores", "delete", "pod", l.pod(s), "--wait=true")
	}
}

// podPhase waits until a Pod has one of some phases, and returns which.
func (c *cluster) podPhase(namespace, pod string, want ...string) (got string) {
	c.t.Helper()
	c.eventually(patience, func() (err error) {
		got, err = c.Kubectl(c.t.Context(), "", "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.phase}")
		if err != nil {
			return err
		}
		for _, w := range want {
			if got == w {
				return nil
			}
		}
		return fmt.Errorf("Pod %s is %s, not %s", pod, got, strings.Join(want, " or "))
	})
	return got
}

// storesGone deletes the racks of the stores.
func storesGone(c *cluster) {
	c.kubectl("-n", "stores", "delete", "racks", "--all", "--wait=true", "--timeout=120s")
}
