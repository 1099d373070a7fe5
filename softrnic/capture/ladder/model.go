package ladder

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Switch is the name of the switch's lifeline.
const Switch = "switch"

// MaxPackets is how many packets a Model keeps.
const MaxPackets = flows.MaxPackets

// Row is one arrow, or a burst of arrows with consecutive PSNs.
type Row struct {
	Number   int   // of the packet in the ladder, from 1; the first of a burst
	Time     int64 // nanoseconds since the first packet
	From, To string
	Opcode   wire.Opcode
	QPN      wire.QPN // destination
	// PSN is relative to the first PSN of the flow in the capture; negative is before it.
	PSN int32
	SRQ uint32 // shared receive queue, of a request of XRC
	// Syndrome is set if HasSyndrome: of an answer with an AETH.
	Syndrome    wire.Syndrome
	HasSyndrome bool
	Lost        bool // the switch, or a fault, has dropped the packet
	Damaged     bool // its ICRC is wrong
	Resend      Resend
	Packets     int // 1, or more for a burst
	Comments    []string
	// Message is the name and the fields of a connection manager's datagram, or of a packet without a flow.
	Message string
	// Passed is the number of the same packet on its way to the switch, 0 if the capture does not have
	// it. Changes says what the switch has rewritten in between.
	Passed  int
	Changes []string
}

// Model makes rows of packets.
type Model struct {
	book  flows.Book
	rows  []Row
	lines []string // lifelines, in the order of the capture; the switch is the second if there is one
	at    []int    // the row of each packet
	done  bool
}

// New returns an empty Model.
func New() *Model { return &Model{} }

// Add adds a packet. Frames that are not RoCEv2 and malformed packets have no row. The Model keeps a
// copy of what it needs of r. Add must not be called behind Rows, Lines or a method that draws.
func (m *Model) Add(r *dump.Record) error { return m.book.Add(r) }

// Left returns how many packets the Model has left out, because there are more than MaxPackets.
func (m *Model) Left() int { return m.book.Left }

// Rows returns the rows, which belong to the Model.
func (m *Model) Rows() []Row {
	m.build()
	return m.rows
}

// Lines returns the names of the lifelines from left to right.
func (m *Model) Lines() []string {
	m.build()
	return m.lines
}

func (m *Model) build() {
	if m.done {
		return
	}
	m.done = true
	m.book.Sort()
	m.at = make([]int, len(m.book.Packets)+1)
	again := Resends(&m.book)
	var changes passage
	for i := range m.book.Packets {
		p := &m.book.Packets[i]
		if p.Verdict == dump.Malformed {
			continue
		}
		row := m.row(p)
		if p.Flow != nil {
			row.PSN = wire.Diff(p.PSN(), p.Flow.First)
			row.Resend = again[i]
		}
		changes.add(p, &row)
		m.line(row.From)
		m.line(row.To)
		m.at[p.Number] = m.fold(&row)
	}
}

func (m *Model) row(p *flows.Packet) Row {
	h := &p.Header
	r := Row{
		Number: p.Number, Time: p.Time - m.book.Packets[0].Time, Opcode: p.Opcode(), QPN: h.BTH.DestQP, Packets: 1,
		Lost: p.Lost(), Damaged: p.Verdict == dump.BadICRC, Comments: p.Comments, Message: message(p),
		HasSyndrome: p.Opcode().Has(wire.HasAETH), Syndrome: h.AETH.Syndrome,
	}
	if r.Opcode.Has(wire.HasXRCETH) {
		r.SRQ = h.XRCETH.SRQN
	}
	r.From, r.To = p.Src.String(), p.Dst.String()
	switch host, d := flows.Side(p.Link); d {
	case flows.Up:
		r.From, r.To = host, Switch
	case flows.Down:
		r.From, r.To = Switch, host
	case flows.Unknown:
	}
	return r
}

func (m *Model) line(name string) {
	switch {
	case slices.Contains(m.lines, name):
	case name == Switch && len(m.lines) > 1:
		m.lines = slices.Insert(m.lines, 1, name)
	default:
		m.lines = append(m.lines, name)
		if len(m.lines) == 2 && m.lines[0] == Switch {
			slices.Reverse(m.lines)
		}
	}
}

// maxBeside is how many other bursts may be drawn at the same time as one, for example those of the
// other side of the switch.
const maxBeside = 4

// fold adds a middle packet of a message to the burst that has the packet before it, if nothing has
// happened to either, or appends a row. It returns the place of the row.
func (m *Model) fold(row *Row) int {
	if row.quiet() {
		for back := 1; back <= min(maxBeside, len(m.rows)); back++ {
			last := &m.rows[len(m.rows)-back]
			if !last.quiet() {
				break
			}
			if last.before(row) {
				last.Packets++
				return len(m.rows) - back
			}
		}
	}
	m.rows = append(m.rows, *row)
	return len(m.rows) - 1
}

// quiet reports whether r can be part of a burst.
func (r *Row) quiet() bool {
	return r.Opcode.Is(wire.OpMiddle) && !r.Lost && !r.Damaged && len(r.Comments) == 0 && len(r.Changes) == 0 &&
		(r.Resend.Why == Once || r.Resend.Why == Behind || r.Resend.Why == Repeated && r.Resend.Gone == 0)
}

// before reports whether next continues the burst r.
func (r *Row) before(next *Row) bool {
	return r.Opcode == next.Opcode && r.QPN == next.QPN && r.SRQ == next.SRQ && r.From == next.From && r.To == next.To &&
		r.Resend.Why == next.Resend.Why && r.Resend.Cause == next.Resend.Cause &&
		int(r.PSN)+r.Packets == int(next.PSN)
}
