package rpc

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
)

// Caller makes the calls of a client, one at a time, over one peer of a fabric. The fabric's buffer
// needs verbs.RemoteWrite as access, and the peer at least one receive for each answer that may
// come.
type Caller struct {
	// Fabric has the connection. Peer is the server's number in the fabric, and Name its name in
	// errors.
	Fabric *remotemem.Fabric
	Peer   int
	Name   string
	// Request and Answer are the offsets of the areas for request and answer in the fabric's
	// buffer.
	Request, Answer int

	op      remotemem.Op // the SEND of the request
	waiting uint32       // immediate data of the answer that is awaited
	arrived bool         // true if that answer has come
}

// Buffer returns the address and the R_Key of the area for the answer. The request must contain
// both.
func (c *Caller) Buffer() Buffer {
	mr := c.Fabric.MR()
	return Buffer{mr.Addr() + uint64(c.Answer), mr.RKey()}
}

// Notify is called by the fabric's OnNotify with immediate data. Answers to other requests, for
// example to earlier ones, change nothing.
func (c *Caller) Notify(imm uint32) { c.arrived = c.arrived || imm == c.waiting }

// Post sends a request. imm is the immediate data of its answer. After an error the request was not
// sent. There must be a connection.
func (c *Caller) Post(b []byte, imm uint32) error {
	c.waiting, c.arrived = imm, false
	if err := c.Fabric.MR().WriteAt(b, c.Request); err != nil {
		return err
	}
	c.Fabric.Send(&c.op, c.Peer, c.Request, len(b))
	return c.Fabric.Start(&c.op)
}

// Wait waits for the answer. It fails at the deadline, and when the connection fails, also if only
// the server has ended it (remotemem.Fabric.Expect).
func (c *Caller) Wait(deadline clock.Time) error {
	return c.named(c.Fabric.Expect(c.Peer, deadline, func() bool { return c.arrived }))
}

// Acknowledged reports whether the server's NIC has the request. If it has, and no answer has come,
// the answer is only slow, unless the connection has failed.
func (c *Caller) Acknowledged() bool { return c.op.Done }

// Drain is called after Wait. It waits until the request is acknowledged as well. Before that the
// area of the request must not change, because the NIC may send the request again. Drain fails like
// Wait.
func (c *Caller) Drain(deadline clock.Time) error {
	return c.named(c.Fabric.Expect(c.Peer, deadline, func() bool { return c.op.Done }))
}

// named puts the server's name into the error of a connection that has failed.
func (c *Caller) named(err error) error {
	if failed := (*remotemem.OpError)(nil); errors.As(err, &failed) {
		failed.Peer = c.Name
	}
	return err
}
