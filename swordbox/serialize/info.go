package serialize

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

func (m *Machine) Stats() Stats { return m.stats }

func (m *Machine) Info(now clock.Time) handler.Info {
	info := handler.Info{Mode: rules.Hardened, Counters: m.counters()}
	for _, s := range m.servers {
		for _, l := range s.links {
			if l.shard < s.shards || l.conn.State() == requester.Up {
				info.Shared = append(info.Shared, l.info(now))
			}
		}
	}
	for _, l := range m.flows.list {
		if l != nil && l.phase != closed && l.moved > 0 {
			info.Flows = append(info.Flows, l.info())
		}
	}
	m.words.Each(func(w *atomiccache.Word) {
		info.Words = append(info.Words, handler.Word{
			Server: m.servers[w.Server].addr, VA: w.VA, State: w.State.String(), Value: w.Value, Epoch: w.Epoch, Pending: w.Pending,
		})
	})
	return info
}

func (m *Machine) counters() []handler.Counter {
	var sum requester.Stats
	for _, s := range m.servers {
		for _, l := range s.links {
			metrics.Add(&sum, l.conn.Stats())
		}
	}
	list := append(handler.Counters("", m.stats), handler.Counters("", m.words.Counters())...)
	return append(append(list, handler.Counters("shared_", sum)...),
		handler.Counter{Name: "cnps_received", Value: m.received, Help: "congestion notifications of servers for shared connections"},
		handler.Counter{Name: "slowed", Value: m.slowed, Help: "times that the switch has lowered its own rate for a client or a shared connection"},
		handler.Counter{Name: "held_now", Value: uint64(m.held.inUse), Help: "requests that are held now"},
		handler.Counter{
			Name: "held_over_share", Value: m.held.refused(), Help: "requests in held_full for which the share of their host had no room",
		})
}

func (l *sequencer) info() handler.Flow {
	state := "own"
	switch {
	case l.phase == refused:
		state = "dead"
	case l.waits.held.n > 0:
		state = "waiting"
	case l.place != placeOwn:
		state = "shared"
	}
	outstanding := l.replies.window.outstanding() + l.waits.held.n
	if d := wire.Diff(l.conn.psns.own, l.conn.acked); d > 0 && l.replies.window.outstanding() == 0 {
		outstanding += int(d)
	}
	return handler.Flow{
		ID: l.flow.ID, Client: l.flow.Requester, Server: l.flow.Responder, ServerQPN: l.flow.RespQPN,
		Moved: l.moved, Outstanding: outstanding, Shift: int(l.conn.psns.shift()), State: state,
	}
}

func (k *link) info(now clock.Time) handler.Shared {
	link := k.conn.Link()
	s := handler.Shared{
		Server: k.s.addr, Shard: k.shard, Owner: link.Own(), OwnQPN: link.OwnQPN, ServerQPN: link.To.DestQP,
		State: k.conn.State().String(), NextPSN: k.conn.Requests.NextPSN(), Ring: k.conn.Requests.Ring(), Outstanding: k.conn.Requests.Outstanding(),
		Queued: k.conn.Requests.Queued(), Retries: k.conn.Tries(),
	}
	k.conn.Requests.Each(func(t requester.Tag, psn wire.PSN, op wire.Opcode, since clock.Time) {
		l := k.s.m.flows.byTag(t)
		if l == nil {
			return
		}
		if s.Waits == nil {
			w := &handler.Wait{
				PSN: psn, Age: now.Sub(since), Client: l.replies.client, ClientQPN: l.replies.clientQPN, ClientPSN: t.PSN, Op: op.String(),
			}
			if r := l.replies.window.find(t.PSN); r != nil && r.op != op {
				w.Op = r.op.String() + "→" + op.String()
			}
			s.Waits = w
		}
		for i := range s.Waiters {
			if w := &s.Waiters[i]; w.Client == l.replies.client && w.QPN == l.replies.clientQPN {
				w.Entries++
				return
			}
		}
		s.Waiters = append(s.Waiters, handler.Waiter{Client: l.replies.client, QPN: l.replies.clientQPN, Entries: 1})
	})
	return s
}

// Spec declares the tables and registers that the machine would occupy on a switching chip, with
// the bounds that it has now.
func (m *Machine) Spec() pipeline.Part {
	ring, waiting := m.cfg.Shared.Bounds()
	const (
		copyBits = 8 * 128  // headers from the BTH on, and a small payload
		heldBits = 8 * 1100 // a packet with a payload of 1 KiB
		shared   = switchconn.MaxShared
	)
	return pipeline.Part{
		Tables: []pipeline.TableSpec{
			{Name: "words", KeyBits: 16 + 64, ValueBits: 3 + 64 + 32 + 32 + 16, Entries: max(m.cfg.Words.Max, 1<<16), Learned: true},
			{Name: "keys", KeyBits: 32 + 2, ValueBits: 2 * 64, Entries: maxKeys, Learned: true},
		},
		Registers: []pipeline.RegisterSpec{
			{Name: "flow counts", Width: 4 * 24, Entries: flowsOfSpec},
			{Name: "segments", Width: 2*24 + 1, Entries: flowsOfSpec * m.cfg.Segments, Each: m.cfg.Segments},
			{Name: "completed window", Width: recordBits, Entries: flowsOfSpec * sparse * m.cfg.Window, Each: sparse * m.cfg.Window},
			{Name: "operations in flight", Width: clientOpBits, Entries: flowsOfSpec * m.cfg.OwnOps, Each: m.cfg.OwnOps},
			// An entry has the client's PSN, the PSN on the connection, and the flow's number.
			{Name: "shared ring", Width: 24 + 24 + 12, Entries: shared * ring, Each: ring},
			{Name: "held by host", Width: 3 * 16, Entries: pipeline.MaxPorts},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedStore, What: "copies of requests on shared connections, until acknowledged", Count: shared * ring, Bits: copyBits},
			{Kind: pipeline.NeedStore, What: "requests that wait for room on a shared connection", Count: shared * waiting, Bits: copyBits},
			{Kind: pipeline.NeedStore, What: "held requests", Count: m.cfg.Held, Bits: heldBits},
			{Kind: pipeline.NeedTimer, What: "retransmission on shared connections", Count: shared},
			{Kind: pipeline.NeedTimer, What: "the ends of waits of flows", Count: flowsOfSpec},
			{Kind: pipeline.NeedTimer, What: "the ends of waits of words for clients' connections", Count: max(m.cfg.Words.Max, 1<<16)},
			{Kind: pipeline.NeedPackets, What: "an answer to each request that one ACK covers; retransmissions; NAKs", Count: ring},
			{Kind: pipeline.NeedICRC, What: "of renumbered requests and answers, and of WRITEs in place of atomics"},
		},
	}
}

const (
	// recordBits is the size of a record: both PSNs; opcode, address, key, length, compare and swap
	// operand of the request; how many PSNs it takes; its place and state; how many packets of the
	// response were forwarded; the value that an atomic returns; the number of a word, and the
	// word's decision.
	recordBits = 2*24 + 8 + 64 + 32 + 32 + 2*64 + 24 + 16 + 4 + 24 + 64 + 24 + decisionBits
	// decisionBits is the size of a decision: its kind, the value to write, epoch, sequence number,
	// interval and serial number.
	decisionBits = 3 + 64 + 32 + 32 + 32 + 64
	// clientOpBits is the size of a clientOp: two PSNs, the number of a word and the word's
	// decision, address, length and key, what the operation proves, and whether it concerns all
	// words.
	clientOpBits = 2*24 + 24 + decisionBits + 64 + 32 + 32 + 2 + 2
)

// flowsOfSpec is the number of flows for which Spec declares sizes.
const flowsOfSpec = 4096

// Stats counts what a Machine did and refused.
type Stats struct {
	Moved             uint64 `name:"moved" help:"requests moved to a shared connection"`
	Replaced          uint64 `name:"replaced" help:"atomics sent as a WRITE of the new value"`
	ReplacedEmpty     uint64 `name:"replaced_empty" help:"atomics that change nothing, sent as a WRITE of no bytes"`
	Told              uint64 `name:"told" help:"CAS that fail, answered by the switch"`
	Rewritten         uint64 `name:"renumbered" help:"packets on clients' connections that got another PSN or MSN"`
	Held              uint64 `name:"held" help:"requests held until their place was free"`
	Released          uint64 `name:"released" help:"held requests sent on"`
	HeldFull          uint64 `name:"held_full" help:"requests dropped because there was no room to hold them"`
	HeldDropped       uint64 `name:"held_dropped" help:"held requests dropped"`
	HoldTimeouts      uint64 `name:"hold_timeouts" help:"flows whose held requests were dropped because they waited for too long"`
	Gaps              uint64 `name:"gaps" help:"requests dropped because a request before them was missing"`
	SequenceNaks      uint64 `name:"sequence_naks" help:"sequence NAKs sent to clients"`
	Duplicates        uint64 `name:"duplicates" help:"duplicate requests"`
	DuplicatesIgnored uint64 `name:"duplicates_ignored" help:"duplicates of requests that the switch still holds or has in flight"`
	AnsweredAgain     uint64 `name:"answered_again" help:"duplicates answered by the switch from its records"`
	Redone            uint64 `name:"redone" help:"READs executed again"`
	TooOld            uint64 `name:"too_old" help:"duplicates of requests that have no record any more"`
	Forged            uint64 `name:"forged" help:"duplicates that differ from the first request with their PSN"`
	Ghosts            uint64 `name:"ghosts" help:"responses to no request in flight"`
	Strangers         uint64 `name:"strangers" help:"packets to a queue pair of the switch that were not sent by its peer"`
	Bypassed          uint64 `name:"bypassed" help:"requests of untracked connections dropped because a word allowed no other request at that time"`
	Unadmitted        uint64 `name:"unadmitted" help:"dropped WRITEs to many words, on connections that the server has never answered"`
	RepeatsDropped    uint64 `name:"repeats_dropped" help:"duplicates dropped because a word that they may change allowed no other request at that time"`
	LooseDropped      uint64 `name:"loose_dropped" help:"requests dropped because a word allowed no other request at that time, on connections whose expected PSN was not known"`
	TooEarly          uint64 `name:"too_early" help:"requests of new connections that had to wait for older requests on a shared connection"`
	Deaths            uint64 `name:"deaths" help:"connections that ended with a fatal NAK"`
	RefusedAgain      uint64 `name:"refused_again" help:"requests on connections that had ended with a fatal NAK"`
	TakenBack         uint64 `name:"taken_back" help:"moved requests that clients had to send again because the server had refused one before them"`
	Orphans           uint64 `name:"orphans" help:"answers to requests of connections that had ended"`
	NotRecorded       uint64 `name:"not_recorded" help:"connections whose requests do not move because the journal had no room for them"`
	Proofs            uint64 `name:"proofs" help:"proofs that a client's connection belongs to the same incarnation of the server as the shared ones"`
	LinkFailures      uint64 `name:"link_failures" help:"shared connections that failed"`
	CNPs              uint64 `name:"cnps" help:"congestion notifications passed on"`
}
