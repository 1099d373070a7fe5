package rdmacm

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// listening is one of the NIC's listeners, in use by a CM. It has the common part of listeners for
// connections and for datagrams.
type listening struct {
	m    *CM
	name string // name of the service
	l    *engine.CMListener
}

// listen makes a listener for the service called name. It calls open to make the NIC's listener.
func (m *CM) listen(op, name string, open func() (*engine.CMListener, error)) (*listening, error) {
	if err := checkNames(op, name, nil); err != nil {
		return nil, err
	}
	if m.closed.Load() {
		return nil, verbs.Errorf(op, verbs.ErrClosed, "the manager was closed")
	}
	nic, err := open()
	if errors.Is(err, verbs.ErrBusy) {
		return nil, verbs.Errorf(op, ErrInUse, "%q", name)
	} else if err != nil {
		return nil, err
	}
	l := &listening{m: m, name: name, l: nic}
	m.mu.Lock()
	m.listeners[l] = struct{}{}
	m.mu.Unlock()
	if m.closed.Load() { // the manager was closed while open ran
		return nil, errors.Join(verbs.Errorf(op, verbs.ErrClosed, "the manager was closed"), l.Close())
	}
	return l, nil
}

// Close ends the service and refuses the waiting requests. A second Close does nothing.
func (l *listening) Close() error {
	l.m.mu.Lock()
	delete(l.m.listeners, l)
	l.m.mu.Unlock()
	return verbs.Gone(l.m.nic.Unlisten(l.l))
}

// next waits for the next request. kind is the kind of the service, for the text of errors.
func (l *listening) next(op, kind string, deadline clock.Time) (c *engine.CMConn, err error) {
	m := l.m
	err = m.nic.Await(op, func() bool {
		if c == nil && !l.l.Dead() {
			c = l.l.Next()
		}
		return c != nil || l.l.Dead() || m.closed.Load()
	}, deadline)
	if err == nil && c == nil {
		err = verbs.Errorf(op, verbs.ErrClosed, "%s %q", kind, l.name)
	}
	if err != nil && c != nil {
		m.abort(c) // the request arrived while the listener was being closed
	}
	return c, err
}
