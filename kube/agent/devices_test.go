package agent

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rdmalab/rdmalab/kube/node"
)

// Users' containers may not write in the folder of their device, and those of leaves and hosts may. No folder is made: the
// Pod may go before the plugin is called.
func TestAllocate(t *testing.T) {
	s := node.State(t.TempDir())
	for _, r := range []resource{resourceNIC, resourcePort} {
		d := newDevices(r, t.TempDir(), s, 2)
		d.offer(true)
		list, _ := d.list()
		id := list[1].GetID()
		got, err := d.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{id}}}})
		if err != nil {
			t.Fatal(err)
		}
		m := got.GetContainerResponses()[0].GetMounts()[0]
		if !strings.HasPrefix(id, r.prefix) || m.GetHostPath() != s.Slot(id) || m.GetContainerPath() != node.Mounted || m.GetReadOnly() != (r.name == "rdmalab.io/nic") {
			t.Errorf("%s: %v", r.name, m)
		}
		if _, err := os.Stat(s.Slot(id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the folder is there: %v", r.name, err)
		}
		if _, err := d.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"a", "b"}}}}); err == nil {
			t.Errorf("%s: a container has two", r.name)
		}
	}
}

// The agent removes what the runtime has made for a Pod that the plugin was not called for, and nothing that a record names.
func TestAgentSweeps(t *testing.T) {
	s := node.State(t.TempDir())
	a := newAgent(Config{State: s}, nil)
	old := time.Now().Add(-2 * sweepAge)
	for _, id := range []string{"nic-000", "nic-001"} {
		if err := errors.Join(os.MkdirAll(s.Slot(id), 0o755), os.Chtimes(s.Slot(id), old, old)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(s.Slot("nic-002"), 0o755), s.Rack("lab", "r0").Put(node.Users, "c", node.Record{Slot: "nic-001"})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age  time.Duration
		left string
	}{{sweepAge, "nic-001 nic-002"}, {0, "nic-001"}} {
		a.sweep(c.age)
		list, err := os.ReadDir(s.Slots())
		var names []string
		for _, e := range list {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); err != nil || got != c.left {
			t.Errorf("after %v: %q, %v; want %q", c.age, got, err, c.left)
		}
	}
}
