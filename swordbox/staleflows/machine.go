package staleflows

import (
	"cmp"
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
	// ReasonFormer: the packet belongs to a stale flow, of which the switch moved requests before
	// its restart.
	ReasonFormer pipeline.Reason = "moved before restart"
	// ReasonBlocked: requests on earlier connections of the switch to this server may still arrive.
	ReasonBlocked pipeline.Reason = "old connections to the server are being ended"
)

type Config struct {
	// Journal is the journal with the stale flows; nil means that there are none.
	Journal *journal.Journal
	// Blocked reports whether the machine must drop requests to a server for now; clients
	// retransmit them. nil means never.
	Blocked func(server netip.Addr) bool
	// Idle is how long a flow must have been silent before the machine forgets it. It must be
	// longer than the time for which NICs retry. 0 means 10 minutes.
	Idle time.Duration
}

const (
	defaultIdle = 10 * time.Minute
	// lateDatagrams is how long after the switch's start a datagram from the handshake of a stale
	// flow may still arrive.
	lateDatagrams = time.Second
	// refuseTime is how long the machine refuses requests of a flow after the first NAK. By then
	// the client's NIC has given up. Later requests belong to a new connection with the same QPNs,
	// which was made without the connection manager.
	refuseTime = 30 * time.Second
	gsiQPN     = 1
)

// Machine refuses the stale flows, whose requests an earlier incarnation of the switch has moved.
// Make one with New.
type Machine struct {
	cfg   Config
	flows []*flow
	byReq map[key]*flow // the flows by the key of their requests
	byAns map[key]*flow // the flows by the key of their responses
	start clock.Time    // time of the first call; valid if begun
	begun bool
	sweep clock.Time // when the machine next checks flows for silence
	stats Stats
	nak   wire.Frame // scratch memory
}

// key names the packets of one direction of a flow: addresses and destination queue pair.
type key struct {
	src, dst netip.Addr
	qpn      wire.QPN
}

type flow struct {
	journal.Flow
	naks    uint64     // how many NAKs were sent
	refused clock.Time // when the first NAK was sent; valid if naks is not 0
	last    clock.Time // when the client's last packet was seen
}

// Stats counts what a Machine did.
type Stats struct {
	Former    uint64 `help:"flows in the journal of the former incarnation of the switch"`
	Naks      uint64 `help:"fatal NAKs sent to the clients of these flows"`
	Forgotten uint64 `help:"flows of the former incarnation that were forgotten because of a new connection or of silence"`
	Blocked   uint64 `help:"requests dropped because former connections to the server had not ended"`
}

// New makes a Machine with the flows that the former incarnation left in the journal.
func New(cfg Config) *Machine {
	cfg.Idle = cmp.Or(cfg.Idle, defaultIdle)
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

// Packet decides what happens to a packet before the other parts of the program see it. If the bool
// is false, the other parts decide, and the verdict is not valid.
func (m *Machine) Packet(c *pipeline.Ctx, p *pipeline.Parsed) (pipeline.Verdict, bool) {
	m.begin(c.Now)
	if p.BTH.DestQP == gsiQPN {
		m.datagram(c.Now, p)
		return pipeline.Verdict{}, false
	}
	if !p.BTH.Opcode.Known() || p.BTH.Opcode.Service() != wire.ServiceRC {
		return pipeline.Verdict{}, false
	}
	if v, taken := m.former(c, p); taken {
		return v, true
	}
	if p.BTH.Opcode.Is(wire.OpRequest) && m.cfg.Blocked(p.DstAddr().Unmap()) {
		m.stats.Blocked++
		return pipeline.Drop(ReasonBlocked), true
	}
	return pipeline.Verdict{}, false
}

// Empty reports whether there are no stale flows. If so, Packet need not be called, unless a server
// is blocked.
func (m *Machine) Empty() bool { return len(m.flows) == 0 }

// begin is called by Packet and Tick. The first call records the time at which the Machine begins
// to work. The silence of stale flows (Config.Idle) is measured from then on.
func (m *Machine) begin(now clock.Time) {
	if m.begun {
		return
	}
	m.begun, m.start, m.sweep = true, now, now.Add(m.cfg.Idle)
	for _, fl := range m.flows {
		fl.last = now
	}
}

// former decides what happens to a packet of a stale flow. The bool is false if the packet belongs
// to no stale flow.
func (m *Machine) former(c *pipeline.Ctx, p *pipeline.Parsed) (pipeline.Verdict, bool) {
	k := key{p.SrcAddr().Unmap(), p.DstAddr().Unmap(), p.BTH.DestQP}
	if m.byAns[k] != nil {
		// The PSNs on the server's side of a moved flow are lower than those on the client's side.
		// So the client would take the packet for the answer to another request.
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
		// The switch journalled the answer to this request, and crashed before the client received
		// the answer.
		psn = p.BTH.PSN
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

// datagram forgets flows if a REQ or REP announces one of their queue pairs for another connection.
func (m *Machine) datagram(now clock.Time, p *pipeline.Parsed) {
	if p.BTH.Opcode != wire.UDSendOnly || !p.Intact() {
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
		qpn = msg.Pair()
	}
	host := p.SrcAddr().Unmap()
	m.forget(func(fl *flow) bool {
		// The datagram may be a late copy from the handshake that made the stale flow.
		settled := fl.naks > 0 || now.Sub(m.start) > lateDatagrams
		return settled && (fl.Client == host && fl.ClientQPN == qpn || fl.Server == host && fl.ServerQPN == qpn)
	})
}

// forget forgets the flows that `which` selects, and frees their slots in the journal.
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

func (m *Machine) Deadline() clock.Time {
	switch {
	case len(m.flows) == 0:
		return clock.Never
	case !m.begun:
		return 0
	}
	return m.sweep
}

func (m *Machine) Stats() Stats { return m.stats }

// Flows returns the stale flows that the machine has not forgotten yet.
func (m *Machine) Flows() []journal.Flow {
	var out []journal.Flow
	for _, fl := range m.flows {
		out = append(out, fl.Flow)
	}
	return out
}
