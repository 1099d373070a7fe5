package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/kube/node"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// socketsGroup is the number of the group of the folders of sockets, as rackspec.Group.
const socketsGroup = 4791

// state changes the state of a node. slotOf says which device of a resource a Pod has.
type state struct {
	node.State
	slotOf func(namespace, name, resource string) (string, error)
}

// add connects a Pod. It returns the link of a host. After an error nothing of the Pod is left: not every runtime
// calls DEL then.
func (s *state) add(p *pod) (*node.Link, error) {
	slot, err := s.slotOf(p.namespace, p.name, p.resource())
	if err != nil {
		return nil, err
	}
	release, err := s.Lock()
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := s.connect(p, slot)
	if err != nil {
		return nil, errors.Join(err, s.clean(p.container))
	}
	return l, nil
}

// connect connects a Pod that has a device.
func (s *state) connect(p *pod, slot string) (*node.Link, error) {
	if name := p.annotations[annotationSwitch]; name != "" {
		return nil, s.addLeaf(p, name, slot)
	}
	ns, name, err := rackOf(p.annotations[annotationRack], p.namespace)
	if err != nil {
		return nil, err
	}
	if text := p.annotations[annotationLink]; text != "" {
		l, err := parseLink(text)
		if err == nil {
			err = s.addHost(p, ns, name, slot, l)
		}
		return l, err
	}
	return nil, s.addUser(p, ns, name, slot)
}

// parseLink reads the annotation of a host.
func parseLink(text string) (*node.Link, error) {
	l := new(node.Link)
	if err := json.Unmarshal([]byte(text), l); err != nil {
		return nil, fmt.Errorf("%w: annotation %s: %w", errRefused, annotationLink, err)
	}
	for _, name := range []string{l.Port, l.Ifname} {
		if name == "" || len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/ \t\n:") || name == "eth0" || name == "lo" {
			return nil, fmt.Errorf("%w: annotation %s: %.40q is no name for an interface", errRefused, annotationLink, name)
		}
	}
	if m, err := wire.ParseMAC(l.MAC); err != nil || !rackfile.IsStation(m) {
		return nil, fmt.Errorf("%w: annotation %s: %.40q is no MAC address of a host", errRefused, annotationLink, l.MAC)
	}
	for _, p := range l.Addresses {
		if !p.IsValid() {
			return nil, fmt.Errorf("%w: annotation %s: an address is missing", errRefused, annotationLink)
		}
	}
	return l, nil
}

// addLeaf notes the leaf of a rack, and gives hosts that were connected to a former one their links again.
func (s *state) addLeaf(p *pod, name, slot string) error {
	if !isName(name) || !isName(p.namespace) {
		return fmt.Errorf("%w: annotation %s: %.80q is no name of a Rack", errRefused, annotationSwitch, name)
	}
	r := s.Rack(p.namespace, name)
	rec := p.record(slot)
	for _, u := range strings.Split(p.annotations[annotationUsers], ",") {
		if u != "" {
			rec.Users = append(rec.Users, u)
		}
	}
	if err := s.leaveFormer(r, node.Leaves, node.LeafName, slot); err != nil {
		return err
	}
	if err := r.Put(node.Leaves, node.LeafName, rec); err != nil {
		return err
	}
	if err := s.bind(r, node.LeafName, slot); err != nil {
		return err
	}
	if err := plug(s.Slot(slot), p.container); err != nil {
		return err
	}
	hosts, err := r.List(node.Hosts)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hosts {
		if alive(h.Netns) {
			errs = append(errs, connect(rec.Netns, h.Netns, h.Link))
		}
	}
	return errors.Join(errs...)
}

// plug notes in the folder of a leaf's device that the plugin was called. A Pod may write in the folder: whatever has
// the name there is removed, and no link is followed.
func plug(dir, container string) error {
	path := filepath.Join(dir, "plugged")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(container)
	return errors.Join(err, f.Close())
}

// addHost links a Pod to the leaf.
func (s *state) addHost(p *pod, ns, name, slot string, l *node.Link) error {
	host := p.annotations[annotationHost]
	if ns != p.namespace || !isName(host) {
		return fmt.Errorf("%w: a host is in the namespace of its rack, and has a name: this Pod is in %q, the rack in %q, the name is %.40q", errRefused, p.namespace, ns, host)
	}
	r := s.Rack(ns, name)
	leaf, err := leafOf(r, ns, name)
	if err != nil {
		return err
	}
	if err := s.leaveFormer(r, node.Hosts, host, slot); err != nil {
		return err
	}
	rec := p.record(slot)
	rec.Link = l
	if err := r.Put(node.Hosts, host, rec); err != nil {
		return err
	}
	if err := connect(leaf.Netns, p.netns, l); err != nil {
		return err
	}
	return s.bind(r, host, slot)
}

// leaveFormer gives up the device that a leaf or host had before, if it has another one now.
func (s *state) leaveFormer(r node.Rack, kind, name, slot string) error {
	old, err := r.List(kind)
	if was, ok := old[name]; err == nil && ok && was.Slot != slot {
		err = s.unbind(was)
	}
	return err
}

// leafOf returns the leaf of a rack on this node.
func leafOf(r node.Rack, ns, name string) (node.Record, error) {
	list, err := r.List(node.Leaves)
	if err != nil {
		return node.Record{}, err
	}
	leaf, ok := list[node.LeafName]
	if !ok || !alive(leaf.Netns) {
		return node.Record{}, fmt.Errorf("no leaf of rack %s/%s is on this node yet: %w", ns, name, errAgain)
	}
	return leaf, nil
}

// connect makes the link between a leaf and a host, in place of a former one.
func connect(leaf, host string, l *node.Link) error {
	mac, err := wire.ParseMAC(l.MAC)
	if err != nil {
		return err
	}
	if err := errors.Join(nl.DeleteLink(leaf, l.Port), nl.DeleteLink(host, l.Ifname), nl.EnableIPv6(host)); err != nil {
		return err
	}
	near := nl.End{Netns: leaf, Name: l.Port}
	far := nl.End{Netns: host, Name: l.Ifname, MAC: mac, Addrs: l.Addresses, NoTSO: true}
	return nl.Connect(near, far, l.MTU)
}

// addUser lets a Pod use the NIC of a host: of the one that it names, or of a compute host that no other Pod has.
func (s *state) addUser(p *pod, ns, name, slot string) error {
	r := s.Rack(ns, name)
	leaf, err := leafOf(r, ns, name)
	if err != nil {
		return err
	}
	if ns != p.namespace && !slices.Contains(leaf.Users, p.namespace) && !slices.Contains(leaf.Users, "*") {
		return fmt.Errorf("%w: Pods of namespace %s may not use rack %s/%s: add the namespace to `users` of the Rack", errRefused, p.namespace, ns, name)
	}
	hosts, err := r.List(node.Hosts)
	if err != nil {
		return err
	}
	users, err := r.List(node.Users)
	if err != nil {
		return err
	}
	host, err := choose(hosts, users, p.annotations[annotationHost])
	if err != nil {
		return fmt.Errorf("rack %s/%s: %w", ns, name, err)
	}
	rec := p.record(slot)
	rec.Host = host
	if err := r.Put(node.Users, p.container, rec); err != nil {
		return err
	}
	return s.bind(r, host, slot)
}

// choose returns the host whose NIC a Pod gets: the one called want, or if that is "" the first compute host
// whose network is there and that no other Pod has whose network is there.
func choose(hosts, users map[string]node.Record, want string) (string, error) {
	if want != "" {
		if h, ok := hosts[want]; !ok || !alive(h.Netns) {
			return "", fmt.Errorf("host %.40q is not on this node (yet): the Pod needs affinity to the Pod with label %s=%s: %w", want, annotationHost, want, errAgain)
		}
		return want, nil
	}
	taken := make(map[string]bool)
	for _, u := range users {
		if alive(u.Netns) {
			taken[u.Host] = true
		}
	}
	var free []string
	for name, h := range hosts {
		if h.Link != nil && h.Link.Role == string(rackfile.Compute) && !taken[name] && alive(h.Netns) {
			free = append(free, name)
		}
	}
	if len(free) == 0 {
		return "", fmt.Errorf("no compute host on this node is free: %d hosts, %d Pods that use one: %w", len(hosts), len(users), errAgain)
	}
	return slices.Min(free), nil
}

// sweepAge is how long a folder of a device that no record names stays: the runtime may be about to mount it.
const sweepAge = time.Minute

// remove takes away what a container had.
func (s *state) remove(container string) error {
	release, err := s.Lock()
	if err != nil {
		return err
	}
	defer release()
	err = s.clean(container)
	_ = s.Sweep(sweepAge, s.unmount) // no reason to keep this Pod: the next call, and the node agent, try again
	return err
}

// clean takes away what a container had, and what Pods had whose network is gone: no DEL will come for them.
func (s *state) clean(container string) error {
	return s.Each(func(r node.Rack) error {
		err := r.Records(func(kind, name string, rec node.Record) error {
			if rec.Container == container {
				return s.take(r, kind, name, rec)
			}
			if !alive(rec.Netns) {
				_ = s.take(r, kind, name, rec) // as for Sweep
			}
			return nil
		})
		return errors.Join(err, r.Prune())
	})
}

// take takes away what one record says.
func (s *state) take(r node.Rack, kind, name string, rec node.Record) error {
	if kind == node.Hosts {
		leaves, err := r.List(node.Leaves)
		if err != nil {
			return err
		}
		if leaf, ok := leaves[node.LeafName]; ok && alive(leaf.Netns) {
			if err := nl.DeleteLink(leaf.Netns, rec.Link.Port); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.unbind(rec), r.Drop(kind, name))
}

// bind mounts the folder of a host's sockets over that of a device.
func (s *state) bind(r node.Rack, name, slot string) error {
	dir := r.Sockets(name)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(s.Slot(slot), 0o755)); err != nil {
		return err
	}
	// The setgid bit is set last, because a change of the owner would clear it.
	if err := errors.Join(os.Chown(dir, 0, socketsGroup), os.Chmod(dir, 0o755|os.ModeSetgid)); err != nil {
		return err
	}
	s.unmount(slot)
	if err := unix.Mount(dir, s.Slot(slot), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the sockets of %s: %w", name, err)
	}
	return nil
}

// unmount takes away what is mounted over the folder of a device, once or more.
func (s *state) unmount(slot string) {
	for unix.Unmount(s.Slot(slot), unix.MNT_DETACH) == nil {
	}
}

// unbind gives the folder of a record's device up, unless another Pod's record names it: the kubelet has given the
// device away again. What cannot be unmounted leaves an empty folder.
func (s *state) unbind(rec node.Record) error {
	used, err := s.used(rec)
	if err != nil || used {
		return err
	}
	s.unmount(rec.Slot)
	_ = os.Remove(s.Slot(rec.Slot))
	return nil
}

// used reports whether the record of another Pod, whose network is there, names the device of a record. A Pod of
// before a failure of the node may have a record, and nothing else.
func (s *state) used(rec node.Record) (used bool, err error) {
	err = s.Each(func(r node.Rack) error {
		return r.Records(func(_, _ string, other node.Record) error {
			used = used || other.Slot == rec.Slot && other.Container != rec.Container && alive(other.Netns)
			return nil
		})
	})
	return used, err
}

// alive reports whether a network namespace is there.
func alive(path string) bool {
	_, _, err := nl.ID(path)
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}
