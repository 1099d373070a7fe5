package memlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Bounds of the interval at which a host tries to connect to a switch that does not answer.
const (
	leastRetry = 2 * time.Millisecond
	mostRetry  = 20 * time.Millisecond
)

// Connector is a host's side of its memory link: it attaches the port to the switch, and again when
// either has restarted.
type Connector struct {
	path, host string
	port       *Port
	log        *slog.Logger
	stop       context.CancelFunc
	wg         sync.WaitGroup
	// first is closed when the port has been attached for the first time.
	first chan struct{}
	once  sync.Once
	said  string    // the last error that was logged
	since time.Time // the port is not attached since then
}

// Connect begins to attach a port to the switch that listens on path, as the end of a host, until
// Close. The port stays the caller's.
func Connect(path, host string, port *Port, log *slog.Logger) *Connector {
	ctx, stop := context.WithCancel(context.Background())
	c := &Connector{path: path, host: host, port: port, log: log, stop: stop, first: make(chan struct{})}
	c.wg.Go(func() { c.run(ctx) })
	return c
}

// Attached is closed when the port has been attached for the first time.
func (c *Connector) Attached() <-chan struct{} { return c.first }

func (c *Connector) run(ctx context.Context) {
	retry := leastRetry
	c.since = time.Now()
	for ctx.Err() == nil {
		err := c.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errEnded) {
			c.since, retry = time.Now(), leastRetry
		}
		c.report(err)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, mostRetry)
	}
}

// quiet is how long a switch may be starting before the log says that it does not answer.
const quiet = time.Second

// report logs why the port is not attached, each cause once.
func (c *Connector) report(err error) {
	ended := errors.Is(err, errEnded)
	if text := err.Error(); text != c.said && (ended || time.Since(c.since) > quiet) {
		c.said = text
		c.log.Info("memory link is not attached", "cause", err)
	}
}

// errEnded is the end of a session: the switch has ended, or broken the link.
var errEnded = errors.New("the switch has ended the link")

// session attaches the port for as long as a connection lasts.
func (c *Connector) session(ctx context.Context) error {
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: c.path, Net: network})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends every wait below
	j, err := c.join(conn)
	if err != nil {
		return err
	}
	c.port.attach(j)
	c.said = ""
	c.log.Info("memory link is attached")
	c.once.Do(func() { close(c.first) })
	await(conn)
	j.gone.Store(true)
	return errEnded
}

// join asks the switch for the memory of the link.
func (c *Connector) join(conn *net.UnixConn) (*joint, error) {
	if err := c.greet(conn); err != nil {
		return nil, err
	}
	var w welcome
	fds, err := receive(conn, &w, 2)
	switch {
	case err != nil:
		return nil, err
	case w.Error != "":
		shut(fds...)
		return nil, errors.New(w.Error)
	case w.layout != ours || len(fds) != 2:
		shut(fds...)
		return nil, fmt.Errorf("the memory of this host is %+v, that of the switch %+v: restart the older one", ours, w.layout)
	}
	defer shut(fds[0]) // the mapping keeps the memory
	mem, err := mapMemory(fds[0])
	if err != nil {
		shut(fds[1])
		return nil, err
	}
	const toSwitch, toHost = 0, 1
	return newJoint(mem, toSwitch, toHost, fds[1], func() { _ = conn.Close() }), nil
}

func (c *Connector) greet(conn *net.UnixConn) error {
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	if c.port.bell < 0 {
		return ErrClosed
	}
	return send(conn, hello{Host: c.host, layout: ours}, c.port.bell)
}

// Close ends the link and waits for its goroutine.
func (c *Connector) Close() error {
	c.stop()
	c.wg.Wait()
	return nil
}
