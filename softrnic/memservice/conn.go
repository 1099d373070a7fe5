package memservice

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Worker lets threads of the host take part in connections, for example to receive messages.
// Without a Worker a Server is passive: only the host's NIC serves its connections.
type Worker interface {
	// Parse decodes the data for the worker in a connect request. It is not called for a request
	// without such data. If it fails, the connection is refused for that reason.
	Parse(data []byte) (Work, error)
}

// Work is the host's part in one connection. Its methods are called in the order Bytes, Register,
// Queues, Build, Name, Serve. The thread of Server.Serve calls all of them but Serve.
type Work interface {
	// Name returns the last part of the name of the Work's thread.
	Name() string
	// Bytes returns the size of the memory that the Work needs in addition to the memory that the
	// client requested.
	Bytes() int64
	// Queues returns the number of work requests of the connection's queue pair in each direction,
	// and the depth of its completion queue.
	Queues() (wrs, cqes int)
	// Params returns the parameters of the service's end of the connection; the zero value means the
	// defaults of rdmacm.
	Params() rdmacm.Params
	// Register registers the memory that the Work needs. c has no queue pair at this time.
	Register(c *Conn) error
	// Build makes all other objects of the Work. It returns data for the client, at most 64 bytes.
	Build(c *Conn) (data []byte, err error)
	// Serve is called in a thread of its own when the client is connected. It runs until the queue
	// pair is in ERROR. Then it must call Destroy of the Conn.
	Serve()
}

// Conn is one connection of a Server. A Conn with a Work belongs to the thread of the Work, others
// to the thread of Server.Serve.
type Conn struct {
	// Context and PD are those of the service.
	Context verbs.Context
	PD      verbs.PD
	QP      verbs.QP
	// CQ is the completion queue of the queue pair.
	CQ verbs.CQ
	// Peer is the address of the client's NIC.
	Peer netip.Addr

	id     uint64
	req    request
	owners []uint32       // owners whose requests it carries; empty means that its requests have no owner
	work   Work           // nil means that only the NIC works
	bytes  int64          // memory of this connection alone: its region and that of its Work
	memory Region         // the region that the answer names
	died   clock.Time     // when the service noticed that the connection is dead; 0 means that it is not
	undo   []func() error // functions that destroy the objects; see OnDestroy
}

// of reports whether the connection carries requests of owner.
func (c *Conn) of(owner uint32) bool { return slices.Contains(c.owners, owner) }

// OnDestroy makes Destroy call f. Destroy calls the functions in the reverse order.
func (c *Conn) OnDestroy(f func() error) { c.undo = append(c.undo, f) }

// Register registers buf, or n new bytes if buf is nil, until the connection is destroyed.
func (c *Conn) Register(buf []byte, n int, a verbs.Access) (verbs.MR, error) {
	mr, err := c.PD.RegMR(buf, n, a)
	if err == nil {
		c.OnDestroy(mr.Dereg)
	}
	return mr, err
}

// Destroy destroys the objects of the connection, in the reverse order of their creation. A second
// call does nothing.
func (c *Conn) Destroy() error {
	var err error
	for _, f := range slices.Backward(c.undo) {
		err = errors.Join(err, f())
	}
	c.undo = nil
	return err
}

// build makes the objects of a connection, and returns the data of its Work for the client. After
// an error, the Conn has the objects that were made until then.
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

// buildMemory chooses the region that the answer names. This is a new one if the client has
// requested bytes of its own, otherwise the shared one. If the service has a Work for the
// connection, and the client has requested no bytes, the answer names no region. After that
// buildMemory makes the Work, if there is one, register its memory.
func (s *Server) buildMemory(c *Conn) (err error) {
	mr := s.region
	if c.req.bytes > 0 {
		if mr, err = c.Register(nil, int(c.req.bytes), RemoteAccess); err != nil {
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
