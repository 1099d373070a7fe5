package memlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
)

// Limits of the interval at which a host tries to connect to a switch that does not answer.
const (
	leastRetry = 2 * time.Millisecond
	mostRetry  = 20 * time.Millisecond
)

// Connector is a host's side of its memory link: it attaches the port to the switch, and attaches
// it again when the switch has restarted.
type Connector struct {
	path, host string
	port       *Port
	log        *slog.Logger
	stop       context.CancelFunc
	wg         sync.WaitGroup
	// first is closed when the port is attached for the first time.
	first chan struct{}
	once  sync.Once
	said  string    // the last error that was logged, so that each is logged once
	since time.Time // when the port was last detached
}

// Connect starts a goroutine that attaches port, the host's end of its memory link, to the switch
// that listens on path. It attaches the port again whenever the switch has restarted, until Close.
// The caller must close the port.
func Connect(path, host string, port *Port, log *slog.Logger) *Connector {
	ctx, stop := context.WithCancel(context.Background())
	c := &Connector{path: path, host: host, port: port, log: log, stop: stop, first: make(chan struct{})}
	c.wg.Go(func() { c.run(ctx) })
	return c
}

// Attached returns a channel that is closed when the port is attached for the first time.
func (c *Connector) Attached() <-chan struct{} { return c.first }

func (c *Connector) run(ctx context.Context) {
	retry := leastRetry
	c.since = time.Now()
	for ctx.Err() == nil {
		err := c.session(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
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

// quiet is how long a switch may take to start. If it does not answer for longer, the log says so.
const quiet = time.Second

// report logs why the port is not attached. It logs each cause once.
func (c *Connector) report(err error) {
	ended := errors.Is(err, errEnded)
	if text := err.Error(); text != c.said && (ended || time.Since(c.since) > quiet) {
		c.said = text
		c.log.Info("memory link is not attached", "cause", err)
	}
}

// errEnded is the error of a session whose connection has ended: the switch has ended, or has ended
// the link.
var errEnded = errors.New("the switch has ended the link")

// session connects to the switch, attaches the port to the memory that the switch passes, and
// returns when the connection has ended.
func (c *Connector) session(ctx context.Context) error {
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: c.path, Net: network})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // closing the connection ends every wait below
	j, err := c.join(conn)
	if err != nil {
		return err
	}
	if !c.port.attach(j) {
		return ErrClosed
	}
	c.said = ""
	c.log.Info("memory link is attached")
	c.once.Do(func() { close(c.first) })
	await(conn)
	c.port.ended(j)
	return errEnded
}

// join requests the memory of the link from the switch.
func (c *Connector) join(conn *net.UnixConn) (*joint, error) {
	b, err := newBell()
	if err != nil {
		return nil, err
	}
	err = send(conn, hello{Host: c.host, layout: ours}, b.theirs)
	ring.CloseFiles(b.theirs)
	var w welcome
	var fds []int
	if err == nil {
		fds, err = receive(conn, &w, 2)
	}
	var mem []byte
	switch {
	case err != nil:
	case w.Error != "":
		err = errors.New(w.Error)
	case w.layout != ours || len(fds) != 2:
		err = fmt.Errorf("the memory of this host is %+v, that of the switch %+v: restart the older one", ours, w.layout)
	default:
		if err = checkBell(fds[1]); err == nil {
			mem, err = mapMemory(fds[0])
		}
	}
	if err != nil {
		ring.CloseFiles(append(fds, b.ours)...)
		return nil, err
	}
	ring.CloseFiles(fds[0]) // the mapping keeps the memory without the descriptor
	const toSwitch, toHost = 0, 1
	return newJoint(mem, toSwitch, toHost, fds[1], b.ours, func() { _ = conn.Close() }), nil
}

// Close ends the link and waits for its goroutine.
func (c *Connector) Close() error {
	c.stop()
	c.wg.Wait()
	return nil
}
