package clock

// Queue is an indexed heap of deadlines, ordered by time and then by id, so that equal deadlines
// come out in a fixed order. The zero value is ready to use. Set and Remove cost O(log n) and
// allocate only to grow. They are fastest for ids below nearIDs.
type Queue struct {
	heap []queueItem
	// near has, for each id below nearIDs, one more than the id's index in the heap; 0 means that
	// the id has no deadline. far has the index of each other id; an id without a deadline is not
	// in far.
	near []int32
	far  map[uint32]int32
}

// nearIDs bounds the ids in the slice Queue.near; larger ids are in the map Queue.far.
const nearIDs = 1 << 16

type queueItem struct {
	at Time
	id uint32
}

func (a queueItem) before(b queueItem) bool { return a.at < b.at || (a.at == b.at && a.id < b.id) }

// Len returns the number of ids that have a deadline.
func (q *Queue) Len() int { return len(q.heap) }

// Next returns the earliest deadline and its id; at is Never when the queue is empty.
func (q *Queue) Next() (id uint32, at Time) {
	if len(q.heap) == 0 {
		return 0, Never
	}
	return q.heap[0].id, q.heap[0].at
}

// Set gives id the deadline `at`, which replaces the deadline that id had. The deadline Never
// removes id.
func (q *Queue) Set(id uint32, at Time) {
	if at == Never {
		q.Remove(id)
		return
	}
	k := queueItem{at, id}
	i, ok := q.find(id)
	switch {
	case !ok:
		q.grow(id)
		q.heap = append(q.heap, k)
		q.up(len(q.heap)-1, k)
	case k.before(q.heap[i]):
		q.up(i, k)
	default:
		q.down(i, k)
	}
}

// Remove removes the deadline of id.
func (q *Queue) Remove(id uint32) {
	i, ok := q.find(id)
	if !ok {
		return
	}
	if id < nearIDs {
		q.near[id] = 0
	} else {
		delete(q.far, id)
	}
	last := len(q.heap) - 1
	k := q.heap[last]
	q.heap = q.heap[:last]
	switch {
	case i == last:
	case i > 0 && k.before(q.heap[(i-1)/2]):
		q.up(i, k)
	default:
		q.down(i, k)
	}
}

func (q *Queue) find(id uint32) (int, bool) {
	if id >= nearIDs {
		i, ok := q.far[id]
		return int(i), ok
	}
	if int(id) >= len(q.near) || q.near[id] == 0 {
		return 0, false
	}
	return int(q.near[id]) - 1, true
}

// grow makes room for the index of id.
func (q *Queue) grow(id uint32) {
	if id >= nearIDs {
		if q.far == nil {
			q.far = make(map[uint32]int32)
		}
		return
	}
	if n := int(id) + 1 - len(q.near); n > 0 {
		q.near = append(q.near, make([]int32, n)...)
	}
}

// put places k at index i.
func (q *Queue) put(i int, k queueItem) {
	q.heap[i] = k
	if k.id < nearIDs {
		q.near[k.id] = int32(i) + 1
	} else {
		q.far[k.id] = int32(i)
	}
}

// up puts k at index i of the heap, or nearer to the root if k is earlier than the items there.
func (q *Queue) up(i int, k queueItem) {
	for i > 0 {
		parent := (i - 1) / 2
		if !k.before(q.heap[parent]) {
			break
		}
		q.put(i, q.heap[parent])
		i = parent
	}
	q.put(i, k)
}

// down puts k at index i of the heap, or nearer to the leaves if items there are earlier than k.
func (q *Queue) down(i int, k queueItem) {
	for {
		c := 2*i + 1
		if c >= len(q.heap) {
			break
		}
		if c+1 < len(q.heap) && q.heap[c+1].before(q.heap[c]) {
			c++
		}
		if !q.heap[c].before(k) {
			break
		}
		q.put(i, q.heap[c])
		i = c
	}
	q.put(i, k)
}
