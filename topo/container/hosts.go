package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
)

// Settings say how the hosts of a rack run in containers. The rack's state folder keeps them.
type Settings struct {
	// Socket is the path of the engine's socket.
	Socket string `json:"socket"`
	Plug   Plug   `json:"plug"` // a container that compose makes may have a label with another Plug
	// Compose is the path of the compose file that makes the containers; "" means that the package
	// makes them by the engine's API.
	Compose string `json:"compose,omitempty"`
}

// settingsFile returns the path of a rack's Settings. The file exists only if the hosts are
// containers.
func settingsFile(p rackfile.Paths) string { return filepath.Join(p.Dir, "containers.json") }

// Save writes s into the rack's state folder.
func (s *Settings) Save(p rackfile.Paths) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(settingsFile(p), b, 0o644)
}

// Saved returns the settings that Save has written; nil if the rack's hosts are processes.
func Saved(p rackfile.Paths) (*Settings, error) {
	b, err := os.ReadFile(settingsFile(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s Settings
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", settingsFile(p), err)
	}
	return &s, nil
}

// Hosts are the containers of a rack. Its methods may be called by several goroutines at a time.
type Hosts struct {
	name  string
	paths rackfile.Paths
	s     Settings
	// driver is the socket of the rack's network driver.
	driver string

	mu     sync.Mutex
	engine *Engine                 // guarded by mu; nil until the first use
	known  map[string]*incarnation // guarded by mu; incarnations of containers, by host
	image  string                  // guarded by mu; the engine's ID of the image, "" until the first use
}

// NewHosts returns the Hosts of a rack. It sends no request to the engine.
func NewHosts(rack string, s Settings) *Hosts {
	return &Hosts{name: rack, paths: rackfile.PathsOf(rack), s: s, driver: driverSocket(rack), known: make(map[string]*incarnation)}
}

func (h *Hosts) Settings() Settings { return h.s }

// Engine returns the engine. The first call connects to it, and returns an error if the engine does
// not answer; later calls return the same Engine.
func (h *Hosts) Engine(ctx context.Context) (*Engine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine != nil {
		return h.engine, nil
	}
	e, err := Connect(ctx, h.s.Socket)
	if err == nil {
		h.engine = e
	}
	return e, err
}

// Prepare makes the image with the program exe, and with PlugDriver the networks of all hosts. If
// there is a compose file, it makes the image and runs compose, which makes the networks, and makes
// and starts the containers.
func (h *Hosts) Prepare(ctx context.Context, r *rackfile.Rack, exe string) error {
	e, err := h.Engine(ctx)
	if err != nil {
		return err
	}
	if _, err := h.ensure(ctx, e, exe, ""); err != nil {
		return err
	}
	if h.s.Compose != "" {
		return h.compose(ctx)
	}
	for _, c := range linkNets(r, h.s.Plug) {
		if err := e.createNetwork(ctx, c.body(h.name)); err != nil {
			return fmt.Errorf("network %s: %w", c.Name, err)
		}
	}
	return nil
}

// Start starts the containers of a host. It makes those that do not exist, from the image with the
// program exe.
func (h *Hosts) Start(ctx context.Context, r *rackfile.Rack, host, exe string) error {
	e, err := h.Engine(ctx)
	if err != nil {
		return err
	}
	plug := h.s.Plug
	if h.s.Compose != "" {
		// A compose file may choose other names and plugs, so its containers are found by their
		// labels.
		if c, err := h.Container(ctx, host, PartHost); err == nil {
			if p, err := ParsePlug(string(c.Plug)); err == nil {
				plug = p
			}
		}
	}
	for _, u := range units(r, host, plug) {
		// The container is found by its labels, not by its name, because another program may use
		// the name.
		c, err := h.Container(ctx, host, u.Part)
		if err == nil {
			err = e.start(ctx, c.ID)
		}
		if errors.Is(err, ErrNotFound) {
			err = h.make(ctx, e, &u, exe)
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", host, err)
		}
	}
	return nil
}

// maxMakeTries bounds how often Hosts.make tries to create a container, because another process may
// remove the image between its loading and the creation.
const maxMakeTries = 5

// make creates a container and starts it. If another process has removed the image before the
// container was created, make loads the image again.
func (h *Hosts) make(ctx context.Context, e *Engine, u *unit, exe string) error {
	var id string
	var err error
	for range maxMakeTries {
		if id, err = h.ensure(ctx, e, exe, id); err != nil {
			return err
		}
		if err = e.create(ctx, u.Name, u.body(h.name, id)); !errors.Is(err, ErrNotFound) {
			break
		}
	}
	if err != nil {
		return err
	}
	return e.start(ctx, u.Name)
}

// ensure returns the engine's ID of the image with the program exe. It loads the image if the
// engine does not have it. gone is an ID that the engine did not find; "" at the first try.
func (h *Hosts) ensure(ctx context.Context, e *Engine, exe, gone string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.image != "" && h.image != gone {
		return h.image, nil
	}
	image, err := NewImage(exe)
	if err != nil {
		return "", err
	}
	h.image, err = e.Ensure(ctx, image)
	return h.image, err
}

// errNone means that the host has no container whose label LabelPart has the value that was asked
// for: PartHost or PartHolder.
var errNone = fmt.Errorf("no container has the labels of the host: %w", ErrNotFound)

// Container inspects the container that is the given part of a host.
func (h *Hosts) Container(ctx context.Context, host, part string) (Container, error) {
	e, err := h.Engine(ctx)
	if err != nil {
		return Container{}, err
	}
	name := ContainerName(h.name, host)
	if part == PartHolder {
		name = holderName(h.name, host)
	}
	c, err := e.Inspect(ctx, name)
	if err == nil && c.Rack == h.name && c.Host == host && c.Part == part || err != nil && !errors.Is(err, ErrNotFound) {
		return c, err
	}
	// A compose file may give the container another name, so it is looked up by its labels.
	list, err := e.List(ctx, h.name)
	if err != nil {
		return Container{}, err
	}
	for _, c := range list {
		if c.Host == host && c.Part == part {
			return e.Inspect(ctx, c.ID)
		}
	}
	return Container{}, errNone
}

// Kill ends a host's processes at once. It returns no error if there are none.
func (h *Hosts) Kill(ctx context.Context, host string) error {
	return h.act(ctx, host, func(e *Engine, c Container) error { return e.kill(ctx, c.ID) })
}

// Pause stops a host's processes if on is true, otherwise it continues them.
func (h *Hosts) Pause(ctx context.Context, host string, on bool) error {
	return h.act(ctx, host, func(e *Engine, c Container) error { return e.pause(ctx, c.ID, on) })
}

func (h *Hosts) act(ctx context.Context, host string, f func(e *Engine, c Container) error) error {
	e, err := h.Engine(ctx)
	if err != nil {
		return err
	}
	c, err := h.Container(ctx, host, PartHost)
	if err != nil {
		return except(err, ErrNotFound)
	}
	return f(e, c)
}

// network inspects the container whose network namespace is a host's: the holder if there is one.
func (h *Hosts) network(ctx context.Context, host string) (Container, error) {
	c, err := h.Container(ctx, host, PartHolder)
	if errors.Is(err, ErrNotFound) {
		c, err = h.Container(ctx, host, PartHost)
	}
	return c, err
}

// Netns returns the path of the network namespace that has a host's NIC. The error is ErrNotFound
// if no running container holds this namespace.
func (h *Hosts) Netns(ctx context.Context, host string) (string, error) {
	c, err := h.network(ctx, host)
	if err != nil {
		return "", err
	}
	if !c.Runs() {
		return "", ErrNotFound
	}
	return netnsOf(c.PID), nil
}

// Remove removes every container and network with the rack's label, containers first, and reports
// in found whether there was any. While it removes the networks, the rack's network driver must
// answer: if no watcher serves it, Remove does. Other containers that are connected to one of the
// networks are disconnected, but not removed.
func (h *Hosts) Remove(ctx context.Context) (found bool, failed error) {
	e, err := h.Engine(ctx)
	if err != nil {
		return false, err
	}
	list, err := e.List(ctx, h.name)
	if err != nil {
		return false, err
	}
	nets, err := e.networks(ctx, h.name)
	if err != nil {
		return false, err
	}
	if len(nets) > 0 { // an engine that cannot reach the driver waits long for each container and network
		stop, err := h.driverFor(ctx)
		defer func() { failed = errors.Join(failed, err, stop()) }()
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() { errs[i] = e.remove(ctx, c.ID) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err == nil {
		errs = append(errs, h.awaitGone(ctx, e, list))
	}
	for _, n := range nets {
		errs = append(errs, e.removeNetwork(ctx, n.ID))
	}
	return len(list)+len(nets) > 0, errors.Join(errs...)
}

const (
	// goneStep is the interval at which awaitGone and RemoveLate check the containers.
	goneStep = 20 * time.Millisecond
	// againStep is the number of checks after which awaitGone requests the removal again.
	againStep = 10
)

// awaitGone waits until the containers of list are gone. The engine may still be removing one of
// them for a program that has died, and may abandon this removal. So awaitGone requests the removal
// again if a container stays.
func (h *Hosts) awaitGone(ctx context.Context, e *Engine, list []Container) error {
	for check := 1; ; check++ {
		left, err := e.List(ctx, h.name)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(c Container) bool {
			return !slices.ContainsFunc(list, func(was Container) bool { return was.ID == c.ID })
		})
		if len(left) == 0 {
			return nil
		}
		if check%againStep == 0 {
			for _, c := range left {
				if err := e.remove(ctx, c.ID); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the engine has not finished removing %s: %w", left[0].Name, ctx.Err())
		case <-time.After(goneStep):
		}
	}
}

// Quiet is how long RemoveLate waits for more containers of a rack whose `rdmalab up` died before
// the rack was up. The engine may still execute requests of the dead program, so a container may
// appear after all others were removed.
const Quiet = 2 * time.Second

// RemoveLate calls Remove until no new container or network has appeared for the time quiet.
func (h *Hosts) RemoveLate(ctx context.Context, quiet time.Duration) error {
	for last := time.Now(); ; {
		found, err := h.Remove(ctx)
		switch {
		case err != nil:
			return err
		case found:
			last = time.Now()
		case time.Since(last) >= quiet:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(goneStep):
		}
	}
}

// Leftovers lists the racks that have containers at the engine behind a socket, by the labels of
// the containers. The list is empty if there is no engine.
func Leftovers(ctx context.Context, socket string) ([]string, error) {
	if _, err := os.Stat(socket); err != nil {
		return nil, nil
	}
	e, err := Connect(ctx, socket)
	if err != nil {
		return nil, except(err, ErrNoEngine)
	}
	list, err := e.List(ctx, "")
	var names []string
	for _, c := range list {
		if rackfile.CheckName(c.Rack) == nil && !slices.Contains(names, c.Rack) {
			names = append(names, c.Rack)
		}
	}
	return names, err
}
