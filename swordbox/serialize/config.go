package serialize

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Config describes a Machine. The zero value of each field is its default.
type Config struct {
	// Segments bounds the segments of a flow's PSN map; a new segment begins whenever requests
	// begin or cease to move. Window is how many records of its newest requests a flow keeps, from
	// which the switch answers duplicates (see window). 0 means 128 each.
	Segments, Window int
	// Held bounds the held requests of all flows, HeldPerFlow those of one flow; 0 means 1024 and
	// 256, respectively. Each host has a share of Held; see shares.
	Held, HeldPerFlow int
	// OwnOps bounds the operations in clientOps of a flow: those in flight on the client's
	// connection whose end changes what the switch knows of words or keys; 0 means 128.
	OwnOps int
	// HoldTime is how long a client with held requests may send nothing before the switch drops
	// them. Then the client retransmits them if it has not given up. Rules with misses=wait add
	// their patience to HoldTime. If the client's NIC is seen to retransmit at a shorter interval,
	// that interval applies instead. HoldTime must be shorter than the whole time for which NICs
	// retry. 0 means 30 ms.
	HoldTime time.Duration
	// RedoTime is how long answers to later requests wait at most for the response to a READ that
	// the server executes again, because the client has asked for it again; 0 means 1 ms.
	RedoTime time.Duration
	// Transit is how long a packet may take from the switch to a server, in addition to delays by
	// injected faults (pipeline.Ctx.DelayedUntil). After a change of rules, or the end of a shared
	// connection or of a flow with unanswered requests, the switch waits for Transit before it
	// begins to replace the atomics of a word (clean.go). 0 means 10 ms.
	Transit time.Duration
	// Late is true if hosts may have sent requests before the machine existed.
	Late bool
	// Shared describes the shared connections. Words describes the table of words. Words.Budget
	// also bounds how long after its transmission a request on a client's connection may still
	// reach the server.
	Shared requester.Config
	Words  atomiccache.Config

	// Slowing returns the congestion control of the switch's rates for requests to a server, if a rule says that the
	// switch slows them (rules.Slowed.BySwitch). It is called when such a rule comes into force. nil means the values
	// of the DCQCN paper for 40 Gbit/s.
	Slowing func(server netip.Addr) congestion.Config

	// Moving is called before the first request of a flow moves. Once a request has moved, the
	// connection does not work without the switch. If Moving returns false, the flow stays on the
	// client's connection. nil means always true.
	Moving func(r *conntrack.Flow) bool
	// Answered is called before an answer to the client of a moved flow leaves the switch. oldest
	// is the PSN of the flow's oldest request that the server has not answered. nil means that it
	// is not called.
	Answered func(r *conntrack.Flow, oldest wire.PSN)
	// Failed is called when a shared connection has failed. The callee makes a new connection and
	// attaches it. nil means that the connection is not replaced.
	Failed func(c *pipeline.Ctx, k switchconn.Key, generation uint32, why string)
}

func (c Config) withDefaults() Config {
	c.Segments = cmp.Or(max(0, c.Segments), 128)
	c.Window = cmp.Or(max(0, c.Window), 128)
	c.Held = cmp.Or(max(0, c.Held), 1024)
	c.HeldPerFlow = cmp.Or(max(0, c.HeldPerFlow), 256)
	c.OwnOps = cmp.Or(max(0, c.OwnOps), 128)
	c.HoldTime = cmp.Or(max(0, c.HoldTime), 30*time.Millisecond)
	c.RedoTime = cmp.Or(max(0, c.RedoTime), time.Millisecond)
	c.Transit = cmp.Or(c.Transit, 10*time.Millisecond)
	c.Words.Budget = cmp.Or(c.Words.Budget, 5*time.Second)
	if c.Slowing == nil {
		c.Slowing = func(netip.Addr) congestion.Config {
			p, _ := congestion.Profile(congestion.ProfilePaper, 40_000_000_000)
			return congestion.Config{Params: p}
		}
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
