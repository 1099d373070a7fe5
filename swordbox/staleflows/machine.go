package staleflows

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Reasons why the machine drops a packet.
const (
	// ReasonFormer: the packet belongs to a flow of which the switch moved requests before its
	// restart.
	ReasonFormer pipeline.Reason = "moved before restart"
	// ReasonBlocked: the switch is ending the connections to this server that its former
	// incarnation made.
	ReasonBlocked pipeline.Reason = "old connections to the server are being ended"
)

// Config describes a Machine.
type Config struct {
	// Journal is the journal with the flows; nil: there are none.
	Journal *journal.Journal
	// Blocked reports whether requests to a server must be dropped for now; clients retransmit
	// them. nil: never.
	Blocked func(server netip.Addr) bool
	// Idle is how long a flow must be silent before the machine forgets it. It must be longer than
	// the time for which NICs retry. 0: 10 minutes.
	Idle time.Duration
}

const (
	defaultIdle = 10 * time.Minute
	// lateDatagrams is how long after the start of the switch datagrams of the handshake that made
	// a stale flow may still arrive.
	lateDatagrams = time.Second
	// refuseTime is how long requests of a flow are refused after the first NAK. The client's NIC
	// has given up by then; later requests belong to a new connection with the same QPNs, made out
	// of band.
	refuseTime = 30 * time.Second
	gsiQPN     = 1
)

// Machine refuses the flows whose requests the former incarnation of the switch moved. Make one
// with New.
type Machine struct {
	cfg   Config
	flows []*flow
	byReq map[key]*flow // by the key of requests
	byAns map[key]*flow // by the key of responses
	start clock.Time
	begun bool
	sweep clock.Time // when flows are next checked for silence
	stats Stats
	nak   wire.Frame
}

// key is what the packets of one direction of a flow have in common: addresses and destination
// queue pair.
type key struct {
	src, dst netip.Addr
	qpn      wire.QPN
}

type flow struct {
	journal.Flow
	naks    uint64
	refused clock.Time // when the first NAK was sent, if naks is not 0
	last    clock.Time // when the client's last packet was seen
}

// Stats counts what a Machine did.
type Stats struct {
	Former    uint64 `help:"flows in the journal of the former incarnation of the switch"`
	Naks      uint64 `help:"fatal NAKs sent to their clients"`
	Forgotten uint64 `help:"of them, flows forgotten because of a new connection or of silence"`
	Blocked   uint64 `help:"requests dropped because former connections to the server had not ended"`
}

// New makes a Machine with the flows of the former incarnation in the journal.
func New(cfg Config) *Machine {
	if cfg.Idle == 0 {
		cfg.Idle = defaultIdle
	}
	if cfg.Blocked == nil {
		cfg.Blocked = func(netip.Addr) bool { return false }
	}
	m := &Machine{cfg: cfg, byReq: make(map[key]*flow), byAns: make(map[key]*flow)}
	for _, r := range cfg.Journal.Former().Flows {
		e := &flow{Flow: r}
		m.flows = append(m.flows, e)
		m.byReq[key{r.Client, r.Server, r.ServerQPN}] = e
		m.byAns[key{r.Server, r.Client, r.ClientQPN}] = e
	}
	m.stats.Former = uint64(len(m.flows))
	return m
}

// Packet decides about a packet before the other parts of the program see it. If it returns false,
// the other parts decide, and the verdict is not valid.
func (m *Machine) Packet(c *pipeline.Ctx, p *pipeline.Parsed) (pipeline.Verdict, bool) {
	m.begin(c.Now)
	if p.BTH.DestQP == gsiQPN {
		m.datagram(c.Now, p)
		return pipeline.Verdict{}, false
	}
	if !p.BTH.Opcode.Known() || p.BTH.Opcode.Service() != wire.ServiceRC {
		return pipeline.Verdict{}, false
	}
	if len(m.flows) > 0 {
		if v, taken := m.former(c, p); taken {
			return v, true
		}
	}
	if p.BTH.Opcode.Is(wire.OpRequest) && m.cfg.Blocked(p.DstAddr().Unmap()) {
		m.stats.Blocked++
		return pipeline.Drop(ReasonBlocked), true
	}
	return pipeline.Verdict{}, false
}

// Empty reports that there are no stale flows. Then Packet need not be called, unless a server is
// blocked.
func (m *Machine) Empty() bool { return len(m.flows) == 0 }

// begin notes the time of the first call, from which silence is measured.
func (m *Machine) begin(now clock.Time) {
	if m.begun {
		return
	}
	m.begun, m.start, m.sweep = true, now, now.Add(m.cfg.Idle)
	for _, fl := range m.flows {
		fl.last = now
	}
}

// former decides about a packet of a stale flow.
func (m *Machine) former(c *pipeline.Ctx, p *pipeline.Parsed) (pipeline.Verdict, bool) {
	k := key{p.SrcAddr().Unmap(), p.DstAddr().Unmap(), p.BTH.DestQP}
	if m.byAns[k] != nil {
		// The server's PSNs are shifted, so the client would take the packet for the answer to
		// another request.
		return pipeline.Drop(ReasonFormer), true
	}
	fl := m.byReq[k]
	if fl == nil {
		return pipeline.Verdict{}, false
	}
	if fl.naks > 0 && c.Now.Sub(fl.refused) > refuseTime {
		m.forget(func(o *flow) bool { return o == fl })
		return pipeline.Verdict{}, false
	}
	fl.last = c.Now
	if p.BTH.Opcode.Is(wire.OpRequest) && p.Intact() {
		m.refuse(c, p, fl)
	}
	return pipeline.Drop(ReasonFormer), true
}

// refuse sends a fatal NAK to the client of a flow.
func (m *Machine) refuse(c *pipeline.Ctx, p *pipeline.Parsed, fl *flow) {
	psn := fl.Oldest
	if wire.Diff(p.BTH.PSN, psn) < 0 {
		psn = p.BTH.PSN // the answer to this request was journalled, and lost in the crash
	}
	to := transform.PathOf(&p.Frame)
	back := to.Back(fl.ClientQPN)
	back.NAK(&m.nak, psn, 0, wire.NakRemoteOp)
	note := ""
	if c.Observed() {
		note = fmt.Sprintf("fatal NAK: the switch was restarted, oldest psn %d", psn)
	}
	c.Emit(&m.nak, note)
	if fl.naks == 0 {
		fl.refused = c.Now
	}
	fl.naks++
	m.stats.Naks++
}

// datagram forgets flows whose queue pairs a REQ or REP announces for another connection.
func (m *Machine) datagram(now clock.Time, p *pipeline.Parsed) {
	if len(m.flows) == 0 || p.BTH.Opcode != wire.UDSendOnly || !p.Intact() {
		return
	}
	var h mad.Header
	if h.Parse(p.Payload) != nil || h.Attr != mad.AttrREQ && h.Attr != mad.AttrREP {
		return
	}
	msg, err := mad.Parse(p.Payload, &h)
	if err != nil {
		return
	}
	var qpn wire.QPN
	switch msg := msg.(type) {
	case *mad.REQ:
		qpn = msg.QPN
	case *mad.REP:
		qpn = msg.QPN
	}
	host := p.SrcAddr().Unmap()
	m.forget(func(fl *flow) bool {
		// The datagram may be a late copy from the handshake that made the stale flow.
		settled := fl.naks > 0 || now.Sub(m.start) > lateDatagrams
		return settled && (fl.Client == host && fl.ClientQPN == qpn || fl.Server == host && fl.ServerQPN == qpn)
	})
}

// forget forgets flows and frees their slots in the journal.
func (m *Machine) forget(which func(fl *flow) bool) {
	m.flows = slices.DeleteFunc(m.flows, func(fl *flow) bool {
		if !which(fl) {
			return false
		}
		delete(m.byReq, key{fl.Client, fl.Server, fl.ServerQPN})
		delete(m.byAns, key{fl.Server, fl.Client, fl.ClientQPN})
		m.cfg.Journal.EndFlow(fl.Slot)
		m.stats.Forgotten++
		return true
	})
}

// Tick forgets silent flows.
func (m *Machine) Tick(c *pipeline.Ctx) {
	m.begin(c.Now)
	if m.sweep > c.Now {
		return
	}
	m.sweep = clock.Never
	m.forget(func(fl *flow) bool { return fl.last.Add(m.cfg.Idle) <= c.Now })
	for _, fl := range m.flows {
		m.sweep = clock.Min(m.sweep, fl.last.Add(m.cfg.Idle))
	}
}

// Deadline is when Tick must be called.
func (m *Machine) Deadline() clock.Time {
	switch {
	case len(m.flows) == 0:
		return clock.Never
	case !m.begun:
		return 0
	}
	return m.sweep
}

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Flows returns the flows that are not forgotten yet.
func (m *Machine) Flows() []journal.Flow {
	var out []journal.Flow
	for _, fl := range m.flows {
		out = append(out, fl.Flow)
	}
	return out
}
