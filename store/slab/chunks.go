package slab

// Chunks are runs of unused memory that a client has taken from memory servers. The client divides
// them itself, so it needs one request to a server for many places.
type Chunks struct {
	runs []run
	// taken is how many places were taken so far. turn is the server to ask next.
	taken, turn int
	// exhausted is true for each server that was found to have no memory left.
	exhausted []bool
}

// run is unused memory of one server, from offset next to end.
type run struct {
	server    int
	next, end uint64
}

const (
	// takeShare limits how many places (pieces of equal length) a client takes from a server at a
	// time: 1/takeShare of those that it has taken so far. So all clients together hold little
	// unused memory when the servers are full.
	takeShare = 64
	// memoryShare is the least share that is taken at a time: 1/memoryShare of a server's memory.
	memoryShare = 1 << 16
)

// Want returns how many bytes to take next from a server that has `memory` bytes, for places of
// `length` bytes each: a multiple of `length`, or `most` if that is less.
func (c *Chunks) Want(length, most int, memory uint64) uint64 {
	n := max(uint64(c.taken/takeShare), memory/memoryShare/uint64(length), 1)
	return min(n*uint64(length), uint64(most))
}

// Next returns which of the `servers` servers to ask for memory next. They take turns.
// unused is true if the server may have memory that is not taken.
func (c *Chunks) Next(servers int) (server int, unused bool) {
	server = c.turn
	c.turn = (c.turn + 1) % servers
	return server, server >= len(c.exhausted) || !c.exhausted[server]
}

// Took notes that a server has given the memory from offset `from` to `end`, for places of a
// length. last is true if the server has no more. The caller uses the first place itself, and Took
// keeps the others for Take. Took returns false if the server has given nothing.
func (c *Chunks) Took(server int, from, end uint64, length int, last bool) bool {
	for len(c.exhausted) <= server {
		c.exhausted = append(c.exhausted, false)
	}
	c.exhausted[server] = last
	if from >= end {
		return false
	}
	c.taken += int((end - from) / uint64(length))
	if first := from + uint64(length); first < end {
		c.runs = append(c.runs, run{server, first, end})
	}
	return true
}

// Take takes a place of a length from the memory that Took has kept. ok is false if there is none.
func (c *Chunks) Take(length int) (server int, at uint64, ok bool) {
	for i := len(c.runs) - 1; i >= 0; i-- {
		r := &c.runs[i]
		if r.next >= r.end {
			c.runs = c.runs[:i]
			continue
		}
		at = r.next
		r.next += uint64(length)
		return r.server, at, true
	}
	return 0, 0, false
}
