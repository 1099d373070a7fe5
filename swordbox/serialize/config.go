package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Config describes a Machine. The zero value of each field is its default.
type Config struct {
	// Segments bounds the segments of a flow's PSN map; a segment begins whenever the flow changes
	// its place. Window bounds the records from which duplicates are answered. 0: 128 each.
	Segments, Window int
	// Held bounds the held requests of all flows. HeldPerFlow bounds those of one flow; 0: 1024 and
	// 256. Each host has a share of Held; see shares.
	Held, HeldPerFlow int
	// OwnOps bounds the operations that a flow has in flight on the client's connection and that
	// concern a known word or an unproven key; 0: 128.
	OwnOps int
	// HoldTime applies while the switch does not know the timeout of the client's NIC: so long
	// after the last transmission of the client, the switch drops the client's held requests, and
	// the client retransmits them. It must be shorter than the whole time for which NICs retry. 0:
	// 30 ms.
	HoldTime time.Duration
	// RedoTime is how long answers to later requests wait for the response to a READ that is
	// executed again because the client asked for it again; 0: 1 ms.
	RedoTime time.Duration
	// Transit is how long a packet may take from the switch to a server, in addition to delays by
	// injected faults (pipeline.Ctx.DelayedUntil). For that time after a change of rules, and after
	// the end of a shared connection or of a flow with unanswered requests, atomics of words that
	// the switch does not know yet are not replaced. 0: 10 ms.
	Transit time.Duration
	// Late: hosts may have sent requests before the machine existed.
	Late bool
	// Shared describes the shared connections. Words describes the table of words. Words.Budget is
	// also the time after its transmission for which a request on a client's connection may still
	// reach the server.
	Shared requester.Config
	Words  atomiccache.Config

	// Moving is called before the first request of a flow moves. From then on the connection does
	// not work without the switch. If it returns false, the flow stays on the client's connection.
	// nil: always true.
	Moving func(r *conntrack.Flow) bool
	// Answered is called before an answer to the client of a moved flow leaves the switch. oldest
	// is the PSN of the flow's oldest request that the server has not answered. nil: not called.
	Answered func(r *conntrack.Flow, oldest wire.PSN)
	// Failed is called when a shared connection has failed; the callee makes a new one and attaches
	// it. nil: none is made.
	Failed func(c *pipeline.Ctx, k switchconn.Key, generation uint32, why string)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v *int
		n int
	}{{&c.Segments, 128}, {&c.Window, 128}, {&c.Held, 1024}, {&c.HeldPerFlow, 256}, {&c.OwnOps, 128}} {
		if *d.v <= 0 {
			*d.v = d.n
		}
	}
	if c.HoldTime <= 0 {
		c.HoldTime = 30 * time.Millisecond
	}
	if c.RedoTime <= 0 {
		c.RedoTime = time.Millisecond
	}
	if c.Transit == 0 {
		c.Transit = 10 * time.Millisecond
	}
	if c.Words.Budget == 0 {
		c.Words.Budget = 5 * time.Second
	}
	if c.Moving == nil {
		c.Moving = func(*conntrack.Flow) bool { return true }
	}
	if c.Answered == nil {
		c.Answered = func(*conntrack.Flow, wire.PSN) {}
	}
	if c.Failed == nil {
		c.Failed = func(*pipeline.Ctx, switchconn.Key, uint32, string) {}
	}
	return c
}
