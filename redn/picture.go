package redn

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/plot"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// PictureSteps is the largest number of steps in a picture.
	PictureSteps = 200
	// changeWidth is how many characters of a change fit on a line.
	changeWidth = 48
)

// The arrows of a picture.
const (
	arrowChanges  = "changes a request"
	arrowCompares = "compares, and changes nothing"
	arrowLate     = "changes a request that the NIC has read before: no effect"
	arrowEnables  = "lets the NIC read and execute requests"
)

// Picture returns a drawing of the first PictureSteps steps of a program, in the order in which
// Observe has passed them. Each queue has a column. Arrows lead from a request to those that it
// changes or enables.
func (m *Machine) Picture(title string, steps []Step) *plot.Steps {
	p := &plot.Steps{Title: title}
	all := len(steps)
	if steps = steps[:min(all, PictureSteps)]; len(steps) < all {
		p.Notes = append(p.Notes, fmt.Sprintf("%d more requests", all-len(steps)))
	}
	columns := map[*Queue]int{}
	for i := range steps {
		q := steps[i].Queue
		if _, ok := columns[q]; !ok {
			columns[q] = len(p.Columns)
			p.Columns = append(p.Columns, q.Name)
		}
		p.Steps = append(p.Steps, m.box(&steps[i], columns[q]))
	}
	for i := range steps {
		p.Arrows = append(p.Arrows, m.arrows(steps, i)...)
	}
	return p
}

// box returns the box that stands for a step in the picture.
func (m *Machine) box(s *Step, column int) plot.Step {
	b := plot.Step{Column: column, Time: s.Time.String(), Title: fmt.Sprintf("%d  %v", s.Index, s.Entry.Op), Lines: []string{m.detail(&s.Entry)}}
	if s.Err != nil {
		b.Title, b.Lines = fmt.Sprintf("%d  refused", s.Index), []string{s.Err.Error()}
	}
	for _, c := range s.Changes {
		before, after, _ := strings.Cut(c, " -> ")
		if len(c) <= changeWidth {
			b.Marked = append(b.Marked, before+" → "+after)
		} else {
			b.Marked = append(b.Marked, before, "→ "+after)
		}
	}
	return b
}

// detail describes an entry by names of queues and memory instead of numbers and addresses.
func (m *Machine) detail(e *sendring.Entry) string {
	var length uint32
	var pieces []string
	for _, g := range e.SGL[:e.NSGE] {
		length += g.Length
		if name := m.memory(g.Addr); !slices.Contains(pieces, name) {
			pieces = append(pieces, name)
		}
	}
	local, remote := strings.Join(pieces, ", "), m.memory(e.RemoteAddr)
	switch e.Op {
	case sendring.NOP:
		return "does nothing"
	case sendring.Wait:
		for _, q := range m.queues {
			if q.Done.Number == e.Object {
				return fmt.Sprintf("until %s has %d completions", q.Name, e.Count)
			}
		}
	case sendring.Enable, sendring.RecvEnable:
		for _, q := range m.queues {
			if uint32(q.QPN) == e.Object {
				return fmt.Sprintf("%s, in front of index %d", q.Name, e.Count)
			}
		}
	case sendring.Read:
		return fmt.Sprintf("%d bytes of %s → %s", length, remote, local)
	case sendring.Write, sendring.WriteImm:
		return fmt.Sprintf("%d bytes of %s → %s", length, local, remote)
	case sendring.CmpSwap:
		if _, ok := m.request(e.RemoteAddr); ok {
			return fmt.Sprintf("%s: if %s, then %s", remote, controlText(e.Compare), controlText(e.SwapAdd))
		}
		return fmt.Sprintf("%s: if %#x, then %#x", remote, e.Compare, e.SwapAdd)
	case sendring.FetchAdd, sendring.MaskedFetchAdd:
		return fmt.Sprintf("%s + %#x", remote, e.SwapAdd)
	case sendring.Max, sendring.Min:
		return fmt.Sprintf("of %s → %s", local, remote)
	default: // Text describes all others
	}
	_, rest, _ := strings.Cut(Text(e), " ")
	return strings.TrimSpace(rest)
}

// controlText describes the first 8 bytes of a request, in host order, by opcode and operand.
func controlText(word uint64) string {
	var b [controlLen]byte
	binary.NativeEndian.PutUint64(b[:], word)
	operand := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[4])<<24 | uint64(b[5])<<32 | uint64(b[6])<<40
	return fmt.Sprintf("%v with %d", sendring.Opcode(b[sendring.OffOpcode]), operand)
}

// block is block number `place` of the ring of a queue.
type block struct {
	queue *Queue
	place int
}

// request returns the ring block that contains the address addr; the bool is false if none does.
func (m *Machine) request(addr uint64) (block, bool) {
	for _, q := range m.queues {
		if off := addr - q.Ring.Addr; off < uint64(q.Ring.Len) {
			return block{q.Queue, int(off / sendring.BlockSize)}, true
		}
	}
	return block{}, false
}

// memory describes the address addr: by queue and block, as an offset in the machine's data, or as
// a number.
func (m *Machine) memory(addr uint64) string {
	if b, ok := m.request(addr); ok {
		return fmt.Sprintf("%s %d", b.queue.Name, b.place)
	}
	if off := addr - m.Data.Addr; off < uint64(m.Data.Len) {
		return fmt.Sprintf("data+%d", off)
	}
	return fmt.Sprintf("%#x", addr)
}

// changed returns the ring blocks that entry e changes: of each piece of memory that e writes, the
// block in which the piece begins.
func (m *Machine) changed(e *sendring.Entry) (list []block) {
	to := e.SGL[:e.NSGE]
	switch e.Op {
	case sendring.Read:
	case sendring.Write, sendring.WriteImm, sendring.Max, sendring.Min, sendring.CmpSwap, sendring.FetchAdd, sendring.MaskedCmpSwap, sendring.MaskedFetchAdd:
		to = []verbs.SGE{{Addr: e.RemoteAddr}}
	default:
		return nil
	}
	for _, g := range to {
		if b, ok := m.request(g.Addr); ok && !slices.Contains(list, b) {
			list = append(list, b)
		}
	}
	return list
}

func (s *Step) covers(b block) bool {
	at := int(s.Index) % s.Queue.blocks()
	return s.Queue == b.queue && b.place >= at && b.place < at+max(1, len(s.Bytes)/sendring.BlockSize)
}

// arrows returns the arrows from step i to the requests that it changes, compares or enables.
func (m *Machine) arrows(steps []Step, i int) (list []plot.Arrow) {
	e := &steps[i].Entry
	for _, b := range m.changed(e) {
		covers := func(s Step) bool { return s.covers(b) }
		if next := slices.IndexFunc(steps[i+1:], covers); next >= 0 {
			to := i + 1 + next
			a := plot.Arrow{From: i, To: to, Name: arrowChanges, Color: 2}
			if e.Op == sendring.CmpSwap && len(steps[to].Bytes) >= controlLen && binary.NativeEndian.Uint64(steps[to].Bytes) != e.SwapAdd {
				a.Name, a.Color, a.Dashed = arrowCompares, 0, true
			}
			list = append(list, a)
		} else if before := slices.IndexFunc(steps[:i], covers); before >= 0 {
			list = append(list, plot.Arrow{From: i, To: before, Name: arrowLate, Color: 2, Dashed: true})
		}
	}
	if e.Op == sendring.Enable {
		enabled := func(s Step) bool { return uint32(s.Queue.QPN) == e.Object }
		if next := slices.IndexFunc(steps[i+1:], enabled); next >= 0 {
			list = append(list, plot.Arrow{From: i, To: i + 1 + next, Name: arrowEnables, Color: 1})
		}
	}
	return list
}
