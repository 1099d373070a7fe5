package trunk

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// buffers is how many trains an assembler holds: the one that it puts together, and those whose frames the
// caller still reads.
const buffers = 8

// bufferSize is the memory of a train: its last piece may stand at the end until its place is known.
const bufferSize = maxTrain + 2*maxPiece

// train is one that is put together from its pieces.
type train struct {
	buf   []byte
	of    *session
	id    uint64 // counter of its first piece
	count int
	piece int // length of all pieces but the last; 0: not known yet
	last  int // length of the last piece; 0: it has not come
	got   int // how many pieces have come
	have  [MaxPieces]bool
	first [MaxPieces]uint16
}

func (t *train) begin(of *session, id uint64, count int) {
	t.of, t.id, t.count, t.piece, t.last, t.got = of, id, count, 0, 0, 0
	clear(t.have[:count])
}

// place returns where a piece of n bytes belongs into the memory of the train; false if it fits the train
// or the others' lengths not.
func (t *train) place(index, count, n int) (at int, ok bool) {
	isLast := index == count-1
	piece := t.piece
	switch {
	case count != t.count || n == 0 || n > maxPiece:
		return 0, false
	case !isLast && piece == 0:
		piece = n
		if t.last > piece {
			return 0, false
		}
	case !isLast && n != piece, isLast && piece > 0 && n > piece:
		return 0, false
	case isLast && piece == 0:
		return len(t.buf) - n, true
	}
	if (count-1)*piece >= maxTrain {
		return 0, false
	}
	return index * piece, true
}

// add notes a piece that stands at its place.
func (t *train) add(index, n int, first uint16) {
	t.have[index], t.first[index] = true, first
	t.got++
	if index == t.count-1 {
		t.last = n
		return
	}
	if t.piece == 0 && t.last > 0 { // the last piece came first
		copy(t.buf[(t.count-1)*n:], t.buf[len(t.buf)-t.last:])
	}
	t.piece = n
}

// bytes returns the length of the records, or of what is known of them.
func (t *train) bytes() int {
	if t.last > 0 {
		return (t.count-1)*t.piece + t.last
	}
	return t.count * t.piece
}

// holds reports whether all bytes from from to to have come.
func (t *train) holds(from, to int) bool {
	if to > t.bytes() {
		return false
	}
	for i := from / t.piece; i*t.piece < to; i++ {
		if !t.have[i] {
			return false
		}
	}
	return true
}

// next returns where the first record begins behind the position `at`; false if that is not known.
func (t *train) next(at int) (int, bool) {
	for i := at / t.piece; i < t.count; i++ {
		if pos := i*t.piece + int(t.first[i]); t.have[i] && t.first[i] != none && pos > at && int(t.first[i]) < t.piece {
			return pos, true
		}
	}
	return 0, false
}

// assembler makes frames of the pieces of trains. Its frames are valid until begin is called. It holds
// one train that is not complete; when a later one begins, it gives out what has come.
type assembler struct {
	trains [buffers]*train
	used   int // the first ones are used; the last of these may be incomplete
	open   bool
	stats  *Stats
}

func (s *Stats) newAssembler() *assembler {
	a := &assembler{stats: s}
	for i := range a.trains {
		a.trains[i] = &train{buf: make([]byte, bufferSize)}
	}
	return a
}

// begin frees the trains whose frames have been read.
func (a *assembler) begin() {
	if !a.open {
		a.used = 0
		return
	}
	a.trains[0], a.trains[a.used-1] = a.trains[a.used-1], a.trains[0]
	a.used = 1
}

// room reports whether another train may begin.
func (a *assembler) room() bool { return a.used < len(a.trains) }

// current returns the train that is not complete; nil if there is none.
func (a *assembler) current() *train {
	if !a.open {
		return nil
	}
	return a.trains[a.used-1]
}

// of returns the train to which the piece of a header belongs, whose key is that of a session; nil if the
// piece comes too late for it. The caller has made sure that there is room.
func (a *assembler) of(s *session, h *header) *train {
	id := h.counter - uint64(h.index)
	if c := a.current(); c != nil && c.of == s {
		if c.id == id {
			return c
		}
		if id < c.id {
			return nil
		}
	}
	if s.given >= id {
		return nil // that train was given out
	}
	t := a.trains[a.used]
	t.begin(s, id, int(h.count))
	return t
}

// took takes a piece that is authentic and stands at its place in t, which is of's result.
func (a *assembler) took(t *train, h *header, n int, out *packetio.Batch) {
	if t != a.current() {
		a.finish(out)
		a.used++
		a.open = true
	}
	t.add(int(h.index), n, h.first)
	t.of.given = t.id
	if t.got == t.count {
		a.open = false
		a.whole(t.buf[:t.bytes()], out)
	}
}

// finish gives out what has come of the train that is not complete.
func (a *assembler) finish(out *packetio.Batch) {
	t := a.current()
	if t == nil {
		return
	}
	a.open = false
	a.stats.Incomplete++
	if t.piece > 0 {
		a.part(t, out)
	} else if first := int(t.first[t.count-1]); first < t.last { // the last piece alone
		a.whole(t.buf[len(t.buf)-t.last+first:], out)
	}
}

// whole gives out the frames of records that have come as a whole.
func (a *assembler) whole(b []byte, out *packetio.Batch) {
	for len(b) > 0 {
		if len(b) < recordLen {
			a.stats.Refused.Malformed++
			return
		}
		f, n, ok := parseRecord(b)
		if !ok || recordLen+n > len(b) {
			a.stats.Refused.Malformed++
			return
		}
		f.Data = b[recordLen : recordLen+n : recordLen+n]
		out.Frames = append(out.Frames, f)
		b = b[recordLen+n:]
	}
}

// part gives out the frames of a train of which pieces are missing.
func (a *assembler) part(t *train, out *packetio.Batch) {
	end := t.bytes()
	for at := 0; at < end; {
		if !t.holds(at, at+recordLen) {
			var ok bool
			if at, ok = t.next(at); !ok {
				return
			}
			continue
		}
		f, n, ok := parseRecord(t.buf[at:])
		if !ok || at+recordLen+n > max(end, maxTrain) {
			a.stats.Refused.Malformed++
			return
		}
		from, to := at+recordLen, at+recordLen+n
		f.Data = t.buf[from:to:to]
		switch {
		case t.holds(from, to):
			out.Frames = append(out.Frames, f)
		case t.last > 0 && to > end: // longer than its train
			a.stats.Refused.Malformed++
			return
		default:
			a.rescue(t, &f, from, out)
		}
		at = to
	}
}

// rescue gives out the packets of a super-frame that have come, if its headers have. If they have not, the
// length of the headers is that of other bytes, but then they reach into a piece that is missing.
func (a *assembler) rescue(t *train, f *packetio.Frame, from int, out *packetio.Batch) {
	headers := f.Headers()
	if headers == 0 || !t.holds(from, from+headers) {
		return
	}
	for i := range f.Packets() {
		at := from + headers + i*f.SegSize
		if t.holds(at, min(at+f.SegSize, from+len(f.Data))) {
			out.Add(0, f.AppendSegment(out.Alloc(headers+f.SegSize), i))
		}
	}
}
