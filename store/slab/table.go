package slab

import "slices"

// None is, in a Table, the class of a segment without a class.
const None = 0

// Segment names a segment of a memory server.
type Segment struct{ Server, N int }

// Table has the class of each segment, as one byte: None, or the number of the class plus one.
type Table struct {
	rows    [][]byte // by server, and then by segment
	resting []resting
}

// resting is a segment that is to lose its class when every client has left epoch (see Rest).
type resting struct {
	Segment
	epoch uint32
}

// NewTable makes a table for a number of servers, each with equally many segments, which have no
// class.
func NewTable(servers, segments int) Table {
	t := Table{rows: make([][]byte, servers)}
	for i := range t.rows {
		t.rows[i] = make([]byte, segments)
	}
	return t
}

// Row returns the bytes of a server's segments, in their order, as memory servers keep them. The
// caller may change them.
func (t *Table) Row(server int) []byte { return t.rows[server] }

// Find returns the first segment of a server that has no class.
func (t *Table) Find(server int) (s Segment, ok bool) {
	n := slices.Index(t.rows[server], None)
	return Segment{server, n}, n >= 0
}

func (t *Table) Set(s Segment, class int) { t.rows[s.Server][s.N] = byte(class) + 1 }

func (t *Table) Has(s Segment, class int) bool { return t.rows[s.Server][s.N] == byte(class)+1 }

// Unused returns how many segments of a server, or of all servers (Anywhere), have no class.
func (t *Table) Unused(server int) (n int) {
	for i, row := range t.rows {
		if server == Anywhere || server == i {
			for _, v := range row {
				if v == None {
					n++
				}
			}
		}
	}
	return n
}

// Rest puts segment s on the list of segments that are to lose their class. All of its places are
// free, and the caller does not give them out any more. The segment keeps its class until Wake
// finds that every client has left the given epoch.
func (t *Table) Rest(s Segment, epoch uint32) { t.resting = append(t.resting, resting{s, epoch}) }

func (t *Table) Rests(s Segment) bool {
	return slices.ContainsFunc(t.resting, func(r resting) bool { return r.Segment == s })
}

func (t *Table) Resting() int { return len(t.resting) }

// Wake removes the class of the resting segments whose epoch every client has left: oldest is the
// oldest epoch that a client is in, and `now` is the present epoch. waiting is true if a segment
// has come to rest in the present epoch.
func (t *Table) Wake(oldest, now uint32) (waiting bool) {
	t.resting = slices.DeleteFunc(t.resting, func(r resting) bool {
		if r.epoch < oldest {
			t.rows[r.Server][r.N] = None
			return true
		}
		waiting = waiting || r.epoch == now
		return false
	})
	return waiting
}

// Stir removes all segments of a server from the list of segments that are to lose their class (see
// Rest). They keep their class: no later Wake removes it.
func (t *Table) Stir(server int) {
	t.resting = slices.DeleteFunc(t.resting, func(r resting) bool { return r.Server == server })
}
