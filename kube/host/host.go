// Package host is the program of a host's Pod: it waits for the link that the CNI plugin makes, runs the host's NIC,
// services and memory (topo/hostd), and says when it is ready. A Pod that gets no link ends with a text that says
// what to do: it never looks as if it worked.
package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	_ "github.com/rdmalab/rdmalab/store/all" // the stores that a host's daemon serves
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Config says which host it is.
type Config struct {
	// Name is the host's. Description is the file with the rack's description, as rackfile.Rack.Encode writes it.
	Name, Description string
	// Dir is an empty folder for the host's state. Sockets is the folder of the Pod's device.
	Dir, Sockets string
	// Listen is the address at which Ready is served.
	Listen string
	Log    *slog.Logger
}

// linkWait bounds how long the link may be missing, and linkLook is the pause between two looks.
const (
	linkWait = 30 * time.Second
	linkLook = 20 * time.Millisecond
)

// ErrNoLink says that the Pod has no NIC.
var ErrNoLink = errors.New("this Pod has no link to a rack")

// errReplaced says that the link is another one than before.
var errReplaced = errors.New("the link was replaced, as when the leaf's Pod is another one: the host starts again, with empty memory")

// Run runs the host until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	data, err := os.ReadFile(cfg.Description)
	if err != nil {
		return fmt.Errorf("the rack's description: %w", err)
	}
	r, err := rackfile.Decode(data)
	if err != nil {
		return err
	}
	self, _, ok := r.Host(cfg.Name)
	if !ok {
		return fmt.Errorf("rack %s has no host %q; it has %v", r.Name, cfg.Name, r.HostNames())
	}
	paths := rackfile.Paths{Dir: cfg.Dir}
	if err := prepare(paths, cfg.Sockets, data); err != nil {
		return err
	}
	index, err := awaitLink(ctx, r, self)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchLink(ctx, self.Ifname(), index, cancel)
	m, err := hostd.OpenMachine(hostd.Config{Dir: cfg.Dir, Name: cfg.Name, Log: cfg.Log})
	if err != nil {
		return err
	}
	p := &program{cfg: cfg, rack: r, self: self, client: control.NewClient(paths.Socket(cfg.Name))}
	err = errors.Join(share(paths, cfg.Name), p.run(ctx), m.Close())
	if cause := context.Cause(ctx); errors.Is(cause, errReplaced) {
		err = errors.Join(err, cause)
	}
	return err
}

// prepare makes the state folder: its folder of sockets is that of the device.
func prepare(paths rackfile.Paths, sockets string, description []byte) error {
	if _, err := os.Stat(sockets); err != nil {
		return fmt.Errorf("%w: %s is missing: the container needs the limit rdmalab.io/port: 1", ErrNoLink, sockets)
	}
	dir := filepath.Dir(paths.Socket("x"))
	if err := os.Symlink(sockets, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(paths.Log("x")), 0o755); err != nil {
		return err
	}
	if _, err := rack.PlaceLibraries(paths); err != nil {
		return err
	}
	return os.WriteFile(paths.Spec(), description, 0o644)
}

// UserName is by what name a user's Pod finds the sockets of the host, whatever that is called.
const UserName = "nic"

// share gives the sockets of the host a second name, and all users of the Pods that have the folder mounted the right
// to use the NIC. The control sockets stay root's.
func share(paths rackfile.Paths, name string) error {
	var errs []error
	for _, of := range []func(string) string{paths.Verbs, paths.Netlink} {
		errs = append(errs, os.Chmod(of(name), 0o666))
	}
	for _, of := range []func(string) string{paths.Verbs, paths.Netlink, paths.VerbsTree, paths.VerbsPreload} {
		link := of(UserName)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		errs = append(errs, os.Symlink(filepath.Base(of(name)), link))
	}
	return errors.Join(errs...)
}

// link returns the index of the interface if it is up and has the host's address.
func link(r *rackfile.Rack, h *rackfile.Host) (int, bool) {
	l, err := nl.LinkByName("", h.Ifname())
	if err != nil || !l.Up {
		return 0, false
	}
	addrs, err := nl.Addrs("", h.Ifname())
	return l.Index, err == nil && slices.Contains(addrs, r.Prefix4(h))
}

// awaitLink waits for the host's interface. The plugin has made it before the Pod's containers start, unless it
// was not called.
func awaitLink(ctx context.Context, r *rackfile.Rack, h *rackfile.Host) (int, error) {
	for end := time.Now().Add(linkWait); ; {
		if index, ok := link(r, h); ok {
			return index, nil
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%w: no interface %s with address %v came within %v. The CNI plugin of racks was not called for it: look for the events "+
				"PluginMissing of the node, and at the Pods of DaemonSet rdmalab-node; then delete this Pod, and it is made again", ErrNoLink, h.Ifname(), h.IPv4, linkWait)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(linkLook):
		}
	}
}

// linkWatch is the interval at which watchLink looks.
const linkWatch = 250 * time.Millisecond

// watchLink ends the host when its interface is another one. While it is missing, the host goes on: its link is
// down.
func watchLink(ctx context.Context, ifname string, index int, end context.CancelCauseFunc) {
	tick := time.NewTicker(linkWatch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l, err := nl.LinkByName("", ifname); err == nil && l.Index != index {
			end(errReplaced)
			return
		}
	}
}

// program is a host that runs.
type program struct {
	cfg      Config
	rack     *rackfile.Rack
	self     *rackfile.Host
	client   *control.Client
	verified atomic.Pointer[string] // what verify found last; "" means that all paths work
}

// run serves the state of the host until ctx ends.
func (p *program) run(ctx context.Context) error {
	m := http.NewServeMux()
	m.HandleFunc("GET /ready", p.ready)
	m.HandleFunc("GET /status", p.status)
	srv := &http.Server{Addr: cmp.Or(p.cfg.Listen, ":7470"), Handler: m, ReadHeaderTimeout: time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.ListenAndServe() }()
	go p.verify(ctx)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return srv.Close()
	}
}

// answerWait bounds how long the daemon may take to answer.
const answerWait = time.Second

// ready answers 200 if the daemon answers and all paths were verified once.
func (p *program) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerWait)
	defer cancel()
	var st hostd.Status
	if err := p.client.Call(ctx, http.MethodGet, hostd.PathStatus, nil, &st); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	switch found := p.verified.Load(); {
	case found == nil:
		http.Error(w, "paths to memory hosts are not verified yet", http.StatusServiceUnavailable)
	case *found != "":
		http.Error(w, *found, http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ready")
	}
}

// status answers with what the daemon says.
func (p *program) status(w http.ResponseWriter, r *http.Request) {
	var st json.RawMessage
	if err := p.client.Call(r.Context(), http.MethodGet, hostd.PathStatus, nil, &st); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(st) // the caller may be gone
}

// verifyPause is the time between two attempts of verify.
const verifyPause = 200 * time.Millisecond

// verify checks the paths from a compute host to all memory hosts by WRITE, READ, CAS and FAA, until all of them
// have worked once.
func (p *program) verify(ctx context.Context) {
	for {
		text := ""
		if err := p.verifyOnce(ctx); err != nil {
			text = err.Error()
		}
		p.verified.Store(&text)
		if text == "" {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(verifyPause):
		}
	}
}

func (p *program) verifyOnce(ctx context.Context) error {
	var to []string
	for _, h := range p.rack.ByRole(rackfile.Memory) {
		to = append(to, h.Name)
	}
	if p.self.Role != rackfile.Compute || len(to) == 0 {
		return nil
	}
	var failed []error
	n := 0
	err := control.Items(ctx, p.client, http.MethodPost, hostd.PathVerify, hostd.VerifyRequest{To: to}, func(i hostd.VerifyItem) error {
		n++
		if !i.OK {
			failed = append(failed, fmt.Errorf("%s to %s: %s", i.From, i.To, i.Error))
		}
		return nil
	})
	if err == nil && n != len(to) {
		err = fmt.Errorf("%d of %d paths were verified", n, len(to))
	}
	return errors.Join(append(failed, err)...)
}
