package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
)

// WatcherName is the name of the watcher in the names of its log and its control socket. No host
// can have this name.
const WatcherName = "watcher"

const (
	// reconnectWait is how long the watcher waits before it connects to the engine again after the
	// connection has ended or has failed.
	reconnectWait = 500 * time.Millisecond
	// againWait is how long the watcher waits before it attends to a host again after a failure.
	againWait = 200 * time.Millisecond
	// maxSeen bounds how many events of a host the watcher keeps.
	maxSeen = 8
)

// Seen is an event of a host's container or link; What is that of Event.
type Seen struct {
	When time.Time `json:"when"`
	What string    `json:"what"`
}

// Watched is the state of a host as the watcher knows it.
type Watched struct {
	Host string `json:"host"`
	// Plugged is true if the NIC was in the container when the watcher last attended to the host.
	// Plugs counts how often Plugged became true, or stayed true for a container that was started
	// again.
	Plugged bool `json:"plugged"`
	Plugs   int  `json:"plugs"`
	// Error is the error of the watcher's last attempt to put the NIC into the container; "" means
	// that there was no error.
	Error string `json:"error,omitempty"`
	// Seen lists the latest events, oldest first.
	Seen []Seen `json:"seen"`
}

// Watch is the answer of the watcher to GET /status.
type Watch struct {
	// Engine says why the watcher does not receive the engine's events; "" means that it receives
	// them.
	Engine string    `json:"engine,omitempty"`
	Hosts  []Watched `json:"hosts"`
}

// watcher puts the NIC into a container whenever one starts. Its fields engine and state have what
// GET /status returns.
type watcher struct {
	plugger
	hosts *Hosts
	log   *slog.Logger

	mu     sync.Mutex // guards the fields below
	engine string
	state  map[string]*hostWatch
}

// hostWatch has the watcher's data about a host. A value in the channel dirty requests that the
// watcher attends to the host: plugger.reconcile inspects the host's containers, and puts the NIC
// into the container that must have it.
type hostWatch struct {
	Watched
	incarnation string // ID and start time of the container at the last increase of Plugs
	dirty       chan struct{}
}

// RunWatcher runs the watcher of a rack until ctx ends, in a process of the rack. Whenever the
// container engine starts a container of the rack, the watcher connects it to the switch. The
// watcher is also the engine's network driver for the rack.
func RunWatcher(ctx context.Context, rack *rackfile.Rack, s Settings, logger *slog.Logger) error {
	w := &watcher{
		plugger: plugger{rack: rack, paths: rackfile.PathsOf(rack.Name)}, hosts: NewHosts(rack.Name, s), log: logger,
		state: make(map[string]*hostWatch), engine: "not heard yet",
	}
	return w.run(ctx, driverSocket(rack.Name))
}

// run is RunWatcher with driverPath, the path of the network driver's socket.
func (w *watcher) run(ctx context.Context, driverPath string) (err error) {
	driver, err := serveDriver(driverPath, &w.plugger, w.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer wg.Wait()
	defer cancel()
	for i := range w.rack.Hosts {
		h := &w.rack.Hosts[i]
		hw := &hostWatch{Watched: Watched{Host: h.Name}, dirty: make(chan struct{}, 1)}
		w.state[h.Name] = hw
		wg.Go(func() { w.tend(ctx, h, hw) })
	}
	var m control.Mux
	control.Handle(&m, "GET /status", func(*http.Request, struct{}) (Watch, error) { return w.status(), nil })
	ctl, err := control.Serve(w.paths.Socket(WatcherName), &m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctl.Close()) }()
	for ctx.Err() == nil {
		err := w.listen(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the engine has ended its events")
		}
		w.setEngine(err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(reconnectWait):
		}
	}
	return nil
}

func (w *watcher) status() Watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Watch{Engine: w.engine, Hosts: make([]Watched, 0, len(w.state))}
	for i := range w.rack.Hosts {
		hw := w.state[w.rack.Hosts[i].Name]
		one := hw.Watched
		one.Seen = append([]Seen{}, hw.Seen...)
		s.Hosts = append(s.Hosts, one)
	}
	return s
}

// setEngine records and logs why the watcher does not receive the engine's events; "" means that it
// receives them.
func (w *watcher) setEngine(said string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if said != w.engine {
		if said == "" {
			w.log.Info("events of the engine are heard")
		} else {
			w.log.Warn("events of the engine are not heard", "reason", said)
		}
	}
	w.engine = said
}

// listen handles the engine's events until the stream ends. When it has subscribed to the events,
// it requests that the watcher attends to all hosts, so that no earlier event is lost.
func (w *watcher) listen(ctx context.Context) error {
	e, err := Connect(ctx, w.hosts.s.Socket)
	if err != nil {
		return err
	}
	return e.Events(ctx, w.rack.Name, func() {
		w.setEngine("")
		for _, hw := range w.state {
			hw.look()
		}
	}, func(ev Event) {
		hw, ok := w.state[ev.Host]
		if !ok {
			if ev.Host != "" {
				w.log.Warn("a container has the label of a host that the rack does not have", "host", fmt.Sprintf("%.40s", ev.Host))
			}
			return
		}
		w.mu.Lock()
		hw.Seen = append(hw.Seen, Seen{When: ev.When, What: ev.What})
		hw.Seen = hw.Seen[max(0, len(hw.Seen)-maxSeen):]
		w.mu.Unlock()
		w.log.Info("event of a container", "host", ev.Host, "event", ev.What)
		hw.look()
	})
}

func (hw *hostWatch) look() {
	select {
	case hw.dirty <- struct{}{}:
	default: // it is requested already
	}
}

// tend calls reconcile for a host whenever hostWatch.look has requested it, until ctx ends. After
// an error it waits for the time againWait, and then calls reconcile again.
func (w *watcher) tend(ctx context.Context, h *rackfile.Host, hw *hostWatch) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hw.dirty:
		}
		c, plugged, err := w.reconcile(ctx, w.hosts, h)
		if ctx.Err() != nil {
			return
		}
		w.note(hw, c, plugged, err)
		if err != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(againWait):
				hw.look()
			}
		}
	}
}

func (w *watcher) note(hw *hostWatch, c Container, plugged bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != hw.Error && said != "" {
		w.log.Warn("the NIC is not in the container", "host", hw.Host, "error", said)
	}
	incarnation := fmt.Sprint(c.ID, c.StartedAt)
	if plugged && (incarnation != hw.incarnation || !hw.Plugged) {
		hw.Plugs++
		hw.incarnation = incarnation
		w.log.Info("the NIC is in the container", "host", hw.Host, "pid", c.PID, "container", c.Name)
	}
	hw.Plugged, hw.Error = plugged, said
}
