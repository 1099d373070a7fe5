package memservice

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Worker lets threads of the host work for connections, for example receive messages. Without a
// Worker a Server is passive: only the host's NIC works for its connections.
type Worker interface {
	// Parse reads the part of a connect request that is for the worker. It is not called if that
	// part is empty. If it returns an error, the connection is refused for that reason.
	Parse(data []byte) (Work, error)
}

// Work is the host's part in one connection. Its methods are called in this order; those before
// Serve by the thread of Server.Serve.
type Work interface {
	// Name ends the name of its thread.
	Name() string
	// Bytes returns the size of the memory that the Work needs in addition to the memory that the
	// client requested.
	Bytes() int64
	// Queues is how many work requests the connection's queue pair takes in each direction, and how
	// many completions its completion queue holds.
	Queues() (wrs, cqes int)
	// Register makes the memory that the work needs. c has no queue pair yet.
	Register(c *Conn) error
	// Build makes all else and returns its answer for the client, at most 64 bytes.
	Build(c *Conn) (data []byte, err error)
	// Serve runs in a thread of its own once the client is connected, until the queue pair is in
	// ERROR. It must then call Destroy of the Conn.
	Serve()
}

// Conn is one connection of a Server. A Conn with a Work belongs to the thread of the Work, others
// to the thread of Server.Serve.
type Conn struct {
	// Context and PD are the service's.
	Context verbs.Context
	PD      verbs.PD
	QP      verbs.QP
	// CQ is the completion queue of the queue pair.
	CQ verbs.CQ
	// Peer is the address of the client's NIC.
	Peer netip.Addr

	id     uint64
	req    request
	owners []uint32 // whose requests travel on it; empty: requests without owner
	work   Work     // nil: only the NIC works
	bytes  int64
	memory Region
	undo   []func() error
}

// of reports whether requests of an owner travel on the connection.
func (c *Conn) of(owner uint32) bool { return slices.Contains(c.owners, owner) }

// OnDestroy has Destroy call f, before those that were given earlier.
func (c *Conn) OnDestroy(f func() error) { c.undo = append(c.undo, f) }

// Register registers buf, or n fresh bytes, until the connection is destroyed.
func (c *Conn) Register(buf []byte, n int, a verbs.Access) (verbs.MR, error) {
	mr, err := c.PD.RegMR(buf, n, a)
	if err == nil {
		c.OnDestroy(mr.Dereg)
	}
	return mr, err
}

// Destroy destroys the objects of the connection, last made first. A second call does nothing.
func (c *Conn) Destroy() error {
	var err error
	for i := len(c.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, c.undo[i]())
	}
	c.undo = nil
	return err
}

// build makes the objects of a connection and returns the answer of its work. After an error, the
// Conn has the objects that were made.
func (s *Server) build(c *Conn) (data []byte, err error) {
	if err := s.buildMemory(c); err != nil {
		return nil, err
	}
	cq, wrs := s.cq, 1
	if c.work != nil {
		var cqes int
		wrs, cqes = c.work.Queues()
		if cq, err = s.ctx.CreateCQ(cqes); err != nil {
			return nil, err
		}
		c.OnDestroy(cq.Destroy)
	}
	c.CQ = cq
	c.QP, err = s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: wrs, MaxRecvWR: wrs, MaxSGE: 1})
	if err != nil {
		return nil, err
	}
	c.OnDestroy(c.QP.Destroy)
	if c.work == nil {
		return nil, nil
	}
	return c.work.Build(c)
}

// buildMemory registers the memory of the connection alone, if it has some.
func (s *Server) buildMemory(c *Conn) (err error) {
	mr := s.region
	if c.req.bytes > 0 {
		if mr, err = c.Register(nil, c.req.bytes, RemoteAccess); err != nil {
			return err
		}
	}
	if mr != nil && (c.req.bytes > 0 || c.work == nil) {
		c.memory = RegionOf(mr)
	}
	if c.work == nil {
		return nil
	}
	return c.work.Register(c)
}
