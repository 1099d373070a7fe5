// Package leaf is the program of a leaf's Pod: the switch of a rack on one node (topo/switchd). It takes its slice from
// the rack's description and the RackLeaf of its node, the addresses of the other leaves from their RackLeafs, and
// writes the status of its own. While the API server does not answer, the switch goes on.
package leaf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// Config says which leaf it is.
type Config struct {
	// Namespace and Rack name the Rack, Node is the name of the node, Address the Pod's.
	Namespace, Rack, Node string
	Address               netip.Addr
	// Description and Secret are the files with the rack's description and secret.
	Description, Secret string
	// Dir is an empty folder for the switch's state. Sockets is the folder of the Pod's device.
	Dir, Sockets string
	// Listen is the address at which readiness is served.
	Listen string
	// Version is that of this program.
	Version string
	Log     *slog.Logger
}

// slice is the part of the rack that this leaf runs.
type slice struct {
	cfg   Config
	paths rackfile.Paths
	rack  *rackfile.Rack
	own   string // the name of its machine
	leaf  string
	known map[string]netip.Addr
	began int64
	// others are the versions of leaves that have another one than this, by the names of the leaves.
	others atomic.Pointer[map[string]string]
}

// errMoved says that the RackLeaf of this node is another one than the one that runs.
var errMoved = errors.New("the leaf of this node is another one now: the switch starts again")

// prepare makes the state folder.
func prepare(cfg Config) (*slice, error) {
	if _, err := os.Stat(filepath.Join(cfg.Sockets, "plugged")); err != nil {
		return nil, fmt.Errorf("the CNI plugin of racks was not called for this Pod, so no host can be connected to it: look for the events PluginMissing of node %s, "+
			"and at the Pods of DaemonSet rdmalab-node; then delete this Pod, and it is made again (%w)", cfg.Node, err)
	}
	data, err := os.ReadFile(cfg.Description)
	if err != nil {
		return nil, fmt.Errorf("the rack's description: %w", err)
	}
	r, err := rackfile.Decode(data)
	if err != nil {
		return nil, err
	}
	secret, err := os.ReadFile(cfg.Secret)
	if err != nil {
		return nil, fmt.Errorf("the rack's secret: %w", err)
	}
	p := rackfile.Paths{Dir: cfg.Dir}
	if err := os.Symlink(cfg.Sockets, filepath.Dir(p.Socket("x"))); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	for _, dir := range []string{filepath.Dir(p.Log("x")), filepath.Dir(p.Cut("x"))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(p.Secret(), secret, 0o600); err != nil {
		return nil, err
	}
	return &slice{cfg: cfg, paths: p, rack: r, known: map[string]netip.Addr{}, began: time.Now().UnixMicro()}, nil
}

// running reports whether the slice has a switch.
func (s *slice) running() bool { return s.leaf != "" }

// take takes the RackLeafs of the rack. It returns why the leaf refuses to run, and whether the description has
// changed.
func (s *slice) take(list []v1alpha1.RackLeaf) (refused string, changed bool, err error) {
	known, others := map[string]netip.Addr{}, map[string]string{}
	var own *v1alpha1.RackLeaf
	for i := range list {
		l := &list[i]
		if l.Spec.Node == s.cfg.Node {
			own = l
			continue
		}
		if v := l.Status.Version; v != "" && v != s.cfg.Version {
			others[l.Spec.Leaf] = v
			known[l.Spec.Machine] = s.nowhere(l.Spec.Machine)
		} else if a, err := netip.ParseAddr(l.Status.Address); err == nil {
			known[l.Spec.Machine] = a
		}
	}
	s.others.Store(&others)
	switch {
	case own == nil && s.running():
		return "", false, errMoved
	case own == nil:
		return fmt.Sprintf("no RackLeaf of rack %s names node %s", s.cfg.Rack, s.cfg.Node), false, nil
	case s.running() && own.Spec.Machine != s.own:
		return "", false, errMoved
	case !s.running() && own.Spec.Version != s.cfg.Version:
		return fmt.Sprintf("version: the operator has %q, this leaf %q: delete the leaf's Pod, and it is made again", own.Spec.Version, s.cfg.Version), false, nil
	}
	known[own.Spec.Machine] = s.cfg.Address
	changed = !s.running()
	for m, a := range known {
		if s.known[m] != a {
			s.known[m], changed = a, true
		}
	}
	if !s.running() { // else they are the same, and others read them
		s.own, s.leaf = own.Spec.Machine, own.Spec.Leaf
	}
	return "", changed, nil
}

// nowhere returns the address of a machine to which no trunk is to go: that of the description, which is nowhere.
func (s *slice) nowhere(machine string) netip.Addr {
	for i := range s.rack.Machines {
		if m := &s.rack.Machines[i]; m.Name == machine {
			return m.Address
		}
	}
	return netip.Addr{}
}

// differs says why a trunk does not work whose far end has another version; "" if it has none.
func (s *slice) differs(trunk string) string {
	others := s.others.Load()
	t, ok := s.rack.TrunkNamed(trunk)
	if !ok || others == nil {
		return ""
	}
	for _, far := range []string{t.Leaf, t.Far} {
		if v, ok := (*others)[far]; ok {
			return fmt.Sprintf("version: %s has %q, %s %q: delete the Pod of the older one, and it is made again", far, v, s.leaf, s.cfg.Version)
		}
	}
	return ""
}

// write writes the description for the switch.
func (s *slice) write() error {
	data, err := rackspec.At(s.rack, s.own, s.known).Encode()
	if err != nil {
		return err
	}
	tmp := s.paths.Spec() + ".new"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, s.paths.Spec())
}

// serve runs the switch until ctx ends.
func (s *slice) serve(ctx context.Context) error {
	return switchd.Main(ctx, switchd.Place{Dir: s.cfg.Dir, Name: s.leaf, Outside: true}, s.cfg.Log)
}

// client returns that of the switch's control socket.
func (s *slice) client() *control.Client { return control.NewClient(s.paths.Socket(s.leaf)) }

// answerWait bounds how long the switch may take to answer.
const answerWait = 2 * time.Second

// reload makes the switch read the description again.
func (s *slice) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return s.client().Call(ctx, http.MethodPost, "/rack", struct{}{}, nil)
}

// status asks the switch, and makes the status of the RackLeaf from that.
func (s *slice) status(ctx context.Context) (v1alpha1.RackLeafStatus, error) {
	out := v1alpha1.RackLeafStatus{Address: s.cfg.Address.String(), Epoch: s.began, Version: s.cfg.Version}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	var st switchd.Status
	if err := s.client().Call(ctx, http.MethodGet, "/status", nil, &st); err != nil {
		return out, err
	}
	for _, p := range st.Ports {
		l := v1alpha1.LinkStatus{Name: p.Host, Up: p.State == switchd.PortUp}
		if !l.Up {
			l.Trouble = string(p.State)
			if p.Error != "" {
				l.Trouble += ": " + p.Error
			}
		}
		if _, trunk := s.rack.TrunkNamed(p.Host); trunk {
			if why := s.differs(p.Host); why != "" {
				l.Up, l.Trouble = false, why
			}
			out.Trunks = append(out.Trunks, l)
		} else {
			out.Ports = append(out.Ports, l)
		}
	}
	return out, nil
}
