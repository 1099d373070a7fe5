package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/container"
)

// Rack is a handle for a rack that is up or is coming up. It has no open file and no process, so it
// need not be closed.
type Rack struct {
	Spec  *rackfile.Rack
	Paths rackfile.Paths
	// Lost lists the nodes of an earlier rack of the same name that had died without a command. Up
	// has removed that rack.
	Lost []string
	// Revived lists processes of the rack that had died and that Up has restarted.
	Revived []string
	keep    keeper
	// containers are those of the hosts; nil if the hosts are processes.
	containers *container.Hosts
	// exe is the path of rdmalab, which is also the program of the nodes' daemons.
	exe string
	// far returns the status of a rack on other machines; nil if the rack, or this slice of it, is here.
	far func(ctx context.Context) (Status, error)
	// reached is called after steps of Up and Down, with the name of the step. Tests kill the
	// controller there.
	reached func(step string)
}

// Open returns the rack called name. The error is ErrNotUp if there is none.
func Open(name string) (*Rack, error) {
	if err := rackfile.CheckName(name); err != nil {
		return nil, err
	}
	r := handle(name)
	data, err := os.ReadFile(r.Paths.Spec())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, rackError(name, ErrNotUp)
	}
	if err != nil {
		return nil, rackError(name, privilege(err))
	}
	r.Spec, err = rackfile.Decode(data)
	if err != nil {
		return nil, rackError(name, fmt.Errorf("%w; run `rdmalab down --rack %s`", err, name))
	}
	return r, r.useSaved()
}

// Far returns a handle for a rack on other machines, whose control sockets are at paths, and whose status
// the function returns. What needs processes or files of the machines does not work with it.
func Far(s *rackfile.Rack, paths rackfile.Paths, status func(ctx context.Context) (Status, error)) *Rack {
	r := handle(s.Name)
	r.Spec, r.Paths, r.far = s, paths, status
	return r
}

// List returns the names of all racks of which any part exists, whether they run or not.
func List() ([]string, error) {
	names := make(map[string]bool)
	places := []string{rackfile.StateRoot}
	if root := cgroup2Root(); root != "" {
		places = append(places, filepath.Join(root, cgroupParent))
	}
	for _, place := range places {
		entries, err := os.ReadDir(place)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, privilege(err)
		}
		for _, e := range entries {
			name, lock := strings.CutSuffix(e.Name(), rackfile.LockSuffix) // an up that was killed early leaves only its lock
			if (e.IsDir() || lock) && rackfile.CheckName(name) == nil {
				names[name] = true
			}
		}
	}
	if err := leftContainers(names); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// handle returns a Rack for the rack called name. It does not read the description (Spec).
func handle(name string) *Rack {
	r := &Rack{Paths: rackfile.PathsOf(name), exe: "/proc/self/exe", reached: func(string) {}}
	r.useCgroup(cgroup2Root(), name)
	return r
}

// useSaved sets whether hosts are processes or containers, as the rack's state folder says.
func (r *Rack) useSaved() error {
	s, err := container.Saved(r.Paths)
	if s != nil {
		r.useContainers(*s)
	}
	return rackError(r.name(), err)
}

func (r *Rack) name() string { return filepath.Base(r.Paths.Dir) }

// useCgroup sets how the rack stops, resumes and ends the processes of its nodes: by cgroups below
// root, or by signals if root is "".
func (r *Rack) useCgroup(root, name string) {
	if root == "" {
		r.keep = &signalKeeper{paths: r.Paths}
		return
	}
	r.keep = &cgroupKeeper{dir: filepath.Join(root, cgroupParent, name)}
}

// Nodes returns the names of the switches and of the hosts that this machine runs.
func (r *Rack) Nodes() []string {
	return nodesOf(r.Spec)
}

// nodesOf returns the names of the switches and of the hosts that the machine of a description runs.
func nodesOf(s *rackfile.Rack) []string {
	return onMachine(s, append(s.SwitchNames(), s.HostNames()...))
}

// onMachine leaves out the nodes that other machines run.
func onMachine(s *rackfile.Rack, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return s.MachineOf(name) != s.Machine })
}

func (r *Rack) Control(node string) *control.Client { return control.NewClient(r.Paths.Socket(node)) }

// ErrNoHost means that no host of the rack has the given name.
var ErrNoHost = errors.New("has no host")

func (r *Rack) checkNode(node string) error {
	if host := rackfile.MachineOf(node); host != node && slices.Contains(r.Spec.NICNames(), node) {
		return fmt.Errorf("%s is a NIC, which lives and dies with its host: name %s, or cut its link by `rdmalab link %s down`", node, host, node)
	}
	if at := r.Spec.MachineOf(node); at != r.Spec.Machine {
		return fmt.Errorf("%s is on machine %s, and this is %s: run the command there, or where `rdmalab up` was run", node, at, r.Spec.Machine)
	}
	if nodes := r.Nodes(); !slices.Contains(nodes, node) {
		return fmt.Errorf("rack %q %w %.60q; %sit has: %s", r.Spec.Name, ErrNoHost, node, nearest.Meant(node, nodes), strings.Join(nodes, " "))
	}
	return nil
}

// CheckHost returns an ErrNoHost if the rack has no host, and no further NIC of a host, of that name.
func (r *Rack) CheckHost(host string) error {
	if _, _, ok := r.Spec.Host(host); !ok {
		return fmt.Errorf("rack %q %w %.60q; %sits hosts: %s", r.Spec.Name, ErrNoHost, host, nearest.Meant(host, r.Spec.NICNames()), strings.Join(r.Spec.NICNames(), " "))
	}
	return nil
}

// locked runs f while it holds the rack's lock. It returns ErrNotUp, and does not call f, if the rack
// was taken down before locked had the lock.
func (r *Rack) locked(ctx context.Context, f func() error) error {
	l, err := acquire(ctx, r.Paths)
	if err != nil {
		return rackError(r.Spec.Name, err)
	}
	if _, err := os.Stat(r.Paths.Ready()); err != nil {
		return errors.Join(rackError(r.Spec.Name, ErrNotUp), l.release(true))
	}
	return errors.Join(f(), l.release(false))
}

func (r *Rack) alive(node string) (bool, error) {
	pids, err := r.keep.pids(node)
	_, daemon := initAndDaemon(processes(pids), r.Spec.Shared())
	return daemon != 0, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
