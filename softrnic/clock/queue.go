package clock

// Queue is an indexed heap of deadlines, ordered by time and then by id, so that equal deadlines
// come out in a fixed order. The zero value is ready to use. Set and Remove cost O(log n) and
// allocate only to grow.
type Queue struct {
	heap []queueItem
	pos  map[uint32]int
}

type queueItem struct {
	at Time
	id uint32
}

func (a queueItem) before(b queueItem) bool { return a.at < b.at || (a.at == b.at && a.id < b.id) }

// Len returns the number of ids with a deadline.
func (q *Queue) Len() int { return len(q.heap) }

// Next returns the earliest deadline and its id; at is Never when the queue is empty.
func (q *Queue) Next() (id uint32, at Time) {
	if len(q.heap) == 0 {
		return 0, Never
	}
	return q.heap[0].id, q.heap[0].at
}

// Set gives id the deadline at, replacing an earlier one. Never removes id.
func (q *Queue) Set(id uint32, at Time) {
	i, ok := q.pos[id]
	switch {
	case at == Never:
		q.Remove(id)
	case !ok:
		if q.pos == nil {
			q.pos = make(map[uint32]int)
		}
		q.heap = append(q.heap, queueItem{at, id})
		q.pos[id] = len(q.heap) - 1
		q.up(len(q.heap) - 1)
	case q.heap[i].at != at:
		q.heap[i].at = at
		q.up(i)
		q.down(q.pos[id])
	}
}

// Remove forgets id.
func (q *Queue) Remove(id uint32) {
	i, ok := q.pos[id]
	if !ok {
		return
	}
	last := len(q.heap) - 1
	q.swap(i, last)
	q.heap = q.heap[:last]
	delete(q.pos, id)
	if i < last {
		moved := q.heap[i].id
		q.up(i)
		q.down(q.pos[moved])
	}
}

func (q *Queue) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.pos[q.heap[i].id] = i
	q.pos[q.heap[j].id] = j
}

func (q *Queue) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !q.heap[i].before(q.heap[parent]) {
			return
		}
		q.swap(i, parent)
		i = parent
	}
}

func (q *Queue) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(q.heap) {
			return
		}
		if c+1 < len(q.heap) && q.heap[c+1].before(q.heap[c]) {
			c++
		}
		if !q.heap[c].before(q.heap[i]) {
			return
		}
		q.swap(i, c)
		i = c
	}
}
