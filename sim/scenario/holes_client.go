package scenario

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// holeClient is a client without a program of its own: the script of a hole posts each of its
// requests.
type holeClient struct {
	run  *holeRun
	host *simrack.Host
	ctx  verbs.Context
	end  *ends
	mem  remote
	next uint64             // ID of the next work request
	got  map[uint64]*answer // the answers to all work requests, by ID
	// While held is true, the method post collects work requests in hold instead of posting them.
	// The method `together` posts the collected ones with one doorbell.
	hold []verbs.SendWR
	held bool
}

const (
	holeDepth = 128
	holeSlot  = 8192
)

// answer is the outcome of one request, which may not have an answer yet.
type answer struct {
	client *holeClient
	posted clock.Time
	slot   int  // of the client's buffer: the local memory of the request
	done   bool // the answer has come; status and took are valid
	status verbs.Status
	took   time.Duration
}

// connect makes a queue pair and connects it to the server. A script may call it again for a
// further connection.
func (c *holeClient) connect() error {
	var err error
	if c.end, err = newEnds(c.ctx, holeDepth*holeSlot, holeDepth, verbs.LocalWrite); err != nil {
		return err
	}
	return c.dial()
}

// dial connects the client's present queue pair to the server.
func (c *holeClient) dial() error {
	to := c.run.rack.Host("ms0").Addr()
	private, err := c.host.ConnManager(c.ctx).Dial(c.end.qp, to, holeService, c.run.params, nil, c.end.rt.Now().Add(holePatience))
	if err == nil {
		c.mem = parseRemotes(private)[0]
	}
	return err
}

// together posts all requests that f makes on the client with one doorbell.
func (c *holeClient) together(f func()) {
	c.held = true
	f()
	c.held = false
	if err := c.end.qp.PostSend(c.hold...); err != nil {
		c.run.harm("post: %v", err)
	}
	c.hold = nil
}

// post posts the request wr for n bytes at the offset off of the server's memory.
func (c *holeClient) post(wr verbs.SendWR, off, n int) *answer {
	a := &answer{client: c, posted: c.end.rt.Now(), slot: int(c.next % holeDepth)}
	wr.ID = c.next
	c.next++
	c.got[wr.ID] = a
	wr.Flags |= verbs.Signalled
	wr.SGL = []verbs.SGE{c.end.mr.SGE(a.slot*holeSlot, n)}
	wr.RemoteAddr = c.mem.addr + uint64(off)
	wr.RKey = cmp.Or(wr.RKey, c.mem.rkey)
	if c.held {
		c.hold = append(c.hold, wr)
		return a
	}
	if err := c.end.qp.PostSend(wr); err != nil {
		a.done, a.status = true, verbs.GeneralErr
	}
	return a
}

func (c *holeClient) cas(off int, compare, swap uint64) *answer {
	return c.post(verbs.SendWR{Op: verbs.OpCmpSwap, CompareAdd: compare, Swap: swap}, off, 8)
}

func (c *holeClient) add(off int, v uint64) *answer {
	return c.post(verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: v}, off, 8)
}

func (c *holeClient) read(off, n int) *answer { return c.post(verbs.SendWR{Op: verbs.OpRead}, off, n) }

// write posts a WRITE of n bytes to the offset off; each word of them is v.
func (c *holeClient) write(off int, v uint64, n int) *answer {
	b := c.end.buf[int(c.next%holeDepth)*holeSlot:][:n]
	for i := 0; i+8 <= n; i += 8 {
		binary.NativeEndian.PutUint64(b[i:], v)
	}
	return c.post(verbs.SendWR{Op: verbs.OpWrite}, off, n)
}

// prior returns the value that an atomic has found in memory, or the first word of a READ.
func (a *answer) prior() uint64 {
	return binary.NativeEndian.Uint64(a.client.end.buf[a.slot*holeSlot:])
}

// wait polls completions for up to limit and reports whether the answer a has come.
func (a *answer) wait(limit time.Duration) bool {
	c := a.client
	until := c.end.rt.Now().Add(limit)
	var wcs [16]verbs.WC
	for !a.done {
		n, err := c.end.cq.Poll(wcs[:])
		if n == 0 {
			if err != nil || c.end.cq.Wait(until) != nil {
				return false
			}
			continue
		}
		for i := range wcs[:n] {
			if o := c.got[wcs[i].ID]; o != nil {
				o.done, o.status, o.took = true, wcs[i].Status, c.end.rt.Now().Sub(o.posted)
			}
		}
	}
	return true
}

func (a *answer) String() string {
	switch {
	case !a.done:
		return "no answer"
	case a.status != verbs.Success:
		return fmt.Sprintf("%v after %v", a.status, a.took)
	}
	return fmt.Sprintf("done after %v", a.took)
}
