package ladder

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Switch is the name of the switch's lifeline.
const Switch = "switch"

// Row is one arrow, or a burst of arrows with consecutive PSNs.
type Row struct {
	Number   int   // of the packet in the ladder, from 1; the first of a burst
	Time     int64 // nanoseconds since the first packet
	From, To string
	Opcode   wire.Opcode
	QPN      wire.QPN // destination
	// PSN is relative to the first PSN of the connection's requester in the capture; negative is before it.
	PSN int32
	// Syndrome is set if HasSyndrome: of a response with an AETH.
	Syndrome    wire.Syndrome
	HasSyndrome bool
	Lost        bool // a fault has dropped the packet
	Damaged     bool // its ICRC is wrong
	// Again is the number of the same packet that was sent before, 0 if this is the first.
	Again int
	// Cause is the number of the NAK that asks for the packet, or else of its lost copy; 0 means that
	// the capture does not show why the packet is sent again.
	Cause    int
	Packets  int // 1, or more for a burst
	Comments []string
}

// packet identifies the copies of one packet on one link.
type packet struct {
	link     string
	src, dst netip.Addr
	qpn      wire.QPN
	psn      wire.PSN
	opcode   wire.Opcode
}

// flow has the packets of one direction of a connection: requests, or responses.
type flow struct {
	src, dst netip.Addr
	qpn      wire.QPN
	response bool
}

// space is the PSNs of one requester: the first one in the capture, and the newest.
type space struct{ first, last wire.PSN }

// wanted is a packet that a NAK asks for.
type wanted struct {
	src, dst netip.Addr
	psn      wire.PSN
}

// earlier is what the model knows of the packets like one packet.
type earlier struct{ first, lost int }

// Model makes rows of packets. Its memory grows with the number of packets.
type Model struct {
	Rows  []Row
	Lines []string // lifelines, in the order of the capture; the switch is the second if there is one

	packets int
	start   int64
	seen    map[packet]earlier
	spaces  map[flow]*space
	asked   map[wanted]int
}

// New returns an empty Model.
func New() *Model {
	return &Model{seen: map[packet]earlier{}, spaces: map[flow]*space{}, asked: map[wanted]int{}}
}

// Add adds a packet. Frames that are not RoCEv2 and malformed packets have no row. The Model keeps a
// copy of what it needs of r.
func (m *Model) Add(r *dump.Record) error {
	if r.Verdict == dump.Other || r.Verdict == dump.Malformed {
		return nil
	}
	m.packets++
	if m.packets == 1 {
		m.start = r.Time
	}
	f, h := &r.Frame, &r.Frame.BTH
	row := Row{
		Number: m.packets, Time: r.Time - m.start, Opcode: h.Opcode, QPN: h.DestQP, Packets: 1,
		Damaged: r.Verdict == dump.BadICRC, Comments: slices.Clone(r.Comments),
		HasSyndrome: h.Opcode.Has(wire.HasAETH), Syndrome: f.AETH.Syndrome,
	}
	row.From, row.To = ends(r.Name, f)
	row.Lost = slices.ContainsFunc(r.Comments, dropped)
	s := m.space(f)
	row.PSN = wire.Diff(h.PSN, s.first)
	m.again(&row, r.Name, f)
	m.line(row.From)
	m.line(row.To)
	if !m.fold(&row) {
		m.Rows = append(m.Rows, row)
	}
	return nil
}

// dropped reports whether a comment of the switch says that it or a fault has dropped the packet.
func dropped(comment string) bool {
	return strings.HasSuffix(comment, "dropped") || strings.HasPrefix(comment, "dropped by the switch")
}

// ends returns the lifelines of a frame. The project names an interface of a capture after the host
// and the direction: up is to the switch.
func ends(link string, f *wire.Frame) (from, to string) {
	for _, sep := range []string{" ", "-"} {
		if host, ok := strings.CutSuffix(link, sep+"up"); ok && host != "" {
			return host, Switch
		}
		if host, ok := strings.CutSuffix(link, sep+"down"); ok && host != "" {
			return Switch, host
		}
	}
	return f.SrcAddr().String(), f.DstAddr().String()
}

func (m *Model) line(name string) {
	switch {
	case slices.Contains(m.Lines, name):
	case name == Switch && len(m.Lines) > 1:
		m.Lines = slices.Insert(m.Lines, 1, name)
	default:
		m.Lines = append(m.Lines, name)
		if len(m.Lines) == 2 && m.Lines[0] == Switch {
			slices.Reverse(m.Lines)
		}
	}
}

// response reports whether o has a PSN of the other side.
func response(o wire.Opcode) bool { return o.Has(wire.HasAETH) || o == wire.RCReadResponseMiddle }

// space returns the PSNs of the requester of f. Packets do not say which queue pairs are connected:
// a response belongs to the requests between its hosts whose newest PSN is nearest.
func (m *Model) space(f *wire.Frame) *space {
	h := &f.BTH
	key := flow{f.SrcAddr(), f.DstAddr(), h.DestQP, response(h.Opcode)}
	s := m.spaces[key]
	if s == nil {
		s = &space{h.PSN, h.PSN}
		if key.response {
			best := int32(1 << 16) // farther away, it is another connection
			for k, other := range m.spaces {
				d := wire.Diff(h.PSN, other.last)
				if !k.response && k.src == key.dst && k.dst == key.src && max(d, -d) < best {
					s, best = other, max(d, -d)
				}
			}
		}
		m.spaces[key] = s
	}
	if !key.response && wire.Diff(h.PSN, s.last) > 0 {
		s.last = h.PSN
	}
	return s
}

// again finds the earlier copies of the packet of row and why it is sent again, and notes what a NAK
// asks for. An acknowledgement is no copy of another: a responder may repeat it for each duplicate.
func (m *Model) again(row *Row, link string, f *wire.Frame) {
	h := &f.BTH
	if row.HasSyndrome && (row.Syndrome == wire.NakPSNSequence || row.Syndrome.IsRNR()) {
		m.asked[wanted{f.DstAddr(), f.SrcAddr(), h.PSN}] = row.Number
	}
	if !h.Opcode.Known() || h.Opcode.Service() != wire.ServiceRC || h.Opcode == wire.RCAck {
		return
	}
	key := packet{link, f.SrcAddr(), f.DstAddr(), h.DestQP, h.PSN, h.Opcode}
	e, known := m.seen[key]
	if known {
		row.Again, row.Cause = e.first, e.lost
		if n := m.asked[wanted{key.src, key.dst, key.psn}]; n > e.first && !response(h.Opcode) {
			row.Cause = n
		}
	} else {
		e.first = row.Number
	}
	if row.Lost {
		e.lost = row.Number
	}
	m.seen[key] = e
}

// fold adds a middle packet of a message to the row before it, if that has the packet before it and
// nothing has happened to either.
func (m *Model) fold(row *Row) bool {
	if len(m.Rows) == 0 || !row.Opcode.Is(wire.OpMiddle) {
		return false
	}
	last := &m.Rows[len(m.Rows)-1]
	quiet := func(r *Row) bool { return !r.Lost && !r.Damaged && r.Again == 0 && len(r.Comments) == 0 }
	if !quiet(row) || !quiet(last) || last.Opcode != row.Opcode || last.QPN != row.QPN || last.From != row.From ||
		last.To != row.To || last.PSN+int32(last.Packets) != row.PSN { //nolint:gosec // fewer than 2^24 packets with different PSNs
		return false
	}
	last.Packets++
	return true
}
