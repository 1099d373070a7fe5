package statestore

// MaxPending is the largest number of counters that can have an amount that waits to be sent by
// FETCH_ADD on one connection.
const MaxPending = 1024

// none ends a list of cells.
const none = -1

// cell is the amount that waits for one counter.
type cell struct {
	offset uint64 // offset of the counter in the server's memory
	amount uint64
	next   int16 // next cell in the list of cells with the same hash, or of free cells
}

// pending holds the amounts that wait for a connection, by counter, in a hash table of fixed size.
// A counter is in the field queue once, from its first amount until the method next takes the sum.
type pending struct {
	cells [MaxPending]cell
	heads [MaxPending]int16 // the first cell of each list of cells with the same hash
	free  int16             // the first free cell
	queue [MaxPending]int16 // the used cells, in the order of their first amounts
	head  int               // index in queue of the oldest one
	used  int               // number of used cells
	sum   uint64            // sum of the amounts of all cells
}

func (p *pending) reset() {
	p.free, p.head, p.used, p.sum = none, 0, 0, 0
	for i := range p.cells {
		p.heads[i] = none
		p.cells[i].next, p.free = p.free, int16(i)
	}
}

// hash returns the index in pending.heads of the list in which a counter's cell is.
func hash(offset uint64) int { return int(offset / wordLen * 0x9e3779b97f4a7c15 >> 54) }

// add adds an amount to the cell of a counter. The result is false if there is no room.
func (p *pending) add(offset, amount uint64) bool {
	h := hash(offset)
	i := p.heads[h]
	for i != none && p.cells[i].offset != offset {
		i = p.cells[i].next
	}
	if i == none {
		if i = p.free; i == none {
			return false
		}
		c := &p.cells[i]
		p.free = c.next
		*c = cell{offset: offset, next: p.heads[h]}
		p.heads[h] = i
		p.queue[(p.head+p.used)%MaxPending] = i
		p.used++
	}
	p.cells[i].amount += amount
	p.sum += amount
	return true
}

// next takes the amount that has waited for the longest time. ok is false if none waits.
func (p *pending) next() (offset, amount uint64, ok bool) {
	if p.used == 0 {
		return 0, 0, false
	}
	i := p.queue[p.head]
	p.head = (p.head + 1) % MaxPending
	p.used--
	c := &p.cells[i]
	at := &p.heads[hash(c.offset)]
	for *at != i {
		at = &p.cells[*at].next
	}
	*at = c.next
	p.sum -= c.amount
	offset, amount = c.offset, c.amount
	c.next, p.free = p.free, i
	return offset, amount, true
}
