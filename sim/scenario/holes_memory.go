package scenario

import (
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// memoryHoles lists the holes that need other memory of the server than the other scripts: another
// protection domain, a second store, nodes of several packets, and operations that most NICs lack.
var memoryHoles = []hole{
	{number: 22, open: true, title: "one protection domain for all", script: (*holeRun).oneDomain},
	{number: 27, action: "steer", title: "the tail is in other memory", script: onStore(steerSpace, (*holeStore).otherMemory)},
	{number: 37, action: "steer", title: "values of more than one packet", script: onStore(longSpace, (*holeStore).longNode)},
	{number: 39, title: "masked atomics are not seen", script: (*holeRun).maskedAtomic},
}

// otherService is the name of a service of the server with a protection domain and memory of its own.
const otherService = "other"

// dialOther starts otherService on the server, and connects the client to it: from then on its requests
// go to the memory of that service.
func (c *holeClient) dialOther() error {
	h := c.run
	ms := h.rack.Host("ms0")
	ms.Go(otherService, true, func(ctx verbs.Context) {
		pd, err := ctx.AllocPD()
		if err != nil {
			return
		}
		mr, err := pd.RegMR(nil, holeBytes, wordAccess)
		if err != nil {
			return
		}
		l, err := ms.ConnManager(ctx).Listen(otherService)
		if err != nil {
			return
		}
		_ = acceptEach(ctx, pd, l, h.params, remoteOf(mr).appendTo(nil)) // ends with the host
	})
	h.rt.Sleep(100 * time.Microsecond)
	var err error
	if c.end, err = newEnds(c.ctx, holeDepth*holeSlot, holeDepth, verbs.LocalWrite); err != nil {
		return err
	}
	private, err := c.host.ConnManager(c.ctx).Dial(c.end.qp, ms.Addr(), otherService, h.params, nil, c.end.rt.Now().Add(holePatience))
	if err == nil {
		c.mem = parseRemotes(private)[0]
	}
	return err
}

// oneDomain: client 1's queue pair at the server is of another protection domain than the lock. Its
// CAS on the lock must fail, as it would without the switch.
func (h *holeRun) oneDomain() {
	h.warm(lockAt, 5)
	c := h.clients[1]
	lock := c.mem
	if h.err = c.dialOther(); h.err != nil {
		return
	}
	h.expect(c.write(nodeAt, 1, 4096), "a WRITE of several packets to the client's own memory")
	own := c.mem
	c.mem = lock
	a := c.cas(lockAt, 5, 6)
	if a.wait(holePatience); a.done && a.status == verbs.Success {
		h.harm("client 1, whose queue pair has no right to this memory, has set the lock to %d", h.word(lockAt))
	}
	if c.mem = own; h.mode == recordedPublished {
		h.expect(c.write(nodeAt, 1, 8), "a WRITE to the client's own memory, which the switch has moved to a queue pair of the other domain")
	}
}

// otherMemory: there are two stores on the server, and both have the key. The client of the second
// store appends and reads there. Its requests must not go to the first store.
func (s *holeStore) otherMemory() {
	h := s.run
	s.format(steerKey)
	c := h.clients[1]
	if h.err = c.dialOther(); h.err != nil {
		return
	}
	s.super(c, 2, "the superblock of the second store")
	h.expect(s.node(c, 1, 1, steerKey), "its first node")
	h.expect(s.node(c, 2, 1, steerKey), "its second node")
	if !s.linked(s.link(c, 1, 1, 2, 1), "its append") {
		h.harm("the append in the second store has failed, and no other client appends there")
		return
	}
	if v, ok := s.get(c, layout.Location{Handle: 1, Version: firstEnd}, steerKey); !ok || v != 2 {
		h.harm("a client of the second store reads node %d, want 2", v)
	}
}

// longSpace is a store with nodes of two packets: their handles begin at longFirst.
var longSpace = layout.Space{Servers: 1, Entries: layout.Counts{0: 16, 4: 4}, Shortcuts: 4}

const (
	longFirst = 17
	longNode  = 2048
)

// longNode: the tail of a chain is a node of two packets. A client reads an older node, and is
// answered with the tail. The second packet of the answer is lost, so that its NIC asks for the rest: it
// must be that of the same node.
func (s *holeStore) longNode() {
	h := s.run
	c := h.clients[0]
	s.super(c, 1, "the superblock")
	for n := layout.Handle(longFirst); n < longFirst+3; n++ {
		b := make([]byte, longNode)
		value := make([]byte, longNode-128)
		for i := range value {
			value[i] = byte(n)
		}
		layout.Hardened.PutNode(b, layout.Header(1), steerKey, value)
		h.expect(c.put(s.at(n), b), "a node")
		if n > longFirst {
			swap := layout.Superseded(1, layout.Location{Handle: n, Version: 1})
			s.linked(c.cas(s.at(n-1), uint64(layout.Header(1)), uint64(swap)), "its append")
		}
	}
	d := h.clients[1]
	h.faults("ms0", lose(fault.Up, 1, wire.RCReadResponseLast))
	a := d.read(s.at(longFirst), longNode)
	h.expect(a, "the READ of a long node that lost a packet of its answer")
	got := d.end.buf[a.slot*holeSlot:][:longNode]
	if first, last := got[longNode/2-1], got[longNode/2]; first != last {
		h.harm("a client reads the first half of node %d and the second half of node %d", first, last)
	}
}

// maskedAtomic: client 1 takes the lock by a masked CMP_SWAP. The next CAS must find that value.
func (h *holeRun) maskedAtomic() {
	h.warm(lockAt, 5)
	all := ^uint64(0)
	masked := h.clients[1].post(verbs.SendWR{Op: verbs.OpMaskedCmpSwap, CompareAdd: 5, Swap: 9, CompareAddMask: all, SwapMask: all}, lockAt, 8)
	h.expect(masked, "the masked CMP_SWAP")
	h.want(lockAt, 9, "the masked CMP_SWAP is complete at its client")
	next := h.clients[2].cas(lockAt, 5, 6)
	h.expect(next, "the next CAS")
	if v := next.prior(); v != 9 {
		h.harm("the next client was told %d, and the word was 9", v)
	}
	h.want(lockAt, 9, "a CAS that expects 5")
}
