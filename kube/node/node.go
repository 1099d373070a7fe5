// Package node has what is kept on a node: which Pods have a switch, a host or the use of one. The CNI plugin writes
// it while it holds a lock; the node agent reads it. All of it is in a tmpfs, and gone after a restart of the
// machine, as the Pods' networks are.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where the state of a node is.
const Root = "/run/rdmalab/kube"

// Mounted is where a Pod that has a NIC finds the folder of its sockets.
const Mounted = "/run/rdmalab/nic"

// Link is the link between a leaf and a host: the annotation AnnotationLink.
type Link struct {
	// Port is the name of the leaf's end, Ifname that of the host's.
	Port   string `json:"port"`
	Ifname string `json:"ifname"`
	MAC    string `json:"mac"`
	// MTU is in bytes, without the Ethernet header.
	MTU       int            `json:"mtu"`
	Role      string         `json:"role"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Record is a Pod of a rack: its leaf, a host, or a user of a host. Slot is the number of its device.
type Record struct {
	Container string `json:"container"`
	Netns     string `json:"netns"`
	Slot      string `json:"slot"`
	// Pod is NAMESPACE/NAME.
	Pod string `json:"pod"`
	// Users is of a leaf: the namespaces whose Pods may use its hosts.
	Users []string `json:"users,omitempty"`
	// Link is of a host.
	Link *Link `json:"link,omitempty"`
	// Host is of a user: the host whose NIC it has.
	Host string `json:"host,omitempty"`
}

// State is the state of a node; its value is the root folder.
type State string

// Slots returns the folder with a folder for each device.
func (s State) Slots() string { return filepath.Join(string(s), "nic") }

// Slot returns the folder of a device: it is mounted into the Pod that has it.
func (s State) Slot(id string) string { return filepath.Join(s.Slots(), id) }

// Racks returns the folder with a folder for each rack.
func (s State) Racks() string { return filepath.Join(string(s), "racks") }

// Rack returns the state of a rack on the node.
func (s State) Rack(namespace, name string) Rack {
	return Rack{filepath.Join(s.Racks(), namespace+"_"+name)}
}

// lockWait bounds how long another call of the plugin may hold the lock.
const lockWait = 20 * time.Second

// Lock makes the root folder, and waits until no other program changes what is in it.
func (s State) Lock() (release func(), err error) {
	if err := os.MkdirAll(s.Slots(), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(string(s), "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // with the file the lock ends
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
	}
}

// Each calls f for each rack of the node.
func (s State) Each(f func(Rack) error) error {
	list, err := os.ReadDir(s.Racks())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs []error
	for _, e := range list {
		errs = append(errs, f(Rack{filepath.Join(s.Racks(), e.Name())}))
	}
	return errors.Join(errs...)
}

// Rack is the state of a rack on a node.
type Rack struct{ dir string }

// Kinds of records: the folders in which they are.
const (
	Leaves = "leaf"
	Hosts  = "hosts"
	Users  = "users"
)

// LeafName is the name of the record of a rack's leaf.
const LeafName = "leaf"

// Sockets returns the folder with the sockets of a host, or of the leaf. It outlives their Pods, so that a user's Pod
// finds the sockets of a host that has come back.
func (r Rack) Sockets(name string) string { return filepath.Join(r.dir, "sock", name) }

// Put writes a record.
func (r Rack) Put(kind, name string, rec Record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.dir, kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, name+".json")
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Drop removes a record.
func (r Rack) Drop(kind, name string) error {
	return os.Remove(filepath.Join(r.dir, kind, name+".json"))
}

// List returns the records of a kind by their names.
func (r Rack) List(kind string) (map[string]Record, error) {
	out := make(map[string]Record)
	dir := filepath.Join(r.dir, kind)
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		rec, err := parse(kind, data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: remove it, and the Pod", filepath.Join(dir, e.Name()), err)
		}
		out[name] = rec
	}
	return out, nil
}

// parse reads a record of a kind. One of a host has a link.
func parse(kind string, data []byte) (rec Record, err error) {
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, err
	}
	if kind == Hosts && rec.Link == nil {
		return rec, errors.New("the record of a host has no link")
	}
	return rec, nil
}

// Records calls f for all records that can be read, those of users first and that of the leaf last, also after f has
// failed. It sets the others aside.
func (r Rack) Records(f func(kind, name string, rec Record) error) error {
	var errs []error
	for _, kind := range []string{Users, Hosts, Leaves} {
		if err := r.SetAside(kind); err != nil {
			return errors.Join(append(errs, err)...)
		}
		list, err := r.List(kind)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for name, rec := range list {
			errs = append(errs, f(kind, name, rec))
		}
	}
	return errors.Join(errs...)
}

// SetAside renames the records of a kind that cannot be read to NAME.bad, so that List passes over them.
func (r Rack) SetAside(kind string) error {
	dir := filepath.Join(r.dir, kind)
	list, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range list {
		data, err := os.ReadFile(path)
		if err == nil {
			_, err = parse(kind, data)
		}
		if err != nil {
			if err := os.Rename(path, strings.TrimSuffix(path, ".json")+".bad"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Prune removes the folder of a rack of which nothing is on the node any more.
func (r Rack) Prune() error {
	for _, kind := range []string{Leaves, Hosts, Users} {
		if list, err := r.List(kind); err != nil || len(list) > 0 {
			return err
		}
	}
	return os.RemoveAll(r.dir)
}
