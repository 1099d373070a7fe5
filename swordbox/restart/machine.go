package restart

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/record"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// Reasons to drop a packet.
const (
	// ReasonFormer: it belongs to a row that the switch moved before it was restarted.
	ReasonFormer pipeline.Reason = "moved before restart"
	// ReasonBlocked: connections of the switch to this server are being ended.
	ReasonBlocked pipeline.Reason = "server is being cleared"
)

// Config describes a Machine.
type Config struct {
	// Record has the rows; nil: there are none.
	Record *record.Record
	// Blocked reports whether requests to a server must wait; the client sends them again. nil: never.
	Blocked func(server netip.Addr) bool
	// Idle is after how long a silent row is forgotten. It must be longer than a NIC goes on trying. 0: 10 minutes.
	Idle time.Duration
}

const (
	defaultIdle = 10 * time.Minute
	// lateDatagrams is how long after the start datagrams of a former row's own set-up may still be on their way.
	lateDatagrams = time.Second
	// toldEnough is how long after its first NAK a client may still speak. Its NIC has given up by then; who speaks is another
	// connection with the same numbers, made out of band, and would be refused for ever.
	toldEnough = 30 * time.Second
	gsiQPN     = 1
)

// Machine knows the rows of the former life.
type Machine struct {
	cfg   Config
	rows  []*row
	byReq map[key]*row // by requester, responder, queue pair of the responder
	byAns map[key]*row // by responder, requester, queue pair of the requester
	start clock.Time
	begun bool
	sweep clock.Time // when silence is looked for next
	stats Stats
	nak   wire.Frame
}

// key names the packets of one direction.
type key struct {
	src, dst netip.Addr
	qpn      wire.QPN
}

type row struct {
	record.Row
	naks uint64
	told clock.Time // if there were NAKs, when the first one was sent
	last clock.Time // when the client was heard
}

// Stats counts.
type Stats struct {
	Former    uint64 `help:"rows that the record had of a former life"`
	Naks      uint64 `help:"fatal NAKs sent to their clients"`
	Forgotten uint64 `help:"of them, rows ended by a new connection or by silence"`
	Blocked   uint64 `help:"requests dropped because former connections to the server lived"`
}

// New makes a Machine with the rows that the record has of the life before.
func New(cfg Config) *Machine {
	if cfg.Idle == 0 {
		cfg.Idle = defaultIdle
	}
	if cfg.Blocked == nil {
		cfg.Blocked = func(netip.Addr) bool { return false }
	}
	m := &Machine{cfg: cfg, byReq: make(map[key]*row), byAns: make(map[key]*row)}
	for _, r := range cfg.Record.Former().Rows {
		e := &row{Row: r}
		m.rows = append(m.rows, e)
		m.byReq[key{r.Client, r.Server, r.ServerQPN}] = e
		m.byAns[key{r.Server, r.Client, r.ClientQPN}] = e
	}
	m.stats.Former = uint64(len(m.rows))
	return m
}

// Packet decides about a packet before anybody else sees it. It reports whether the packet was the Machine's business;
// if not, the verdict means nothing.
func (m *Machine) Packet(c *pipeline.Ctx, p *pipeline.Parsed) (pipeline.Verdict, bool) {
	m.begin(c.Now)
	if p.BTH.DestQP == gsiQPN {
		m.datagram(c.Now, p)
		return pipeline.Verdict{}, false
	}
	if !p.BTH.Opcode.Known() || p.BTH.Opcode.Service() != wire.ServiceRC {
		return pipeline.Verdict{}, false
	}
	if len(m.rows) > 0 {
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

// Empty reports that there are no former rows. Unless a server is blocked, Packet then has nothing to do.
func (m *Machine) Empty() bool { return len(m.rows) == 0 }

// begin notes the first instant: silence counts from there.
func (m *Machine) begin(now clock.Time) {
	if m.begun {
		return
	}
	m.begun, m.start, m.sweep = true, now, now.Add(m.cfg.Idle)
	for _, r := range m.rows {
		r.last = now
	}
}

// former decides about a packet of a former row.
func (m *Machine) former(c *pipeline.Ctx, p *pipeline.Parsed) (pipeline.Verdict, bool) {
	k := key{p.SrcAddr().Unmap(), p.DstAddr().Unmap(), p.BTH.DestQP}
	if r := m.byAns[k]; r != nil {
		// What the server answers, or asks for on the same queue pairs, means something else to the client.
		return pipeline.Drop(ReasonFormer), true
	}
	r := m.byReq[k]
	if r == nil {
		return pipeline.Verdict{}, false
	}
	if r.naks > 0 && c.Now.Sub(r.told) > toldEnough {
		m.forget(func(o *row) bool { return o == r })
		return pipeline.Verdict{}, false
	}
	r.last = c.Now
	if p.BTH.Opcode.Is(wire.OpRequest) && p.Intact() {
		m.refuse(c, p, r)
	}
	return pipeline.Drop(ReasonFormer), true
}

// refuse tells a client that its connection is no more.
func (m *Machine) refuse(c *pipeline.Ctx, p *pipeline.Parsed, r *row) {
	psn := r.Oldest
	if wire.Diff(p.BTH.PSN, psn) < 0 {
		psn = p.BTH.PSN // an answer that the record knows of was lost with the switch
	}
	to := rewrite.PathOf(&p.Frame)
	back := to.Back(r.ClientQPN)
	back.NAK(&m.nak, psn, 0, wire.NakRemoteOp)
	note := ""
	if c.Observed() {
		note = fmt.Sprintf("fatal NAK: the switch was restarted, oldest psn %d", psn)
	}
	c.Emit(&m.nak, note)
	if r.naks == 0 {
		r.told = c.Now
	}
	r.naks++
	m.stats.Naks++
}

// datagram looks for queue pairs that get another connection.
func (m *Machine) datagram(now clock.Time, p *pipeline.Parsed) {
	if len(m.rows) == 0 || p.BTH.Opcode != wire.UDSendOnly || !p.Intact() {
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
	m.forget(func(r *row) bool {
		// A late copy of what made the former connection itself proves nothing.
		settled := r.naks > 0 || now.Sub(m.start) > lateDatagrams
		return settled && (r.Client == host && r.ClientQPN == qpn || r.Server == host && r.ServerQPN == qpn)
	})
}

// forget ends rows.
func (m *Machine) forget(which func(r *row) bool) {
	m.rows = slices.DeleteFunc(m.rows, func(r *row) bool {
		if !which(r) {
			return false
		}
		delete(m.byReq, key{r.Client, r.Server, r.ServerQPN})
		delete(m.byAns, key{r.Server, r.Client, r.ClientQPN})
		m.cfg.Record.EndRow(r.Slot)
		m.stats.Forgotten++
		return true
	})
}

// Tick forgets rows of which nothing was heard.
func (m *Machine) Tick(c *pipeline.Ctx) {
	m.begin(c.Now)
	if m.sweep > c.Now {
		return
	}
	m.sweep = clock.Never
	m.forget(func(r *row) bool { return r.last.Add(m.cfg.Idle) <= c.Now })
	for _, r := range m.rows {
		m.sweep = clock.Min(m.sweep, r.last.Add(m.cfg.Idle))
	}
}

// Deadline is when Tick wants to be called.
func (m *Machine) Deadline() clock.Time {
	switch {
	case len(m.rows) == 0:
		return clock.Never
	case !m.begun:
		return 0
	}
	return m.sweep
}

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Rows lists the rows that are not forgotten yet.
func (m *Machine) Rows() []record.Row {
	var out []record.Row
	for _, r := range m.rows {
		out = append(out, r.Row)
	}
	return out
}
