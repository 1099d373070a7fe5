package cni

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/kube/node"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// place is the state of a node in a test, with real networks and mounts.
type place struct {
	state
	t     *testing.T
	dir   string
	slots map[string]string // by resource and Pod
	nets  []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts and network namespaces need root; run the test with sudo")
	}
	p := &place{t: t, dir: t.TempDir(), slots: map[string]string{}}
	p.state = state{State: node.State(filepath.Join(p.dir, "state")), slotOf: func(ns, name, resource string) (string, error) {
		if id := p.slots[resource+" "+ns+"/"+name]; id != "" {
			return id, nil
		}
		return "", fmt.Errorf("%w: no %s", errRefused, resource)
	}}
	t.Cleanup(func() {
		list, _ := os.ReadDir(p.Slots()) // there may be none
		for _, e := range list {
			p.unmount(e.Name())
		}
		for _, n := range p.nets {
			_ = nl.Remove(n) // a test may have removed it
		}
	})
	return p
}

// pod makes a Pod with a network and a device.
func (p *place) pod(ns, name, resource, slot string, annotations ...string) *pod {
	p.t.Helper()
	path := filepath.Join(p.dir, fmt.Sprint("netns", len(p.nets)))
	if err := nl.Create(path); err != nil {
		p.t.Fatal(err)
	}
	p.nets = append(p.nets, path)
	p.slots[resource+" "+ns+"/"+name] = slot
	a := map[string]string{}
	for i := 0; i+1 < len(annotations); i += 2 {
		a[annotations[i]] = annotations[i+1]
	}
	return &pod{namespace: ns, name: name, container: fmt.Sprintf("%s-%d", name, len(p.nets)), netns: path, annotations: a}
}

func (p *place) leaf(slot string) *pod {
	return p.pod("lab", "leaf", resourcePort, slot, annotationSwitch, "r0", annotationUsers, "team")
}

func (p *place) host(name, slot string) *pod {
	link := fmt.Sprintf(`{"port":"p-%s","ifname":"rack0","mac":"02:00:00:00:00:01","mtu":4200,"role":"compute","addresses":["10.0.0.2/24"]}`, name)
	return p.pod("lab", name, resourcePort, slot, annotationRack, "r0", annotationHost, name, annotationLink, link)
}

func (p *place) user(ns, slot, host string) *pod {
	return p.pod(ns, "user", resourceNIC, slot, annotationRack, "lab/r0", annotationHost, host)
}

// adds connects Pods, which must succeed.
func (p *place) adds(list ...*pod) {
	p.t.Helper()
	for _, q := range list {
		if _, err := p.add(q); err != nil {
			p.t.Fatal(q.name, err)
		}
	}
}

// goes removes the network of a Pod, as a runtime does after DEL, or as a failure of the node does before it.
func (p *place) goes(q *pod) {
	p.t.Helper()
	if err := nl.Remove(q.netns); err != nil {
		p.t.Fatal(err)
	}
}

// removes takes Pods away in an order.
func (p *place) removes(list ...*pod) {
	p.t.Helper()
	for _, q := range list {
		if err := p.remove(q.container); err != nil {
			p.t.Fatal(q.name, err)
		}
	}
}

// bare fails unless nothing of a rack is on the node.
func (p *place) bare(what string) {
	p.t.Helper()
	var left []string
	for _, dir := range []string{p.Slots(), p.Racks()} {
		list, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.t.Fatal(err)
		}
		for _, e := range list {
			left = append(left, e.Name())
		}
	}
	if mounts := p.mounts(); len(left)+len(mounts) > 0 {
		p.t.Errorf("%s: left are %v, mounts %v", what, left, mounts)
	}
}

// mounts lists what is mounted over folders of devices.
func (p *place) mounts() (list []string) {
	p.t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.HasPrefix(f[1], p.Slots()+"/") {
			list = append(list, filepath.Base(f[1]))
		}
	}
	return list
}

// Whatever the order in which Pods go, and however often the runtime says so, nothing is left.
func TestNothingIsLeft(t *testing.T) {
	for what, of := range map[string]func(l, h, u *pod) []*pod{
		"users first": func(l, h, u *pod) []*pod { return []*pod{u, h, l} },
		"leaf first":  func(l, h, u *pod) []*pod { return []*pod{l, h, u} },
		"all twice":   func(l, h, u *pod) []*pod { return []*pod{h, h, u, l, u, l} },
	} {
		p := newPlace(t)
		l, h, u := p.leaf("port-000"), p.host("cn0", "port-001"), p.user("team", "nic-000", "")
		p.adds(l, h, u)
		if n := len(p.mounts()); n != 3 {
			t.Fatalf("%s: %d mounts", what, n)
		}
		p.removes(of(l, h, u)...)
		p.bare(what)
	}
}

// A Pod that is refused, or whose connection fails half way, leaves nothing, though no DEL comes for it.
func TestNothingIsLeftOfAFailure(t *testing.T) {
	p := newPlace(t)
	if _, err := p.add(p.user("team", "nic-000", "")); !errors.Is(err, errAgain) {
		t.Error("a user before the leaf:", err)
	}
	if _, err := p.add(p.host("cn0", "port-001")); !errors.Is(err, errAgain) {
		t.Error("a host before the leaf:", err)
	}
	p.bare("before the leaf")
	// A file in the place of the folder of the device keeps it from being bound, after the record was written.
	block := func(slot string) {
		if err := errors.Join(os.MkdirAll(p.Slots(), 0o755), os.WriteFile(p.Slot(slot), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	block("port-000")
	if _, err := p.add(p.leaf("port-000")); err == nil {
		t.Error("a leaf without a folder is connected")
	}
	p.bare("a leaf whose folder cannot be bound")
	l := p.leaf("port-000")
	p.adds(l)
	block("port-001")
	h := p.host("cn0", "port-001")
	if _, err := p.add(h); err == nil {
		t.Error("a host without a folder is connected")
	}
	if _, err := nl.LinkByName(l.netns, "p-cn0"); err == nil {
		t.Error("the link of a host that failed is there")
	}
	h = p.host("cn0", "port-001")
	p.adds(h)
	for _, u := range []*pod{p.user("other", "nic-000", ""), p.user("team", "nic-001", "ms9")} {
		if _, err := p.add(u); err == nil {
			t.Error(u.name, "is connected")
		}
	}
	bare := p.user("team", "", "")
	if _, err := p.add(bare); !errors.Is(err, errRefused) {
		t.Error("a user without a device:", err)
	}
	p.removes(l, h)
	p.bare("after all")
}

// What was of Pods that went without DEL goes at the next call for any Pod; and so does a mount that no record names.
func TestNothingIsLeftOfTheDead(t *testing.T) {
	p := newPlace(t)
	l, h, u := p.leaf("port-000"), p.host("cn0", "port-001"), p.user("team", "nic-000", "cn0")
	p.adds(l, h, u)
	p.goes(h)
	p.goes(u)
	p.goes(l)
	stray, old := p.Slot("nic-007"), time.Now().Add(-time.Hour)
	if err := errors.Join(os.Mkdir(stray, 0o755), os.Chtimes(stray, old, old), unix.Mount(t.TempDir(), stray, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	p.removes(&pod{container: "of a Pod that has no rack"})
	p.bare("after a failure of the node")
}

// A Pod of a leaf, host or user that is made again, with the same device or another, gets what it needs; the DEL of the
// former one, which comes late, takes nothing of that.
func TestMadeAgain(t *testing.T) {
	for _, slots := range [][3]string{{"port-000", "port-001", "nic-000"}, {"port-007", "port-008", "nic-009"}, {"port-001", "port-000", "nic-000"}} {
		p := newPlace(t)
		l, h, u := p.leaf("port-000"), p.host("cn0", "port-001"), p.user("team", "nic-000", "cn0")
		p.adds(l, h, u)
		l2, h2, u2 := p.leaf(slots[0]), p.host("cn0", slots[1]), p.user("team", slots[2], "cn0")
		p.adds(l2, h2, u2)
		p.removes(u, h, l)
		if n := len(p.mounts()); n != 3 {
			t.Errorf("%v: mounts are %v", slots, p.mounts())
		}
		if _, err := nl.LinkByName(l2.netns, "p-cn0"); err != nil {
			t.Errorf("%v: the link: %v", slots, err)
		}
		p.removes(u2, h2, l2)
		p.bare(fmt.Sprint(slots))
	}
}
